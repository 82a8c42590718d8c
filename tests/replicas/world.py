"""A world of replicas without threads and without time: every step of each is taken by the test, with every fault."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from contextpilot_rag.errors import LogUnavailable
from contextpilot_rag.index.fed import FedIndex
from contextpilot_rag.index.shadow import Standing
from contextpilot_rag.index.state import HistoryPart, StatePart
from contextpilot_rag.replicas.log import Entry, News, Snapshot, Written
from contextpilot_rag.replicas.pace import Pace
from contextpilot_rag.replicas.pools import Pools
from contextpilot_rag.replicas.replica import Replica
from contextpilot_rag.replicas.space import Names, Space
from contextpilot_rag.types import BlockRef, Namespace, OrderBudget, Request

from .memory_log import MemoryLog

POOL = "pilot"
SECRET = "s3cret"
SPACES = (Namespace("t", "m", "one"), Namespace("t", "m", "two"), Namespace("u", "m", "one"))
NAMESPACES = (
    SPACES[0],
    Namespace("t", "m", "one", "head"),
    Namespace("t", "m", "one", "other"),
    SPACES[1],
    SPACES[2],
)
BUDGETS = (
    OrderBudget(),
    OrderBudget("throughput", 0.0),
    OrderBudget("retrieved"),
    OrderBudget("throughput", 0.0, 1, 3),
)
COMMON = tuple(BlockRef(bytes([number]) * 16, 40 + 15 * number) for number in range(8))
PACE = Pace(
    gather_seconds=0.0, listen_seconds=0.0, retry_seconds=0.0, most_pending=25, most_spaces=20, compact_entries=8
)


class Server(MemoryLog):
    """The log, which can go back to how it was some calls ago, as after a failover to a copy that lags behind."""

    def __init__(self, most_entries: int = 100_000) -> None:
        super().__init__(most_entries)
        self.before: list[dict[str, Any]] = []
        self.floating: list[list[Written]] = []  # appends on their way
        self.lost = 0  # how often something was

    def remember(self) -> None:
        """How it is now."""
        self.before.append(
            {name: copy.deepcopy(getattr(self, name)) for name in ("_streams", "_snapshots", "_rings", "_used")}
        )
        del self.before[:-12]

    def fail_over(self, calls: int, *, reuse: bool) -> None:
        """Forget what the last so many writing calls have done.

        Args:
            calls: so many.
            reuse: positions that were lost may be given again.
        """
        for _ in range(min(calls, len(self.before))):
            for name, value in self.before.pop().items():
                setattr(self, name, value)
        if not reuse:
            self._clock += 10
        else:
            rings = [ring[0] for ring in self._rings] + [
                entry.position for entries in self._streams.values() for entry in entries
            ]
            self._clock = max((int(one.split("-")[0]) for one in rings), default=1_000_000)
        self.lost += 1

    def forget_all(self, *, back: bool) -> None:
        """Start again without data."""
        self.before.clear()
        self.lose_everything(back=back)
        self.lost += 1

    def trim(self, stream: str, keep: int) -> None:
        """Drop all entries of a stream but so many."""
        entries = self._streams.get(stream, [])
        self._streams[stream] = entries[max(0, len(entries) - keep) :]


@dataclass
class Way:
    """One replica's way to the log (a `Log`), with faults of its own.

    Args:
        server: at the end of it.
        away: nothing arrives.
        full: what writes is refused.
        appends: "done"; "unknown": done, and the answer is lost; "held": on its way until it is released;
            "silent": done, without the bell, and not answered; "half": the first entry alone, and not answered;
            "swallowed": lost, and answered.
        broken: the next call of each kind finds its connection closed.
    """

    server: Server
    away: bool = False
    full: bool = False
    appends: str = "done"
    broken: set[str] = field(default_factory=set)

    def append(self, entries: Sequence[Written]) -> None:
        self._check("append", write=True)
        if self.appends == "held":
            self.server.floating.append(list(entries))
            raise LogUnavailable("no answer")
        if self.appends == "swallowed":
            return
        self.server.remember()
        if self.appends == "half":
            entries = entries[:1]
        if self.appends in {"silent", "half"}:
            for entry in entries:
                self.server._add(entry.stream, entry.mac, entry.data)
        else:
            self.server.append(entries)
        if self.appends != "done":
            raise LogUnavailable("no answer")

    def now(self) -> str:
        self._check("read")
        return self.server.now()

    def listen(self, position: str, seconds: float) -> News:
        self._check("listen")
        return self.server.listen(position, 0.0)

    def read(self, wanted: Mapping[str, tuple[str, bool]], most: int) -> dict[str, list[Entry]]:
        self._check("read")
        return self.server.read(wanted, most)

    def snapshot(self, stream: str) -> Snapshot | None:
        self._check("read")
        return self.server.snapshot(stream)

    def found(self, stream: str, snapshot: Snapshot, first: Written) -> bool:
        self._check("read", write=True)
        self.server.remember()
        done = self.server.found(stream, snapshot, first)
        self._answer()
        return done

    def standing(self, stream: str) -> str | None:
        self._check("read")
        return self.server.standing(stream)

    def compact(self, stream: str, snapshot: Snapshot, instead_of: bytes | None = None) -> bool:
        self._check("read", write=True)
        self.server.remember()
        done = self.server.compact(stream, snapshot, instead_of)
        self._answer()
        return done

    def streams(self, most: int) -> list[str]:
        self._check("read")
        return self.server.streams(most)

    def close(self) -> None:
        self.away = True

    def mend(self) -> None:
        """No faults from now on; that connections were closed is still to be found out."""
        self.away = self.full = False
        self.appends = "done"

    def _answer(self) -> None:
        if self.appends in {"unknown", "silent"}:
            raise LogUnavailable("no answer")

    def _check(self, kind: str, *, write: bool = False) -> None:
        if kind in self.broken:
            self.broken.discard(kind)
            raise LogUnavailable("the connection was closed")
        if self.away:
            raise LogUnavailable("away")
        if self.full and write:
            raise LogUnavailable("full")


@dataclass
class Forgotten:
    """Something forgotten here, by the number of its record."""

    space: Space
    number: int
    covered: dict[Namespace, set[bytes]]


class Member:
    """A replica whose threads do not run: `tell` and `read` are their steps."""

    def __init__(self, server: Server, clock: Any, settings: Mapping[str, Any], secret: str = SECRET) -> None:
        self.way = Way(server)
        self.pools: Pools[FedIndex] = Pools()
        self.replica = Replica(self.way, Names(secret), self.pools, PACE, clock)
        self.index = FedIndex(journal=self.replica.journal(POOL, lambda: self.index), **settings)
        self.pools.put(POOL, self.index)
        self.waiting: list[Any] = []  # alignments that were not answered yet
        self.marks: dict[Namespace, set[bytes]] = {namespace: set() for namespace in NAMESPACES}  # sent here
        self.forgets: list[Forgotten] = []

    @property
    def core(self) -> Any:
        return self.replica._core

    def tell(self) -> None:
        self.replica._teller.step(0.0)

    def read(self) -> None:
        self.replica._reader.step(0.0)

    def compact_soon(self) -> None:
        for stream in self.core.streams.values():
            if stream.loaded:
                stream.due = True
                self.core.active[stream.name] = stream

    def forget(self, namespace: Namespace | None, marks: Mapping[Namespace, set[bytes]]) -> None:
        """Forget, and take note of what must not be known from now on: what was sent or known here."""
        gone = {
            named: known
            for named in NAMESPACES
            if namespace in {None, named, replace(named, head="")}
            and (known := self.marks[named] | self.known(named, marks[named]))
        }
        outbox = self.core.outbox
        before = outbox._number
        self.index.forget(namespace)
        for space, box in outbox._boxes.items():
            for waiting in box:
                if waiting.number > before:
                    covered = {n: known for n, known in gone.items() if replace(n, head="") == space.namespace}
                    self.forgets.append(Forgotten(space, waiting.number, covered))

    def update_forgets(self) -> None:
        """What was given up was not told."""
        kept = []
        for one in self.forgets:
            stream = self.core.streams.get(one.space)
            back = stream is not None and stream.writers.get(self.core.writer, 0) >= one.number
            if back or self.waiting_for(one) is not None:
                kept.append(one)
        self.forgets = kept

    def waiting_for(self, one: Forgotten) -> Any:
        return next((w for w in self.core.outbox.of(one.space) if w.number == one.number), None)

    def log_lost(self) -> None:
        """What the log has taken may have been lost; what it has not is told yet."""
        self.forgets = [one for one in self.forgets if (w := self.waiting_for(one)) is not None and not w.sent]

    def must_not_know(self) -> Iterator[tuple[Namespace, set[bytes]]]:
        for one in self.forgets:
            yield from one.covered.items()

    def names_waiting(self, space: Namespace) -> set[str]:
        core = self.core
        of = Space(POOL, space)
        waiting = [w.number for w in core.outbox.of(of)] + [w.number for s, w in core.outbox.given_up if s == of]
        return {f"{core.writer}-{number}" for number in waiting}

    def at_rest(self) -> None:
        """All was told, and is back."""
        core = self.core
        assert not core.ailing
        assert not core.outbox.size
        assert not core.unread
        assert all(stream.loaded for stream in core.streams.values())
        assert not self.index._forgetting
        assert not self.index._early
        assert all(share.ahead is None for share in self.index._shares.values())

    def fork(self) -> None:
        """Be the child, as if the parent had gone."""
        self.forgets = []
        self.replica._renew()
        self.index._renew()
        self.pools._renew_lock()

    def dump(self, space: Namespace) -> bytes:
        """All but what tails have learnt, which is about requests that were decided here, too."""
        parts = list(self.pools.dump(Space(POOL, space)))
        return b"".join(part for part in parts if not isinstance(decoded(part), HistoryPart | Standing))

    def predict(self, namespace: Namespace, blocks: Sequence[BlockRef]) -> int:
        return self.index.predict(Request(tuple(blocks), namespace))

    def known(self, namespace: Namespace, marks: set[bytes]) -> set[bytes]:
        """Which of some blocks, each of which only ever stood first, are believed to be cached."""
        return {mark for mark in marks if self.predict(namespace, [BlockRef(mark, 50)])}


def decoded(part: bytes) -> StatePart:
    return msgspec.msgpack.decode(part, type=StatePart)


def stream_of(space: Namespace, secret: str = SECRET) -> str:
    return Names(secret).stream(Space(POOL, space))
