"""Transport: requests over connections that are kept, from threads and event loops, each by a deadline.

Connections wait in two stacks, one for threads and one for event loops; the one used last goes first. A stack is a
list whose methods are atomic, so there is no lock that a forked process could inherit locked.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Callable
from contextlib import aclosing, suppress
from typing import Any, TypeVar

import anyio
import httpcore

from ..errors import IndexFailed, IndexRefused
from .address import Address
from .admission import Admission, LoopAdmissions
from .asks import Ask, Busy, Deadline, Full, Late, Lost, Reply
from .async_line import AsyncLine
from .hint import scheme_hint
from .line import Line
from .lookup import Lookup
from .told import Told
from .tracing import trace_headers

IDLE_SECONDS = 30.0
_HEAD = 131_072  # bytes that may come besides twice the body; httpcore takes no longer one either
_PARTS = 64  # of a body in a row, before others have their turn

Pair = tuple[Line, httpcore.HTTP11Connection]
AsyncPair = tuple[AsyncLine, httpcore.AsyncHTTP11Connection]
PairT = TypeVar("PairT", Pair, AsyncPair)
T = TypeVar("T")


class Transport:
    """The connections of one process. A forked one has to make its own.

    Args:
        address: where the service is.
        headers: that every request has.
        context: for https.
        connections: that are used at a time, by threads, and by each event loop.
    """

    def __init__(
        self,
        address: Address,
        headers: list[tuple[bytes, bytes]],
        context: ssl.SSLContext | None,
        connections: int,
    ) -> None:
        self._address = address
        self._headers = [(b"host", address.authority.encode("ascii")), *headers]
        self._context = context
        self._connections = connections
        self._lookup = Lookup(address.host, address.port)
        self._origin = httpcore.Origin(address.scheme.encode(), address.host.encode(), address.port)
        self._idle: list[Pair] = []
        self._idle_async: list[AsyncPair] = []
        self._heard = 0.0  # when an answer was last there
        self._admission = Admission(connections)
        self._loop_admissions = LoopAdmissions(connections)

    def send(self, ask: Ask, read: Callable[[Reply], T]) -> T:
        """Send a request, and read the answer.

        Args:
            ask: what.
            read: makes the result of the answer. A connection whose answer cannot be used is not used again.

        Raises:
            Lost: no answer came, or not in time.
            IndexFailed: the answer is too long, or cannot be used.
        """
        deadline = Deadline(ask.seconds)
        request = self._request(ask, deadline)
        try:
            with self._admission.asking(ask, deadline):
                return self._asked(ask, request, deadline, read)
        except (TimeoutError, Late) as error:
            raise self._missed(deadline) from error
        except (OSError, httpcore.ProtocolError) as error:
            raise Lost(_said(error) + scheme_hint(error, self._context is not None)) from error

    async def asend(self, ask: Ask, read: Callable[[Reply], T]) -> T:
        """As `send`, awaited. Who is cancelled leaves nothing behind."""
        deadline = Deadline(ask.seconds)
        request = self._request(ask, deadline)
        admission = self._loop_admissions.here()
        try:
            with anyio.fail_after(ask.seconds):
                async with admission.asking(ask):
                    return await self._aasked(ask, request, deadline, read)
        except (TimeoutError, Late) as error:
            raise self._missed(deadline) from error
        except (OSError, httpcore.ProtocolError) as error:
            raise Lost(_said(error) + scheme_hint(error, self._context is not None)) from error

    def close(self) -> None:
        """End the connections that wait for a request; a later one makes a new one."""
        for _ in range(len(self._idle)):
            _close_one(self._idle)
        for _ in range(len(self._idle_async)):
            _close_one(self._idle_async)

    def _request(self, ask: Ask, deadline: Deadline) -> httpcore.Request:
        headers = [*self._headers, *trace_headers()]
        if ask.body is not None:
            headers += [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(ask.body))]
        target = f"{self._address.path}{ask.path}".encode("ascii")
        url = httpcore.URL(scheme=self._origin.scheme, host=self._origin.host, port=self._origin.port, target=target)
        waits: dict[str, Any] = {"timeout": {"read": deadline, "write": deadline}}
        return httpcore.Request(ask.method, url, headers=headers, content=ask.body, extensions=waits)

    def _missed(self, deadline: Deadline) -> Lost:
        """Why a call was not in time. If a kept connection gave no sign of life, those kept longer are given up."""
        if deadline.turn is None:
            return Full()
        line = deadline.line
        if line is not None and line.unread:
            self._heard = time.monotonic()
        if deadline.waited or self._heard > deadline.began:
            return Busy()
        if line is not None and line.used is not None and not line.answered:
            _close_older(self._idle, deadline.began)
            _close_older(self._idle_async, deadline.began)
        return Late()

    def _asked(self, ask: Ask, request: httpcore.Request, deadline: Deadline, read: Callable[[Reply], T]) -> T:
        fresh = ask.fresh
        while True:
            pair = None if fresh else _usable(self._idle)
            if pair is None:
                with self._admission.connecting(deadline):
                    pair = None if fresh else _usable(self._idle)  # one may have come back meanwhile
                    pair = pair or self._made(deadline)
            try:
                return self._exchange(pair, ask, request, deadline, read)
            except (OSError, httpcore.RemoteProtocolError) as error:
                if not _was_closed(pair[0]) or isinstance(error, TimeoutError):
                    raise
                fresh = True

    def _made(self, deadline: Deadline) -> Pair:
        deadline.begin()
        line = Line.open(self._lookup.addresses(), deadline, self._context, self._address.host)
        return line, httpcore.HTTP11Connection(self._origin, line, keepalive_expiry=IDLE_SECONDS)

    def _exchange(
        self, pair: Pair, ask: Ask, request: httpcore.Request, deadline: Deadline, read: Callable[[Reply], T]
    ) -> T:
        line, connection = pair
        body = _Body(ask.most, deadline, line)
        try:
            response = connection.handle_request(request)
            for part in response.iter_stream():
                body.add(part)
            response.close()
            return body.result(response, read)
        finally:
            if body.of_use:
                self._heard = time.monotonic()
            if body.of_use and _in_step(pair) and len(self._idle) < self._connections:
                self._idle.append(pair)
            else:
                line.close()

    async def _aasked(self, ask: Ask, request: httpcore.Request, deadline: Deadline, read: Callable[[Reply], T]) -> T:
        fresh = ask.fresh
        while True:
            pair = None if fresh else _usable(self._idle_async)
            if pair is None:
                async with self._loop_admissions.here().connecting:
                    pair = None if fresh else _usable(self._idle_async)
                    pair = pair or await self._amade(deadline)
            try:
                return await self._aexchange(pair, ask, request, deadline, read)
            except (OSError, httpcore.RemoteProtocolError):
                if not _was_closed(pair[0]):
                    raise
                fresh = True

    async def _amade(self, deadline: Deadline) -> AsyncPair:
        deadline.begin()
        line = await AsyncLine.open(self._lookup.addresses(), deadline, self._context, self._address.host)
        return line, httpcore.AsyncHTTP11Connection(self._origin, line, keepalive_expiry=IDLE_SECONDS)

    async def _aexchange(
        self, pair: AsyncPair, ask: Ask, request: httpcore.Request, deadline: Deadline, read: Callable[[Reply], T]
    ) -> T:
        line, connection = pair
        body = _Body(ask.most, deadline, line)
        try:
            response = await connection.handle_async_request(request)
            async with aclosing(response.stream.__aiter__()) as parts:  # type: ignore[union-attr, type-var]
                async for part in parts:
                    if body.add(part):
                        await asyncio.sleep(0)
            await response.aclose()
            return body.result(response, read)
        finally:
            if body.of_use:
                self._heard = time.monotonic()
            if body.of_use and _in_step(pair) and len(self._idle_async) < self._connections:
                self._idle_async.append(pair)
            else:
                line.close()


class _Body:
    """An answer's body as it comes in over a connection."""

    def __init__(self, most: int, deadline: Deadline, line: Told) -> None:
        self._left = most
        self._most = most
        self._deadline = deadline
        self._line = line
        self._parts: list[bytes] = []
        self.of_use = False  # whether the answer was
        deadline.begin()
        deadline.line = line
        line.expect(2 * most + _HEAD)

    def add(self, part: bytes) -> bool:
        """Take a part in time; gives whether there were so many that others are to have their turn."""
        self._deadline.left()
        self._left -= len(part)
        if self._left < 0:
            raise IndexFailed(f"its answer is longer than {self._most:,} bytes")
        self._parts.append(part)
        return not len(self._parts) % _PARTS

    def result(self, response: httpcore.Response, read: Callable[[Reply], T]) -> T:
        """What is read in the whole of it. A refusal is of use, too."""
        headers = {name.lower(): value for name, value in response.headers}
        try:
            result = read(Reply(response.status, headers, b"".join(self._parts)))
        except IndexRefused:
            self.of_use = True
            raise
        else:
            self.of_use = True
            return result
        finally:
            self._line.used = time.monotonic()


def _in_step(pair: Pair | AsyncPair) -> bool:
    """Whether what comes next on a connection is the answer to what is asked next: nothing is left of the last one."""
    connection = pair[1]
    return connection.is_idle() and not connection._h11_state.trailing_data[0]  # noqa: SLF001  nobody else knows


def _was_closed(line: Told) -> bool:
    """Whether a kept connection was closed while nobody looked: that is no failure, and a new one is tried."""
    return line.used is not None and not line.answered


def _close_older(stack: list[PairT], moment: float) -> None:
    """End the connections that were last of use before a moment."""
    for pair in list(stack):
        if pair[0].used is not None and pair[0].used < moment:
            with suppress(ValueError):  # somebody else took it
                stack.remove(pair)
                pair[0].close()


def _usable(stack: list[PairT]) -> PairT | None:
    """The connection used last that can carry another request; those that cannot are closed."""
    while True:
        try:
            pair = stack.pop()
        except IndexError:
            return None
        if pair[0].usable and not pair[1].has_expired():
            return pair
        pair[0].close()


def _close_one(stack: list[PairT]) -> None:
    with suppress(IndexError):  # another thread was faster
        stack.pop()[0].close()


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
