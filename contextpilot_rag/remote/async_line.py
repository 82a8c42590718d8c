"""AsyncLine: one connection of an event loop, as a bare socket: between two requests no loop knows of it.

So nothing is left behind in a loop that ends, and none has to be told when a connection is closed. Who uses it sees to
the deadline.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any, TypeVar

import anyio
import httpcore

from .asks import Deadline
from .line import NO_ADDRESS, usable
from .lookup import Found

T = TypeVar("T")
_CHUNK = 65_536


class AsyncLine(httpcore.AsyncNetworkStream):
    """An open connection.

    Args:
        sock: connected, not blocking.
        tls: what encrypts it, if anything does.
    """

    def __init__(self, sock: socket.socket, tls: _Tls | None = None) -> None:
        self._sock = sock
        self._tls = tls
        self._unsent = b""
        self.answered = False
        weakref.finalize(self, sock.close)

    @classmethod
    async def open(
        cls, found: Found | Future[Found], deadline: Deadline, context: ssl.SSLContext | None, host: str
    ) -> AsyncLine:
        """A new connection to the first of the addresses that takes it.

        Raises:
            OSError: none of them did.
            Late: not in time.
        """
        if isinstance(found, Future):
            found = await asyncio.wrap_future(found)
        error = OSError(NO_ADDRESS)
        for number, (family, address) in enumerate(found):
            sock = socket.socket(family, socket.SOCK_STREAM)
            try:
                sock.setblocking(False)
                with anyio.fail_after(deadline.left() / (len(found) - number)):
                    await asyncio.get_running_loop().sock_connect(sock, address)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                tls = None if context is None else _Tls(sock, context, host)
                if tls is not None:
                    await tls.perform(tls.channel.do_handshake)
            except OSError as failed:
                sock.close()
                error = failed
            except BaseException:
                sock.close()
                raise
            else:
                return cls(sock, tls)
        raise error

    async def write(self, buffer: bytes, timeout: Any = None) -> None:  # noqa: ANN401, ARG002, ASYNC109
        """Note what is to be sent; it goes out when the answer is waited for."""
        self._unsent += buffer

    async def read(self, max_bytes: int, timeout: Any = None) -> bytes:  # noqa: ANN401, ARG002, ASYNC109
        """The next bytes of the answer; empty at its end."""
        if self._unsent:
            unsent, self._unsent, self.answered = self._unsent, b"", False
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # perhaps it said why before it closed
                await self._send(unsent)
        data = await self._receive(max_bytes)
        self.answered = self.answered or bool(data)
        return data

    async def aclose(self) -> None:
        """End it."""
        self.close()

    def close(self) -> None:
        """End it; there is nothing to wait for."""
        self._sock.close()

    @property
    def usable(self) -> bool:
        """Whether it can carry another request."""
        return usable(self._sock)

    async def _send(self, unsent: bytes) -> None:
        if self._tls is None:
            await asyncio.get_running_loop().sock_sendall(self._sock, unsent)
        else:
            view = memoryview(unsent)
            while view:
                view = view[await self._tls.perform(partial(self._tls.channel.write, view)) :]

    async def _receive(self, max_bytes: int) -> bytes:
        if self._tls is None:
            return await asyncio.get_running_loop().sock_recv(self._sock, max_bytes)
        channel = self._tls.channel
        try:
            return await self._tls.perform(partial(channel.read, max_bytes))
        except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
            return b""


class _Tls:
    """TLS over a socket that does not block."""

    def __init__(self, sock: socket.socket, context: ssl.SSLContext, host: str) -> None:
        self._sock = sock
        self._coming, self._going = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.channel = context.wrap_bio(self._coming, self._going, server_hostname=host)

    async def perform(self, step: Callable[[], T]) -> T:
        """Do one thing, with as much sending and receiving as it takes."""
        loop = asyncio.get_running_loop()
        while True:
            done = False
            try:
                result = step()
                done = True
            except ssl.SSLWantReadError:
                pass
            finally:
                going = self._going.read()  # an alert goes out, too
                if going:
                    await loop.sock_sendall(self._sock, going)
            if done:
                return result
            data = await loop.sock_recv(self._sock, _CHUNK)
            if data:
                self._coming.write(data)
            else:
                self._coming.write_eof()
