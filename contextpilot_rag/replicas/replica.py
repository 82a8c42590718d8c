"""Replica: this process's part in a log that several write and read."""

from __future__ import annotations

import logging
import threading
import time
import weakref
from collections.abc import Callable

from msgspec import Struct

from ..errors import LogUnavailable
from ..forking import after_fork
from ..index.fed import FedIndex
from ..index.records import Forgot, IndexRecord
from ..types import Namespace
from .core import Core
from .log import Log
from .pace import Pace
from .reading import Reader
from .sink import Sink
from .sinks import Carried, Sinks
from .space import Names, Space
from .status import ReplicaStatus
from .telling import Teller

logger = logging.getLogger("contextpilot_rag")


class Replica:
    """Tells a log what was done here, and a sink what the log brings. Thread-safe; two threads of its own do the work.

    They end with `close`, or when nobody holds the replica any more. A forked child's is another replica, which begins
    with what the parent knew.

    Args:
        log: the server.
        names: of spaces, and their signatures.
        sink: what is fed.
        pace: how.
        clock: seconds that never run backwards.
    """

    def __init__(
        self,
        log: Log,
        names: Names,
        sink: Sink,
        pace: Pace | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._log = log
        self._sinks = Sinks(sink)
        self._core = Core(log, names, self._sinks, pace or Pace(), clock)
        self._teller, self._reader = Teller(self._core), Reader(self._core)
        self._threads: list[threading.Thread] = []
        self._wanted = False
        self._starting = threading.Lock()
        after_fork(self, Replica._renew)

    def start(self) -> None:
        """Begin; a second call does nothing."""
        if self._threads or self._core.closing:
            return
        with self._starting:
            if self._threads or self._core.closing:
                return
            self._wanted = True
            for part in (self._teller, self._reader):
                thread = threading.Thread(
                    target=_work,
                    args=(weakref.ref(self), part, self._core),
                    name=f"contextpilot {type(part).__name__}",
                    daemon=True,
                )
                self._threads.append(thread)
                thread.start()

    def ready(self, seconds: float) -> bool:
        """Wait until all that the log has was read once, or it turns out that it is away; whether it was read."""
        core = self._core
        with core.news:
            core.news.wait_for(lambda: core.closing or core.read_once or core.ailing, seconds)
            return core.read_once

    def append(self, space: Space, record: Struct) -> str:
        """Tell the log; returns the record's name. Never waits, and works whether or not there is a log just now.

        Raises:
            TypeError, UnicodeEncodeError: the record is none that can be written.
        """
        if self._wanted and not self._threads:
            self.start()  # in a forked child
        return self._core.told(space, record)

    def journal(self, pool: str, index: Callable[[], FedIndex]) -> PoolJournal:
        """What an index tells of what it does; it is only asked for once something is forgotten."""
        return PoolJournal(self, pool, index)

    def catch_up(self, seconds: float) -> bool:
        """Wait until what others told before now was taken in, but not longer; False: it may not have been.

        Asks the log, so it may take as long as the log's time-out.
        """
        core = self._core
        if core.heard is None or core.closing:
            return False
        end = time.monotonic() + seconds
        try:
            position = self._log.now()
        except LogUnavailable:
            return False
        return core.wait_for(position, max(0.0, end - time.monotonic()))

    def carry(self, pool: str, sink: Carried) -> None:
        """Feed another sink with what is told of a pool, until the end. A forked child does not."""
        self._sinks.put(pool, sink)
        self.look_again()

    def look_again(self) -> None:
        """Look at all streams once more: what the sink follows has changed. `ready` waits until that is done."""
        self._core.look()

    def spaces(self, pool: str) -> list[Space]:
        """Those of a pool that are followed."""
        with self._core.lock:
            return [space for space in self._core.streams if space.pool == pool]

    @property
    def joined(self) -> bool:
        """Whether the others are heard, and hear this one."""
        return not self._core.ailing and self._core.heard is not None

    def status(self) -> ReplicaStatus:
        """How it stands."""
        return self._core.status()

    def close(self, seconds: float = 1.0) -> None:
        """Tell what waits, if the log takes it in so long, and end. What is told after that is not."""
        core = self._core
        end = time.monotonic() + seconds
        while self._threads and core.outbox.unsent and not core.ailing and time.monotonic() < end:
            core.work.set()
            time.sleep(0.005)
        core.close()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(max(0.0, end - time.monotonic()) + core.pace.listen_seconds + 1.0)
        self._log.close()
        for sink in self._sinks.drop():
            sink.close()

    def _renew(self) -> None:
        self._starting = threading.Lock()
        self._threads = []
        self._sinks.drop()
        self._core.renew()
        self._teller, self._reader = Teller(self._core), Reader(self._core)


def _work(reference: weakref.ref[Replica], part: Teller | Reader, core: Core) -> None:
    """Take one step after the other, as long as somebody holds the replica."""
    while True:
        replica = reference()
        if replica is None or core.closing:
            return
        del replica  # a step may take a while, and must not keep it
        try:
            rest = part.step(core.pace.listen_seconds)
        except Exception:
            logger.exception("replica: something went wrong; it is tried again")
            rest = core.pace.retry_seconds
        core.rest(rest)


class PoolJournal:
    """The `Journal` of one pool.

    Args:
        replica: of this process.
        pool: its name.
        index: that is told what is on its way to be forgotten.
    """

    def __init__(self, replica: Replica, pool: str, index: Callable[[], FedIndex]) -> None:
        self._replica = replica
        self._pool = pool
        self._index = index

    def append(self, space: Namespace, record: IndexRecord) -> str:
        """Tell the log of a namespace."""
        return self._replica.append(Space(self._pool, space), record)

    def tell(self, space: Namespace, record: Struct) -> str:
        """Tell the log something else of a namespace, which the sink understands."""
        return self._replica.append(Space(self._pool, space), record)

    def forgot(self, namespace: Namespace | None) -> None:
        """Have a namespace, or all that is known of the pool, forgotten."""
        if namespace is None:
            spaces, head = self._replica.spaces(self._pool), ""
        else:
            own = Namespace(namespace.tenant, namespace.model, namespace.corpus)
            spaces, head = [Space(self._pool, own)], namespace.head
        for space in spaces:
            name = self._replica.append(space, Forgot(head))
            self._index().forgetting(space.namespace, name, head)
