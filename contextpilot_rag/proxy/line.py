"""Line: a connection to an upstream, and the one request and answer that are on their way on it.

A library would do this elsewhere, as one does for `RemoteIndex`. Here none fits: httpcore's pool looks at each of its
connections for each request, which with a thousand streams costs more than all else that a proxy does, and h11 below
it writes headers anew and refuses some that clients do send. The parser is still a library's, llhttp, as for requests;
ours is whose turn it is, what is waited for, and when a connection can be used again.
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import cast

import httptools

_HIGH = 256 * 2**10  # bytes of an answer that wait for its client before the upstream has to
_PIECE = 64  # bytes that the smallest piece of an answer takes while it waits
_MOST_BETWEEN = 256 * 2**10  # bytes of an answer without any of its body: heads, chunk extensions, trailers
_SWITCHING = 101


class LineError(Exception):
    """A request got no answer, or not all of it.

    Args:
        detail: why.
    """

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.detail = detail

    def again(self) -> LineError:
        """The same once more, for each who has to hear it.

        One that was raised holds on to all that it was raised through, and a line that kept it to all of its requests.
        """
        return type(self)(self.detail)


class LateError(LineError):
    """Nothing came in time."""


class LostError(LineError):
    """It was closed before any of an answer came."""


class Line(asyncio.Protocol):
    """An open connection.

    Args:
        loop: that it belongs to.
        ended: is told when it is closed.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, ended: Callable[[Line], None]) -> None:
        self._loop = loop
        self._ended = ended
        self._waiter: asyncio.Future[None] | None = None
        self._writer: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle
        self._paused_writing = self._paused_reading = False
        self._transport: asyncio.Transport | None = None
        self._error: LineError | None = None
        self.closed = False
        self.idle_since = 0.0
        self.asked = 0
        self._clear(headless=False, whole=True)

    def _clear(self, *, headless: bool, whole: bool) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._pieces: deque[bytes] = deque()
        self._waiting = 0  # bytes of the answer
        self._between = 0  # bytes since any of its body came
        self._headless = headless
        self._framed = self._keep = self._extra = False
        self._moved = self._loop.time()
        self.uploaded = whole
        self.status = 0
        self.headers: list[tuple[bytes, bytes]] = []
        self.heard = self.answering = self.complete = False

    def ask(self, data: bytes, *, method: bytes, whole: bool) -> None:
        """Begin a request.

        Args:
            data: its head, and as much of its body as is there.
            method: of it.
            whole: that is all; else `send` is called for the rest, and `uploaded` is set after the last of it.
        """
        self._clear(headless=method == b"HEAD", whole=whole)
        self.asked += 1
        self._write(data)

    async def send(self, data: bytes, seconds: float) -> None:
        """Send more of the body, as fast as the upstream takes it.

        Raises:
            LineError: the connection is closed, or nothing was taken for so long.
        """
        self._moved = self._loop.time()
        self._write(data)
        if not self._paused_writing or self._error is not None:
            return
        self._writer = self._loop.create_future()
        timer = self._loop.call_later(seconds, _expire, self._writer)
        try:
            await self._writer
        finally:
            timer.cancel()
            self._writer = None

    async def head(self, seconds: float) -> None:
        """Wait until `status` and `headers` are there.

        Args:
            seconds: since anything last moved.

        Raises:
            LineError: there will be none, or not in time.
        """
        while not self.answering:
            await self._wait(seconds)

    @property
    def ready(self) -> bool:
        """Whether `piece` returns at once."""
        return bool(self._pieces) or self.complete

    async def piece(self, seconds: float) -> tuple[bytes, bool]:
        """What has come of the answer's body, as soon as something has, and whether that was all of it.

        Raises:
            LineError: the rest will not come, or not in time.
        """
        while not self._pieces and not self.complete:
            await self._wait(seconds)
        part: bytes = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        self._pieces.clear()
        self._waiting = 0
        self._moved = self._loop.time()
        if self._paused_reading and self._transport is not None and not self.closed:
            self._paused_reading = False
            self._transport.resume_reading()
        return part, self.complete

    @property
    def reusable(self) -> bool:
        """Whether another request can follow: nothing is left of the last one."""
        usable = self.complete and self.uploaded and self._keep
        return usable and not self._extra and not self.closed and self._error is None

    def abort(self, error: LineError | None = None) -> None:
        """Close it at once, and have whoever waits for it hear why."""
        self._fail(error or LineError("the connection was given up"))
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It is open."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Some of an answer, or what nobody asked for."""
        self._moved = self._loop.time()
        self.heard = True
        if not self.asked or (self.complete and not self._pieces):
            self._extra = True
            self.abort()
            return
        self._between += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            if not self.complete:
                self.abort(self._error or LineError("it answered what is not HTTP"))
                return
            self._extra = True  # what follows the answer does not make it less whole
        if self._between > _MOST_BETWEEN and not self.complete:
            self.abort(_too_much())
            return
        self._wake()
        if self._waiting > _HIGH and not self._paused_reading and self._transport is not None and not self.closed:
            self._paused_reading = True
            self._transport.pause_reading()

    def eof_received(self) -> None:
        """It says no more, which ends an answer that has no other end."""
        if self.answering and not self._framed and self._error is None:
            self.complete = True
            self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        """It is closed."""
        self.closed = True
        if exc is not None and not self.complete and self._error is None:
            self._read_out()
        if not self.complete:
            self._fail((LineError if self.heard else LostError)("it closed the connection"))
        self._wake()
        self.resume_writing()
        del self._parser  # which holds on to this
        self._ended(self)

    def pause_writing(self) -> None:
        """The upstream takes no more for now."""
        self._paused_writing = True

    def resume_writing(self) -> None:
        """It does."""
        self._paused_writing = False
        self._moved = self._loop.time()
        if self._writer is not None and not self._writer.done():
            self._writer.set_result(None)

    def on_message_begin(self) -> None:
        """An answer begins."""
        if self.complete:
            self._extra = True

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header; those after the body are not forwarded."""
        if not self.answering:
            self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        """The answer's head is there; or one that says it is still to come."""
        if self.complete:
            return
        status = self._parser.get_status_code()
        if status < 200 and status != _SWITCHING:
            self.headers = []
            return
        if not 200 <= status <= 599:
            self._error = LineError(f"it answered with status {status}, which was not asked for")
            raise ValueError
        self.status = status
        if sum(len(name) + len(value) for name, value in self.headers) > _MOST_BETWEEN:
            self._error = _too_much()
            raise ValueError
        for name, value in self.headers:
            lower = name.lower()
            if lower == b"content-length":
                self._framed = True
            elif lower == b"transfer-encoding":
                self._framed = True
                if value.strip().lower() != b"chunked":
                    self._error = LineError("its answer has a Transfer-Encoding that is not chunked")
                    raise ValueError
        self._framed = self._framed or status in {204, 304}
        self.answering = True
        if self._headless:  # the parser would wait for its body
            self.complete = True

    def on_body(self, body: bytes) -> None:
        """Some of the answer's body."""
        self._between = 0
        if not self.complete:
            self._pieces.append(body)
            self._waiting += len(body) + _PIECE

    def on_message_complete(self) -> None:
        """The answer is complete."""
        if self.answering and not self.complete:
            self.complete = True
            self._keep = self._parser.should_keep_alive()

    def _read_out(self) -> None:
        """Read what it said before it closed.

        It may refuse a body and close while that is still being sent; what fails first then is to write, and transports
        read no further. Of what is encrypted nothing can be read any more.
        """
        assert self._transport is not None  # noqa: S101  it was open
        of = self._transport.get_extra_info("socket")
        if of is None or self._transport.get_extra_info("sslcontext") is not None:
            return
        with suppress(OSError, ValueError), socket.fromfd(of.fileno(), of.family, of.type) as left:
            left.setblocking(False)
            while not self.complete and self._error is None and (data := left.recv(65_536)):
                self.data_received(data)

    async def _wait(self, seconds: float) -> None:
        """Wait until something comes."""
        if self._error is not None:
            raise self._error.again()
        self._waiter = self._loop.create_future()
        self._timer = self._loop.call_at(self._moved + seconds, self._late, seconds)
        try:
            await self._waiter
        finally:
            self._timer.cancel()
            self._waiter = None

    def _late(self, seconds: float) -> None:
        left = self._moved + seconds - self._loop.time()
        if left > 0 or not self.uploaded:  # while a body is being sent, that has limits of its own
            self._timer = self._loop.call_later(left if left > 0 else seconds, self._late, seconds)
        elif self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(LateError(f"nothing came in {seconds:g} seconds"))

    def _write(self, data: bytes) -> None:
        if self._error is not None:
            raise self._error.again()
        if self.closed:
            raise LineError("it closed the connection")
        assert self._transport is not None  # noqa: S101  it is used once it is open
        self._transport.write(data)

    def _fail(self, error: LineError) -> None:
        if self._error is None:
            self._error = error
        self._wake()
        if self._writer is not None and not self._writer.done():
            self._writer.set_exception(self._error.again())

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


def _too_much() -> LineError:
    return LineError("too much of its answer is head, or no body")


def _expire(writer: asyncio.Future[None]) -> None:
    if not writer.done():
        writer.set_exception(LateError("it takes no more of the body"))
