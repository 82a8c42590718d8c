"""Connections of the proxy's clients: uploads take as long as they move, and nothing waits for what follows it."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from ..service.gathered import Gathered
from ..service.protocol import Connection
from .problems import Refused


class PatientConnection(Connection):
    """One client's connection, as the service has it, but for what passes through.

    ``body_seconds`` count from the last piece of a body, and not while it is the upstream that does not read on. What
    is refused here is said as OpenAI's clients understand it.
    """

    _moved = 0.0

    def gathered(self, transport: asyncio.Transport) -> Gathered:
        """A head waits for a body that is there already, and for no other."""
        return _Soon(transport)

    def problem(self, status: int, kind: str, detail: str) -> tuple[str, bytes]:  # noqa: ARG002
        """An error in OpenAI's shape."""
        problem = Refused(detail).problem()
        problem["error"]["code"] = status
        return "application/json", msgspec.json.encode(problem)

    def on_headers_complete(self) -> None:
        """A request is known; one in HTTP/1.0 takes no chunks."""
        before = self.cycle
        super().on_headers_complete()
        if self.cycle is not before and self.scope["http_version"] != "1.1":
            self.cycle.__class__ = _Unchunked

    def on_body(self, body: bytes) -> None:
        """Some of its body."""
        self._moved = self.loop.time()
        super().on_body(body)

    def _late(self) -> None:
        """Time is up for a request to be sent; a body that moved since has its time from then on."""
        waits = not self._in_head and (self.flow.read_paused or self._still() < self._settings.body_seconds)
        if waits and not self.transport.is_closing():
            self._arm()
        else:
            super()._late()

    def _still(self) -> float:
        """Seconds since something of the body came."""
        return self.loop.time() - self._moved


class _Unchunked(RequestResponseCycle):
    """An answer to a client that does not know chunks: one without a length ends with the connection."""

    endless = False

    async def send(self, message: Any) -> None:  # noqa: ANN401
        """Some of the answer."""
        if message["type"] == "http.response.start":
            self.endless = all(name.lower() != b"content-length" for name, _ in message["headers"])
            self.chunked_encoding = False if self.endless else None
        elif self.endless:
            self.expected_content_length = len(message.get("body", b""))
        await super().send(message)


class _Soon(Gathered):
    """Keeps an answer's head for this turn of the event loop: the body may be long in coming."""

    def write(self, data: bytes) -> None:
        """A head, or what follows one."""
        super().write(data)
        if self._head:
            asyncio.get_running_loop().call_soon(self.flush)
