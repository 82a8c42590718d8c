"""AsyncLine: one connection of an event loop, as a bare socket: between two requests no loop knows of it.

So nothing is left behind in a loop that ends, and none has to be told when a connection is closed.

As long as there is something to be read, a loop hands it over at once, and no other task has its turn, not even the
one that would end this call. So each step looks at the deadline, and now and then lets the others run.
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
from .line import NO_ADDRESS, READ_MOST, readable, usable
from .lookup import Found
from .told import Told

T = TypeVar("T")
_READS = 4  # in a row, before others have their turn


class AsyncLine(Told, httpcore.AsyncNetworkStream):
    """An open connection.

    Args:
        wire: connected.
        tls: what encrypts it, if anything does.
    """

    def __init__(self, wire: _Wire, tls: _Tls | None = None) -> None:
        super().__init__()
        self._wire = wire
        self._tls = tls
        self._unsent = b""
        weakref.finalize(self, wire.sock.close)

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
            try:
                sock = socket.socket(family, socket.SOCK_STREAM)
            except OSError as failed:  # a machine without this kind of address
                error = failed
                continue
            try:
                sock.setblocking(False)
                with anyio.fail_after(deadline.left() / (len(found) - number)):
                    await asyncio.get_running_loop().sock_connect(sock, address)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                wire = _Wire(sock)
                tls = None if context is None else _Tls(wire, context, host)
                if tls is not None:
                    await tls.perform(tls.channel.do_handshake, deadline)
            except OSError as failed:
                sock.close()
                error = failed
            except BaseException:
                sock.close()
                raise
            else:
                return cls(wire, tls)
        raise error

    async def write(self, buffer: bytes, timeout: Any = None) -> None:  # noqa: ANN401, ARG002, ASYNC109
        """Note what is to be sent; it goes out when the answer is waited for."""
        self._unsent += buffer

    async def read(self, max_bytes: int, timeout: Any = None) -> bytes:  # noqa: ANN401, ASYNC109
        """The next bytes of the answer; empty at its end."""
        deadline: Deadline = timeout
        if self._unsent:
            unsent, self._unsent = self._unsent, b""
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # perhaps it said why before it closed
                await self._send(unsent, deadline)
        return self.came(await self._receive(min(max_bytes, READ_MOST), deadline))

    async def aclose(self) -> None:
        """End it."""
        self.close()

    def close(self) -> None:
        """End it; there is nothing to wait for."""
        if not self.answered and self._tls is None:
            self.unread = self.unread or readable(self._wire.sock)
        self._wire.sock.close()

    @property
    def usable(self) -> bool:
        """Whether it can carry another request."""
        return usable(self._wire.sock) and (self._tls is None or self._tls.is_empty)

    async def _send(self, unsent: bytes, deadline: Deadline) -> None:
        if self._tls is None:
            await self._wire.send(unsent, deadline)
        else:
            view = memoryview(unsent)
            while view:
                view = view[await self._tls.perform(partial(self._tls.channel.write, view), deadline) :]

    async def _receive(self, max_bytes: int, deadline: Deadline) -> bytes:
        if self._tls is None:
            return await self._wire.receive(max_bytes, deadline)
        channel = self._tls.channel
        try:
            return await self._tls.perform(partial(channel.read, max_bytes), deadline)
        except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
            return b""


class _Wire:
    """A socket that does not block, and those who use it neither.

    Args:
        sock: connected.
    """

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._reads = 0

    async def send(self, data: bytes, deadline: Deadline) -> None:
        """All of it."""
        deadline.left()
        await asyncio.get_running_loop().sock_sendall(self.sock, data)

    async def receive(self, max_bytes: int, deadline: Deadline) -> bytes:
        """Some; empty at the end."""
        self._reads += 1
        if self._reads % _READS == 0:
            await asyncio.sleep(0)
        deadline.left()
        return await asyncio.get_running_loop().sock_recv(self.sock, max_bytes)


class _Tls:
    """TLS over a wire."""

    def __init__(self, wire: _Wire, context: ssl.SSLContext, host: str) -> None:
        self._wire = wire
        self._coming, self._going = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.channel = context.wrap_bio(self._coming, self._going, server_hostname=host)

    @property
    def is_empty(self) -> bool:
        """Whether all that came was read."""
        return not self._coming.pending and not self.channel.pending()

    async def perform(self, step: Callable[[], T], deadline: Deadline) -> T:
        """Do one thing, with as much sending and receiving as it takes."""
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
                    await self._wire.send(going, deadline)
            if done:
                return result
            data = await self._wire.receive(READ_MOST, deadline)
            if data:
                self._coming.write(data)
            else:
                self._coming.write_eof()
