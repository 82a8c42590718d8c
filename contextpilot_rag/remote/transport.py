"""Transport: requests over connections that are kept, from threads and event loops, each by a deadline.

Connections wait in two stacks, one for threads and one for event loops; the one used last goes first. A stack is a
list whose methods are atomic, so there is no lock that a forked process could inherit locked.
"""

from __future__ import annotations

import asyncio
import ssl
import threading
import weakref
from contextlib import aclosing, suppress
from typing import Any, TypeVar

import anyio
import httpcore

from ..errors import IndexFailed
from .address import Address
from .asks import Ask, Deadline, Full, Late, Lost, Reply
from .async_line import AsyncLine
from .hint import scheme_hint
from .line import Line
from .lookup import Lookup
from .tracing import trace_headers

IDLE_SECONDS = 30.0

Pair = tuple[Line, httpcore.HTTP11Connection]
AsyncPair = tuple[AsyncLine, httpcore.AsyncHTTP11Connection]
PairT = TypeVar("PairT", Pair, AsyncPair)


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
        self._free = threading.Semaphore(connections)
        self._free_in: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, anyio.Semaphore] = (
            weakref.WeakKeyDictionary()
        )
        self._loops = threading.Lock()

    def send(self, ask: Ask) -> Reply:
        """Send a request and read the answer.

        Raises:
            Lost: no answer came, or not in time.
            IndexFailed: the answer is too long.
        """
        deadline = Deadline(ask.seconds)
        request = self._request(ask, deadline)
        if not self._free.acquire(timeout=ask.seconds):
            raise Full
        try:
            kept = _usable(self._idle)
            if kept is not None:
                try:
                    return self._exchange(kept, request, ask.most)
                except (OSError, httpcore.RemoteProtocolError) as error:
                    if kept[0].answered or isinstance(error, TimeoutError):
                        raise
                    # It was closed while nobody looked: that is no failure, and a new one is tried.
            line = Line.open(self._lookup.addresses(), deadline, self._context, self._address.host)
            made = httpcore.HTTP11Connection(self._origin, line, keepalive_expiry=IDLE_SECONDS)
            return self._exchange((line, made), request, ask.most)
        except TimeoutError as error:
            raise Late from error
        except (OSError, httpcore.ProtocolError) as error:
            raise Lost(_said(error) + scheme_hint(error, self._context is not None)) from error
        finally:
            self._free.release()

    async def asend(self, ask: Ask) -> Reply:
        """As `send`, awaited. Who is cancelled leaves nothing behind."""
        deadline = Deadline(ask.seconds)
        request = self._request(ask, deadline)
        free = self._gate()
        acquired = False
        try:
            with anyio.fail_after(ask.seconds):
                async with free:
                    acquired = True
                    return await self._asend(ask, request, deadline)
        except TimeoutError as error:
            raise (Late if acquired else Full) from error
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

    def _exchange(self, pair: Pair, request: httpcore.Request, most: int) -> Reply:
        line, connection = pair
        try:
            response = connection.handle_request(request)
            body = _Body(most)
            for part in response.iter_stream():
                body.add(part)
            response.close()
            return body.reply(response)
        finally:
            if connection.is_idle() and len(self._idle) < self._connections:
                self._idle.append(pair)
            else:
                line.close()

    async def _asend(self, ask: Ask, request: httpcore.Request, deadline: Deadline) -> Reply:
        kept = _usable(self._idle_async)
        if kept is not None:
            try:
                return await self._aexchange(kept, request, ask.most)
            except (OSError, httpcore.RemoteProtocolError):
                if kept[0].answered:
                    raise
        line = await AsyncLine.open(self._lookup.addresses(), deadline, self._context, self._address.host)
        made = httpcore.AsyncHTTP11Connection(self._origin, line, keepalive_expiry=IDLE_SECONDS)
        return await self._aexchange((line, made), request, ask.most)

    async def _aexchange(self, pair: AsyncPair, request: httpcore.Request, most: int) -> Reply:
        line, connection = pair
        try:
            response = await connection.handle_async_request(request)
            body = _Body(most)
            async with aclosing(response.stream.__aiter__()) as parts:  # type: ignore[union-attr, type-var]
                async for part in parts:
                    body.add(part)
            await response.aclose()
            return body.reply(response)
        finally:
            if connection.is_idle() and len(self._idle_async) < self._connections:
                self._idle_async.append(pair)
            else:
                line.close()

    def _gate(self) -> anyio.Semaphore:
        loop = asyncio.get_running_loop()
        with self._loops:
            free = self._free_in.get(loop)
            if free is None:
                free = self._free_in[loop] = anyio.Semaphore(self._connections)
            return free


class _Body:
    """An answer's body as it comes in."""

    def __init__(self, most: int) -> None:
        self._left = most
        self._most = most
        self._parts: list[bytes] = []

    def add(self, part: bytes) -> None:
        self._left -= len(part)
        if self._left < 0:
            raise IndexFailed(f"its answer is longer than {self._most:,} bytes")
        self._parts.append(part)

    def reply(self, response: httpcore.Response) -> Reply:
        return Reply(response.status, {name.lower(): value for name, value in response.headers}, b"".join(self._parts))


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
