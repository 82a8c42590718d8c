"""Replica: this process's part in a log that several write and read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from msgspec import Struct

from ..index.fed import FedIndex
from ..index.records import IndexRecord
from ..types import Namespace
from .log import Log
from .sink import Sink
from .space import Names, Space
from .status import ReplicaStatus


@dataclass(frozen=True, slots=True)
class Pace:
    """How a replica works.

    Args:
        gather_seconds: records are sent together for so long while the log answers.
        alone_seconds: what waits for the log longer is taken in without it.
        most_pending: records that wait for the log, of all spaces; beyond, the oldest are not told any more.
        most_spaces: that are followed.
        compact_entries: a snapshot is written after so many entries,
        compact_seconds: or after so long, if there was one at all.
    """

    gather_seconds: float = 0.005
    alone_seconds: float = 30.0
    most_pending: int = 50_000
    most_spaces: int = 20_000
    compact_entries: int = 20_000
    compact_seconds: float = 60.0


class Replica:
    """Tells a log what was done here, and a sink what the log brings. Thread-safe; two threads of its own do the work.

    Args:
        log: the server.
        names: of spaces, and their signatures.
        sink: what is fed.
        pace: how.
    """

    def __init__(self, log: Log, names: Names, sink: Sink, pace: Pace | None = None) -> None:
        raise NotImplementedError

    def start(self) -> None:
        """Begin; a second call does nothing."""
        raise NotImplementedError

    def ready(self, seconds: float) -> bool:
        """Wait until all that the log has was read once, but not longer; False: it was not."""
        raise NotImplementedError

    def append(self, space: Space, record: Struct) -> str:
        """Tell the log; returns the record's name. Never waits, and works whether or not there is a log just now."""
        raise NotImplementedError

    def journal(self, pool: str, index: Callable[[], FedIndex]) -> PoolJournal:
        """What an index tells of what it does; it is only asked for once something is forgotten."""
        raise NotImplementedError

    def catch_up(self, seconds: float) -> bool:
        """Wait until what others told before now was taken in, but not longer; False: it may not have been."""
        raise NotImplementedError

    def spaces(self, pool: str) -> list[Space]:
        """Those of a pool that are followed."""
        raise NotImplementedError

    def status(self) -> ReplicaStatus:
        """How it stands."""
        raise NotImplementedError

    def close(self, seconds: float = 1.0) -> None:
        """Tell what waits, if the log takes it in so long, and end."""
        raise NotImplementedError


class PoolJournal:
    """The `Journal` of one pool."""

    def __init__(self, replica: Replica, pool: str, index: Callable[[], FedIndex]) -> None:
        self._replica = replica
        self._pool = pool
        self._index = index

    def append(self, space: Namespace, record: IndexRecord) -> str:
        """Tell the log of a namespace."""
        return self._replica.append(Space(self._pool, space), record)

    def forgot(self, namespace: Namespace | None) -> None:
        """Have it forgotten wherever the pool is known."""
        raise NotImplementedError

    def tell(self, space: Namespace, record: Any) -> str:  # noqa: ANN401
        """Tell the log something else of a namespace, which the sink understands."""
        return self._replica.append(Space(self._pool, space), record)
