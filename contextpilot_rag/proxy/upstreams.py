"""Upstreams: where requests go, which of them are alive, and the connections that are kept to each."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import os
import socket
import ssl
import time
from base64 import b64encode
from collections.abc import Callable, Sequence
from urllib.parse import unquote, urlsplit

from ..async_pilot import AsyncContextPilot
from ..engines.engine import Engine
from .line import Line, LineError
from .problems import Busy
from .rewriting import Cloud

_LOOK_SECONDS = 0.5  # how long what is known of engines is taken for true: to ask costs
_DEAD_SECONDS = 2.0  # how long one that could not be reached is left alone
_MOST_LOAD = 1.25  # of the mean, as for engines of a fleet
_PORTS = {"http": 80, "https": 443}
# What this machine lacks, and no upstream can help.
_OURS = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


class UnreachableError(LineError):
    """There is no connection to an upstream."""


class Upstream:
    """One upstream, and the connections to it. It belongs to one event loop.

    Args:
        engine: where it is.
        cloud: whose; Anthropic's takes keys in a header of its own.
        connect_seconds: for a connection.
        keepalive: seconds that one without a request is kept.
    """

    def __init__(self, engine: Engine, cloud: Cloud, connect_seconds: float, keepalive: float) -> None:
        parts = urlsplit(engine.url)
        tls = parts.scheme == "https"
        self.name = engine.name
        self.host = _authority(parts.hostname or "", parts.port, parts.scheme)
        self.root = _root(parts.path)
        self.key = _key(engine, cloud)
        self._place = parts.hostname or "", parts.port or _PORTS[parts.scheme]
        self._tls = ssl.create_default_context() if tls else None
        self._connect_seconds = connect_seconds
        self._keepalive = keepalive
        self._idle: dict[Line, None] = {}  # the one used last is last
        self._open: set[Line] = set()
        self._sweeping: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._open)

    @property
    def busy(self) -> int:
        """Requests that are on their way to it."""
        return len(self._open) - len(self._idle)

    def kept(self) -> Line | None:
        """A connection that was used before, the one used last; None: there is none."""
        while self._idle:
            line, _ = self._idle.popitem()
            if line.reusable and time.monotonic() - line.idle_since < self._keepalive:
                return line
            line.abort()
        return None

    async def connect(self) -> Line:
        """A new connection.

        Raises:
            Busy: this process may not have so many.
            UnreachableError: there is none to be had, or not in time.
        """
        try:
            line = await asyncio.wait_for(self._opened(), self._connect_seconds)
        except (TimeoutError, asyncio.TimeoutError):
            raise UnreachableError(f"no connection in {self._connect_seconds:g} seconds") from None
        except (OSError, ValueError) as error:  # ValueError: a host name that is none
            if isinstance(error, OSError) and error.errno in _OURS:
                raise Busy(f"the proxy can open no connection to an upstream: {_said(error)}") from None
            raise UnreachableError(_said(error)) from None
        self._open.add(line)
        if line.closed:
            self._open.discard(line)
        return line

    async def _opened(self) -> Line:
        loop = asyncio.get_running_loop()
        host, port = self._place
        name = host if self._tls is not None else None
        _, line = await loop.create_connection(
            lambda: Line(loop, self._ended), host, port, ssl=self._tls, server_hostname=name
        )
        return line

    def keep(self, line: Line) -> None:
        """A request is done: keep its connection, if another one can follow."""
        if not line.reusable:
            line.abort()
            return
        line.idle_since = time.monotonic()
        self._idle[line] = None
        if self._sweeping is None:
            self._sweeping = asyncio.get_running_loop().call_later(self._keepalive, self._sweep)

    def spare(self) -> bool:
        """End the kept connection that was not used for longest; whether there was one."""
        line = next(iter(self._idle), None)
        if line is None:
            return False
        self._ended(line)
        line.abort()
        return True

    def close(self) -> None:
        """End all connections, and what is on its way on them."""
        for line in list(self._open):
            line.abort()
        self._idle.clear()
        if self._sweeping is not None:
            self._sweeping.cancel()

    def _sweep(self) -> None:
        """End kept connections that were not used for so long."""
        self._sweeping = None
        left = 0.0
        while self._idle and left <= 0:
            left = next(iter(self._idle)).idle_since + self._keepalive - time.monotonic()
            if left <= 0:
                self.spare()
        if self._idle:
            self._sweeping = asyncio.get_running_loop().call_later(left, self._sweep)

    def _ended(self, line: Line) -> None:
        self._open.discard(line)
        self._idle.pop(line, None)


class Upstreams:
    """All upstreams. Belongs to one event loop.

    Args:
        engines: that requests go to; at least one.
        pilot: knows which of them are alive, as far as it follows them, and may choose; None: nobody does.
        connect_seconds: for a connection.
        answer_seconds: until one begins to answer, and between two parts of its answer.
        keepalive: seconds that a connection without a request is kept. Servers close theirs after 5 and more; a
            request on one that is just being closed has to be sent again.
        max_connections: to all of them together.
        cloud: whose they are.
        clock: seconds that never run backwards.
    """

    def __init__(
        self,
        engines: Sequence[Engine],
        pilot: AsyncContextPilot | None = None,
        *,
        connect_seconds: float = 5.0,
        answer_seconds: float = 600.0,
        keepalive: float = 3.0,
        max_connections: int = 4_000,
        cloud: Cloud = "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.answer_seconds = answer_seconds
        self.cloud: Cloud = cloud
        self._all = [Upstream(engine, cloud, connect_seconds, keepalive) for engine in engines]
        self._names = {one.name: one for one in self._all}
        self._pilot = pilot
        self._most = max_connections
        self._clock = clock
        self._failed: dict[str, float] = {}
        self._unwell: set[str] = set()
        self._alive = frozenset(self._names)
        self._looked = float("-inf")
        self._turn = 0
        self._connecting = 0

    @property
    def names(self) -> tuple[str, ...]:
        """What they are called."""
        return tuple(self._names)

    def alive(self) -> frozenset[str]:
        """The names of those that answer, as far as is known."""
        now = self._clock()
        if self._pilot is not None and now - self._looked >= _LOOK_SECONDS:
            self._looked = now
            known = {status.name: status.alive for status in self._pilot.engines}
            self._alive = frozenset(name for name in self._names if known.get(name, True))
        alive = self._alive - self._unwell if self._unwell else self._alive
        if not self._failed:
            return alive
        return frozenset(name for name in alive if now - self._failed.get(name, -_DEAD_SECONDS) >= _DEAD_SECONDS)

    def choose(self, engine: str | None, tokens: int, key: bytes = b"") -> list[Upstream]:
        """The order in which to try them for a request. Those that are not alive come last.

        Args:
            engine: where it should go; None: any.
            tokens: of its prompt, about.
            key: requests with equal ones go to the same, where nobody who knows more chooses; empty: to each in turn.
        """
        if len(self._all) == 1:
            return self._all
        alive = self.alive()
        if engine not in alive:
            engine = None if self._pilot is None else self._pilot.blocking.route(None, tokens)
        if key:
            order = self._bounded(key)
        else:
            self._turn += 1
            turn = self._turn % len(self._all)
            order = self._all[turn:] + self._all[:turn]
        return sorted(order, key=lambda one: (one.name not in alive, one.name != engine))

    def _bounded(self, key: bytes) -> list[Upstream]:
        """By rendezvous hashing, but none that has much more to do than the others: many requests may begin alike.

        Bounded loads: Mirrokni, Thorup and Zadimoghaddam, "Consistent Hashing with Bounded Loads" (2018).
        """
        most = _MOST_LOAD * (sum(one.busy for one in self._all) + 1) / len(self._all)
        order = sorted(self._all, key=lambda one: hashlib.blake2b(one.name.encode() + b"\0" + key).digest())
        return sorted(order, key=lambda one: one.busy >= most)

    async def connect(self, upstream: Upstream) -> Line:
        """A new connection to one of them.

        Raises:
            Busy: there are too many.
            UnreachableError: there is none to be had, or not in time; it is left alone for a while.
        """
        while sum(map(len, self._all)) + self._connecting >= self._most:
            if not any(one.spare() for one in self._all):
                raise Busy("the proxy has as many connections to its upstreams as it may (upstream_connections)")
        if upstream.name in self._failed:  # this request finds out whether it is back; others need not wait for that
            self.failed(upstream.name)
        self._connecting += 1
        try:
            line = await upstream.connect()
        except UnreachableError:
            self.failed(upstream.name)
            raise
        finally:
            self._connecting -= 1
        self._failed.pop(upstream.name, None)
        return line

    def failed(self, name: str) -> None:
        """One could not be reached: for a while the others are tried first."""
        self._failed[name] = self._clock()

    def told(self, name: str, *, well: bool) -> None:
        """Whether one is well, as it says itself."""
        if well:
            self._unwell.discard(name)
        else:
            self._unwell.add(name)

    def close(self) -> None:
        """End all connections."""
        for one in self._all:
            one.close()


def _root(path: str) -> bytes:
    """What stands before a request's own path; clients send the /v1 themselves."""
    return path.rstrip("/").removesuffix("/v1").rstrip("/").encode("ascii", "ignore")


def _key(engine: Engine, cloud: Cloud) -> tuple[bytes, bytes] | None:
    """The header that shows an engine's key, for clients that show none."""
    if engine.api_key:
        if cloud == "anthropic":
            return b"x-api-key", engine.api_key.encode()
        return b"authorization", b"Bearer " + engine.api_key.encode()
    parts = urlsplit(engine.url)
    if parts.username is None:
        return None
    pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return b"authorization", b"Basic " + b64encode(pair.encode())


def _said(error: OSError | ValueError) -> str:
    """Why, in words that name no address."""
    if isinstance(error, ssl.SSLError):
        return f"TLS: {error.reason or 'it failed'}"
    if isinstance(error, socket.gaierror):
        return "its host name is not known"
    if isinstance(error, OSError):
        return os.strerror(error.errno) if error.errno else "none of its addresses takes a connection"
    return "its host name is none"


def _authority(host: str, port: int | None, scheme: str) -> bytes:
    """Host and port, as a Host header has them."""
    name = f"[{host}]" if ":" in host else host if host.isascii() else host.encode("idna").decode()
    return (name if port in {None, _PORTS[scheme]} else f"{name}:{port}").encode("ascii")
