"""Connecting: the server as it is found at its address, with one kind of error for all that can be wrong with it."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Sequence
from typing import Any

from redis.exceptions import RedisError, ResponseError

from ..errors import LogUnavailable
from ..forking import after_fork
from ..remote.asks import Late
from .address import LogAddress
from .asking import WRONG_KIND, Ask
from .budget import Budget, TooMuch
from .log import LogTooLarge
from .nodes import ClusterNodes, Node, Nodes
from .wire import IS_CLUSTER, reason

OLDEST = (6, 2)
"""Of Redis; all Valkeys are younger."""
_FAILURES = (RedisError, OSError, ValueError, Late, TooMuch)
_EXHAUSTED = "exhausted the last possible ID"  # of a stream: nothing can be appended to it any more


class Server:
    """One server, or a cluster. Thread-safe; a forked child has connections of its own.

    Args:
        address: where, and as whom it is asked.
        context: for TLS.
    """

    def __init__(self, address: LogAddress, context: ssl.SSLContext | None) -> None:
        self._address = address
        self._context = context
        self._closed = False
        self._lock = threading.Lock()
        self._known: Nodes | None = None
        self._seed = self._first()
        after_fork(self, Server._renew)

    @property
    def opened(self) -> int:
        """Connections that were opened so far."""
        known = self._known
        return 0 if known is None else known.opened

    def spread(self, deadline: Budget) -> bool:
        """Whether it is a cluster.

        Raises:
            LogUnavailable: it cannot be asked.
        """
        try:
            return isinstance(self._nodes(deadline), ClusterNodes)
        except _FAILURES as error:
            raise self._unavailable(error) from None

    def ask(self, asks: Sequence[Ask], deadline: Budget, *, whole: bool = False) -> list[Any]:
        """Answers to commands, in their order, or `WRONG_KIND` in place of one.

        Args:
            asks: what is asked; those for one key are done in their order.
            deadline: for all of it.
            whole: in one step, unless it is a cluster.

        Raises:
            LogUnavailable: one of them has no answer. The others may have been done. Nothing that was sent is in it.
        """
        try:
            answers = self._nodes(deadline).ask(asks, deadline, whole=whole)
        except _FAILURES as error:
            raise self._unavailable(error) from None
        for number, answer in enumerate(answers):
            if isinstance(answer, RedisError):
                words = str(answer)
                if not words.startswith("WRONGTYPE") and _EXHAUSTED not in words:
                    raise self._unavailable(answer) from None
                answers[number] = WRONG_KIND
        return answers

    def close(self) -> None:
        """End all connections, also those that are in use."""
        self._closed = True
        with self._lock:
            known, seed = self._known, self._seed
        for nodes in (known, seed):
            if nodes is not None:
                nodes.close()

    def _nodes(self, deadline: Budget) -> Nodes:
        known = self._known
        if self._closed:
            raise LogUnavailable("the log was closed here")
        if known is not None:
            return known
        mode = self._mode(deadline)
        cluster = self._address.cluster
        with self._lock:
            if self._known is None:
                if mode == "cluster" if cluster is None else cluster:
                    self._known = ClusterNodes(self._seed, self._address, self._context)
                else:
                    self._known = self._seed
            return self._known

    def _mode(self, deadline: Budget) -> str:
        """Ask the server who it is.

        Raises:
            LogUnavailable: nobody who could keep a log.
        """
        (said,) = self._seed.ask([("", ("HELLO",))], deadline)
        if isinstance(said, ResponseError):
            if not str(said).lower().removeprefix("err ").startswith("unknown command"):
                raise said
            said = []
        told = dict(zip(said[::2], said[1::2], strict=False))
        version = told.get(b"version", b"").decode("ascii", "replace")
        numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdecimal())
        if told.get(b"server") != b"valkey" and numbers < OLDEST:
            raise LogUnavailable(
                f"the log's server has to be Valkey, or Redis 6.2 or later, and is {version or 'older'}"
            )
        mode: str = told.get(b"mode", b"").decode("ascii", "replace")
        if mode == "sentinel":
            raise LogUnavailable("the log's address is that of a sentinel, which keeps no logs")
        return mode

    def _unavailable(self, error: BaseException) -> LogUnavailable:
        if self._closed:
            return LogUnavailable("the log was closed here")
        if isinstance(error, TooMuch):
            return LogTooLarge("the log's server says too much at a time")
        words = "does not answer in time" if isinstance(error, Late) else reason(error)
        if words == IS_CLUSTER:  # it has become one, and is asked anew
            with self._lock:
                self._known = None
        return LogUnavailable(f"the log's server {words}")

    def _first(self) -> Node:
        return Node((self._address.host, self._address.port), self._address, self._context)

    def _renew(self) -> None:
        """In a forked child: the parent's connections are its own."""
        self._lock = threading.Lock()
        self._known = None
        self._seed = self._first()
