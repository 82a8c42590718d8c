"""A relay for TCP connections, in an event loop in a thread of its own: what stands between a client and a server."""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
import threading
from collections.abc import Coroutine
from contextlib import suppress
from types import TracebackType
from typing import Any, TypeVar
from urllib.parse import urlsplit, urlunsplit

from tests.ports import free_port

from .guarded import SECONDS

T = TypeVar("T")
CHUNK = 65_536
HELD = 32  # chunks of one direction that wait in here; more wait with their sender
RESET = struct.pack("ii", 1, 0)  # SO_LINGER without patience: a close is a reset


class Relay:
    """Passes all that comes in at a free port on to a server, and its answers back.

    Args:
        target_port: The server's port.
        target_host: The server's address.
        host: The address to listen to.
        context: TLS as clients see it; none if not given.
    """

    scheme = "redis"

    def __init__(
        self,
        target_port: int,
        *,
        target_host: str = "127.0.0.1",
        host: str = "127.0.0.1",
        context: ssl.SSLContext | None = None,
    ) -> None:
        self.host = host
        self.port = 0
        self._target = (target_host, target_port)
        self._context = context
        self._later = 0.0
        self._pairs: dict[asyncio.Task[None], list[asyncio.StreamWriter]] = {}
        self._listening: socket.socket | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="relay", daemon=True)
        self._thread.start()
        try:
            self._do(self._open())
        except BaseException:
            self.close()
            raise

    @property
    def url(self) -> str:
        """Its address, without a user."""
        return f"{self.scheme}://{self.host}:{self.port}/0"

    def url_for(self, url: str) -> str:
        """The same user and database as in a server's address, by way of the relay."""
        parts = urlsplit(url)
        user, at, _ = parts.netloc.rpartition("@")
        return urlunsplit(parts._replace(scheme=self.scheme, netloc=f"{user}{at}{self.host}:{self.port}"))

    def drop(self) -> None:
        """Reset all connections, on both sides; new ones are as before."""
        self._do(self._drop())

    def close(self) -> None:
        """Reset all connections, and listen no more."""
        if self._loop.is_closed():
            return
        self._do(self._shut())
        self._do(self._drop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(SECONDS)
        self._loop.close()

    def __enter__(self) -> Any:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(SECONDS)

    async def _open(self) -> None:
        """Listen: the first time at any port, later at the same."""
        if not self.port:  # an event belongs to the loop that it is made in
            self._to, self._back = asyncio.Event(), asyncio.Event()
            self._to.set()
            self._back.set()
        for _ in range(50):
            port = self.port or free_port(self.host)
            with suppress(OSError):
                listening = socket.create_server((self.host, port))
                listening.setblocking(False)
                self.port = port
                self._listening = listening
                self._loop.add_reader(listening, self._accept, listening)
                return
            await asyncio.sleep(0.02)
        raise OSError(f"The relay found no free port{f': {self.port} is taken' if self.port else ''}.")

    async def _shut(self) -> None:
        if self._listening is not None:
            self._loop.remove_reader(self._listening)
            self._listening.close()
            self._listening = None

    async def _drop(self) -> None:
        pairs = dict(self._pairs)
        for task, writers in pairs.items():
            for writer in writers:
                reset(writer)
            task.cancel()
        await asyncio.gather(*pairs, return_exceptions=True)
        for _ in range(5):  # TLS and what is below it close one after the other
            await asyncio.sleep(0)

    def _accept(self, listening: socket.socket) -> None:
        try:
            accepted, _ = listening.accept()
        except OSError:  # whoever came has gone
            return
        with suppress(OSError):
            # The event loop does so itself for the sockets that it makes. Without, an answer in parts takes 40 ms.
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        writers: list[asyncio.StreamWriter] = []
        task = self._loop.create_task(self._carry(accepted, writers))
        self._pairs[task] = writers
        task.add_done_callback(lambda done: self._ended(done, accepted))

    def _ended(self, task: asyncio.Task[None], accepted: socket.socket) -> None:
        if not self._pairs.pop(task):  # it was ended before it was a stream, or had begun
            if task.cancelled():
                without_patience(accepted)
            accepted.close()

    async def _carry(self, accepted: socket.socket, writers: list[asyncio.StreamWriter]) -> None:
        """One connection, from its beginning to its end."""
        ways: list[asyncio.Task[None]] = []
        try:
            await self._to.wait()
            await self._back.wait()
            accepted.setblocking(False)
            questions, answering = await self._opened(accepted)
            writers.append(answering)
            answers, asking = await asyncio.open_connection(*self._target)
            writers.append(asking)
            ways.append(self._loop.create_task(self._pass(questions, asking, self._to)))
            ways.append(self._loop.create_task(self._pass(answers, answering, self._back)))
            await asyncio.gather(*ways)
        except OSError:  # a side is gone: so is the other
            pass
        finally:
            for way in ways:  # the other may wait for a way that is cut
                way.cancel()
            for one in writers:
                if not one.is_closing():  # a TLS transport that is closed twice knows its socket no more, for `reset`
                    one.close()
            for one in writers:
                with suppress(OSError):
                    await one.wait_closed()

    async def _opened(self, accepted: socket.socket) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection as streams. (A server of asyncio would keep those to itself that are shaking hands.)"""
        reader = asyncio.StreamReader()
        protocol = asyncio.StreamReaderProtocol(reader)
        transport, _ = await self._loop.connect_accepted_socket(lambda: protocol, accepted, ssl=self._context)
        return reader, asyncio.StreamWriter(transport, protocol, reader, self._loop)

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, way: asyncio.Event) -> None:
        """One direction: what is read waits for its time, and for the way to be free, and so does the end."""
        waiting: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(HELD)
        reading = self._loop.create_task(self._read(reader, waiting))
        try:
            while True:
                due, data = await waiting.get()
                await asyncio.sleep(max(0.0, due - self._loop.time()))
                await way.wait()
                if not data:
                    break
                writer.write(data)
                await writer.drain()
            if writer.can_write_eof():
                writer.write_eof()
            else:  # TLS ends both directions at once
                writer.close()
        finally:
            reading.cancel()

    async def _read(self, reader: asyncio.StreamReader, waiting: asyncio.Queue[tuple[float, bytes]]) -> None:
        data = b"."
        while data:
            try:
                data = await reader.read(CHUNK)
            except OSError:
                data = b""
            await waiting.put((self._loop.time() + self._later, data))


def reset(writer: asyncio.StreamWriter) -> None:
    """End a connection so that its other side hears of it at once, and loses what was on its way."""
    if (own := writer.get_extra_info("socket")) is not None:
        without_patience(own)
    writer.transport.abort()


def without_patience(own: socket.socket) -> None:
    """Make its close a reset."""
    with suppress(OSError):
        own.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
