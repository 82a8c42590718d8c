"""Replicas in one process: indexes and pilots that share a log in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from contextpilot_rag import ContextPilot
from contextpilot_rag.errors import LogUnavailable
from contextpilot_rag.replicas import redis_log
from contextpilot_rag.replicas.pace import Pace
from contextpilot_rag.replicas.process import ProcessReplica
from contextpilot_rag.replicas.replicated import ReplicatedIndex
from contextpilot_rag.replicas.space import Names
from tests.until import until

from .memory_log import MemoryLog

ADDRESS = "redis://in-memory.example"
QUICK = Pace(gather_seconds=0.001, listen_seconds=0.05, retry_seconds=0.02)


class Connection:
    """One replica's way to a log that several share."""

    def __init__(self, log: MemoryLog) -> None:
        self._log = log
        self.closed = False

    def __getattr__(self, name: str) -> Any:
        if self.closed:
            raise LogUnavailable("the log was closed here")
        return getattr(self._log, name)

    def close(self) -> None:
        self.closed = True


def replica_on(log: MemoryLog, secret: str = "shared", pace: Pace = QUICK) -> ProcessReplica:
    return ProcessReplica(lambda: Connection(log), Names(secret), pace)


def index_on(replica: ProcessReplica, pool: str = "pilot", **options: Any) -> ReplicatedIndex:
    index = ReplicatedIndex(replica, pool, **options)
    replica.start()
    return index


@contextmanager
def in_memory(monkeypatch: Any) -> Iterator[Callable[..., ContextPilot]]:
    """Pilots whose address is answered by a log in memory, ``made.log``; all are closed in the end."""
    log, made = MemoryLog(), []
    opened: list[Connection] = []

    def open_log(*_: object, **__: object) -> Connection:
        opened.append(Connection(log))
        return opened[-1]

    monkeypatch.setattr(redis_log, "open_log", open_log)

    def make(**options: Any) -> ContextPilot:
        pilot = ContextPilot(ADDRESS, **{"salt_secret": "shared", **options})
        made.append(pilot)
        return pilot

    make.log, make.opened = log, opened  # type: ignore[attr-defined]
    try:
        yield make
    finally:
        for pilot in made:
            pilot.close()


def settled(pilot: ContextPilot, seconds: float = 20.0) -> None:
    """Wait until all that a pilot told has come back."""
    replica = pilot.replica
    assert replica is not None
    assert replica.drained(seconds)


def in_step(*pilots: ContextPilot, seconds: float = 20.0) -> None:
    """Wait until all that was told by any of them is known by all."""
    for pilot in pilots:
        settled(pilot, seconds)
    for replica in [pilot.replica for pilot in pilots]:
        assert replica is not None
        until(partial(replica.catch_up, 1.0), seconds=seconds)
