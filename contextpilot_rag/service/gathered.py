"""An answer's head and body in one packet: half the system calls here, and the client wakes up once."""

from __future__ import annotations

import asyncio
from typing import Any

_BEGIN, _END = b"HTTP/1.1 ", b"\r\n\r\n"
_CONTINUE = b"HTTP/1.1 1"  # not an answer yet: nothing follows before the client goes on


class Gathered:
    """A transport that keeps an answer's head until what follows it.

    uvicorn writes the two one after the other; where there is no body, there may be nothing after the head: `flush`.

    Args:
        transport: what is written to.
    """

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._write = transport.write
        self._head = b""

    def write(self, data: bytes) -> None:
        """A head, or what follows one. Once the connection is closed it is dropped, as nobody reads it.

        uvicorn does so for a connection's last request only.
        """
        if self._transport.is_closing():
            self._head = b""
            return
        if self._head:
            data, self._head = self._head + data, b""
        elif data.endswith(_END) and data.startswith(_BEGIN) and not data.startswith(_CONTINUE):
            self._head = data
            return
        self._write(data)

    def flush(self) -> None:
        """The answer is complete: write what is kept."""
        if self._head:
            self.write(b"")

    def close(self) -> None:
        """Write what is kept, and close."""
        self.flush()
        self._transport.close()

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        return getattr(self._transport, name)
