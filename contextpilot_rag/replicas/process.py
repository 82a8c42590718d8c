"""ProcessReplica: the replica of an application's process, as long as it is wanted, and anew whenever it is again."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from msgspec import Struct

from ..forking import after_fork
from ..types import Namespace
from .log import Log
from .pace import Pace
from .pools import Pools
from .replica import Replica
from .sinks import Carried
from .space import Names, Space
from .status import ReplicaStatus

if TYPE_CHECKING:
    from .replicated import ReplicatedIndex

_LOOK_SECONDS = 0.002


class ProcessReplica:
    """This process's part in a log that several share, for all indexes that it feeds. Thread-safe.

    It works from `start` on, or from when an index of its has something to tell: so in a forked child, and after
    `close`. It ends when neither it nor an index of its is held by anybody.

    Args:
        open_log: makes a connection to the log's server, and returns without waiting for it.
        names: of spaces, and their signatures.
        pace: how it works.
    """

    def __init__(self, open_log: Callable[[], Log], names: Names, pace: Pace | None = None) -> None:
        self._open_log = open_log
        self._names = names
        self._pace = pace
        self._pools: Pools[ReplicatedIndex] = Pools()
        self._replica: Replica | None = self._made()  # now, so that a package that is missing is missed now
        self._lock = threading.Lock()  # for whoever begins or ends
        after_fork(self, ProcessReplica._renew_lock)

    def __repr__(self) -> str:
        status = self.status
        namespaces = f"{status.spaces} namespace{'' if status.spaces == 1 else 's'}"
        return f"<ProcessReplica: {'joined' if status.joined else 'alone'}, {namespaces}>"

    @property
    def status(self) -> ReplicaStatus:
        """How it stands to the log."""
        replica = self._replica
        return ReplicaStatus(why="closed") if replica is None else replica.status()

    @property
    def joined(self) -> bool:
        """Whether the others are heard, and hear this one."""
        replica = self._replica
        return replica is not None and replica.joined

    def start(self) -> None:
        """Begin, if it has not. Waits for nothing."""
        self._begun().start()

    def ready(self, seconds: float) -> bool:
        """Wait until all that the log has was read once, or it turns out that it is away; whether it was read.

        Nobody has to: until then, requests are aligned by what is known.
        """
        self.start()
        return self._begun().ready(seconds)

    def catch_up(self, seconds: float) -> bool:
        """Wait until what others told before now was taken in, but not longer; False: it may not have been."""
        return self._begun().catch_up(seconds)

    def drained(self, seconds: float) -> bool:
        """Wait until what was told here has come back, so that it stands in the log; False: not all of it, in so long.

        For tests and measurements, and before something is looked for elsewhere.
        """
        ends = time.monotonic() + seconds
        while self.status.pending:
            if time.monotonic() >= ends:
                return False
            time.sleep(_LOOK_SECONDS)
        return True

    def feed(self, pool: str, index: ReplicatedIndex) -> None:
        """Let an index have what is told of a pool, in the place of another if there is one. It is not kept alive."""
        self._pools.put(pool, index)
        replica = self._replica
        if replica is None:
            return
        if replica.spaces(pool):  # it has read them for an index that was here before
            self.close()
            self.start()
        else:
            replica.look_again()

    def carry(self, pool: str, sink: Carried) -> None:
        """Feed something else with what is told of a pool, until `close`."""
        self._begun().carry(pool, sink)

    def look_again(self) -> None:
        """What is carried follows something else than before."""
        self._begun().look_again()

    def append(self, space: Space, record: Struct) -> str:
        """Tell the log; returns the record's name. Waits for nothing."""
        return (self._replica or self._begun()).append(space, record)

    def forgot(self, pool: str, namespace: Namespace | None) -> None:
        """Have a namespace, or all that is known of a pool, forgotten in all processes."""
        self._begun().journal(pool, partial(self._pools.the, pool)).forgot(namespace)

    def close(self, seconds: float = 1.0) -> None:
        """Tell what waits, if the log takes it in so long, and end. Whoever goes on joins anew."""
        with self._lock:
            replica, self._replica = self._replica, None
        if replica is not None:
            replica.close(seconds)
            for index in self._pools.indexes():
                index.leave()

    def _begun(self) -> Replica:
        """The replica that works, or is to begin."""
        replica = self._replica
        if replica is not None:
            return replica
        with self._lock:
            replica = self._replica
            if replica is None:
                replica = self._made()
                replica.start()
                self._replica = replica
        return replica

    def _made(self) -> Replica:
        return Replica(self._open_log(), self._names, self._pools, self._pace)

    def _renew_lock(self) -> None:
        self._lock = threading.Lock()
