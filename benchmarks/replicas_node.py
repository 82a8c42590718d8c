"""A replica in a process of its own, as applications have them, which does what it is told on standard input.

    python benchmarks/replicas_node.py

Reads a `Begin`, then jobs, one JSON a line, and answers each with a line. Ends with its input.
"""

from __future__ import annotations

import gc
import hashlib
import random
import sys
import time
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby, islice
from pathlib import Path
from typing import Any

import msgspec

sys.path.insert(0, str(Path(__file__).resolve().parent))

from replicas_jobs import (
    REPORTED_AFTER,
    Align,
    Aligned,
    Began,
    Begin,
    Digest,
    Digested,
    Go,
    Job,
    Noted,
    Prepare,
    Prepared,
    Settle,
    Settled,
    Worked,
    jobs,
)
from service_traffic import Blocks, Traffic

from contextpilot_rag.index.local import LocalIndex
from contextpilot_rag.index.records import IndexRecord
from contextpilot_rag.index.state import TreePart, join
from contextpilot_rag.replicas.log import Log
from contextpilot_rag.replicas.pace import Pace
from contextpilot_rag.replicas.process import ProcessReplica
from contextpilot_rag.replicas.redis_log import open_log
from contextpilot_rag.replicas.replicated import ReplicatedIndex
from contextpilot_rag.replicas.space import Names, Space
from contextpilot_rag.types import Alignment, BlockRef, Namespace, OrderBudget, Request, Usage

_READY_SECONDS = 60.0
_MOST_WAITING = 10_000  # records, before requests that are not due at any time wait
_LOOK_EVERY = 64  # requests, whether so many wait
_PAUSE = 0.005


class Notes:
    """When records were told here, and when they arrived."""

    def __init__(self) -> None:
        self.told: list[tuple[str, float]] = []
        self.arrived: list[tuple[str, float]] = []

    def taken(self) -> Noted:
        """All of it, once."""
        told, self.told = self.told, []
        arrived, self.arrived = self.arrived, []
        by_writer: dict[str, list[tuple[int, float]]] = defaultdict(list)
        for name, at in arrived:
            writer, _, number = name.rpartition("-")
            by_writer[writer].append((int(number), at))
        writer = told[0][0].rpartition("-")[0] if told else ""
        return Noted(writer, [(int(name.rpartition("-")[2]), at) for name, at in told], dict(by_writer))


class WatchedReplica(ProcessReplica):
    """Notes when each record is told."""

    def __init__(self, notes: Notes, open_log: Callable[[], Log], names: Names, pace: Pace) -> None:
        super().__init__(open_log, names, pace)
        self._notes = notes

    def append(self, space: Space, record: IndexRecord) -> str:
        """Tell the log."""
        at = time.perf_counter()
        name = super().append(space, record)
        self._notes.told.append((name, at))
        return name


class WatchedIndex(ReplicatedIndex):
    """Notes when each record has been taken in."""

    def __init__(self, notes: Notes, *args: Any, **more: Any) -> None:  # noqa: ANN401
        super().__init__(*args, **more)
        self._notes = notes

    def apply(self, space: Namespace, name: str, record: IndexRecord, *, own: bool) -> None:
        """Take in a record."""
        super().apply(space, name, record, own=own)
        self._notes.arrived.append((name, time.perf_counter()))


class Member:
    """One replica with its indexes.

    Args:
        begin: what it is to be.
    """

    def __init__(self, begin: Begin) -> None:
        made = time.perf_counter()
        self._notes = Notes()
        names = Names(begin.secret)
        pace = msgspec.convert({**msgspec.to_builtins(Pace()), **begin.pace}, Pace, strict=False)
        opened = partial(open_log, begin.url)
        self.replica = (
            WatchedReplica(self._notes, opened, names, pace) if begin.watch else ProcessReplica(opened, names, pace)
        )
        make = partial(WatchedIndex, self._notes) if begin.watch else ReplicatedIndex
        self.indexes: dict[str, LocalIndex] = {
            pool: LocalIndex(capacity) if pool.startswith("local") else make(self.replica, pool, capacity)
            for pool, capacity in begin.pools.items()
        }
        self._prepared: tuple[Prepare, list[Request], list[float]] | None = None
        ready = self.replica.ready(_READY_SECONDS)
        self.began = Began(ready, time.perf_counter() - made)

    def do(self, job: Job) -> object:
        """A job's answer."""
        if isinstance(job, Align):
            blocks = tuple([BlockRef(key, tokens) for key, tokens in zip(job.keys, job.tokens, strict=True)])
            return Aligned(list(self.align(job.pool, Request(blocks, budget=OrderBudget(job.order))).order))
        if isinstance(job, Prepare):
            self._prepared = (job, prepared(job), due(job))
            gc.collect()
            if not gc.get_freeze_count():
                gc.freeze()  # the benchmark's own are not looked through; what is learned after them is, as anywhere
            return Prepared()
        if isinstance(job, Go):
            return self._work(job.begin)
        if isinstance(job, Settle):
            return self._settle(job.seconds)
        if isinstance(job, Digest):
            return self._digest(job.pool)
        return self._notes.taken()

    def align(self, pool: str, request: Request) -> Alignment:
        """Align one request."""
        return self.indexes[pool].align(request)

    def close(self) -> None:
        """End."""
        self.replica.close()

    def _work(self, begin: float) -> Worked:
        if self._prepared is None:
            raise RuntimeError("nothing is prepared")
        (job, requests, times), self._prepared = self._prepared, None
        index, replica, clock = self.indexes[job.pool], self.replica, time.perf_counter
        worked = Worked([], [], [], [])
        reports: deque[tuple[float, Alignment]] = deque()
        _sleep_until(begin)
        for number, request in enumerate(requests):
            if job.rate:
                _sleep_until(begin + times[number])
                worked.late.append(clock() - begin - times[number])
            elif number % _LOOK_EVERY == 0:
                while replica.status.pending > _MOST_WAITING:
                    time.sleep(_PAUSE)
            started = clock()
            alignment = index.align(request)
            ended = clock()
            worked.took.append(1e6 * (ended - started))
            worked.decided.append(ended)
            if job.orders:
                worked.orders.append(list(alignment.order))
                worked.joined.append(replica.status.joined)
            if job.reports:
                reports.append((ended + REPORTED_AFTER, alignment))
                while reports and reports[0][0] <= clock():
                    _report(index, reports.popleft()[1])
        for at, alignment in reports:
            _sleep_until(at)
            _report(index, alignment)
        return worked

    def _settle(self, seconds: float) -> Settled:
        began = time.perf_counter()
        while True:
            left = began + seconds - time.perf_counter()
            caught_up = self.replica.catch_up(max(0.0, left))
            status = self.replica.status
            settled = caught_up and not status.pending
            if settled or left <= 0:
                break
            time.sleep(_PAUSE)
        return Settled(
            time.perf_counter() - began,
            settled,
            status.joined,
            status.pending,
            status.appended,
            status.applied,
            sum(status.rejected.values()),
            sum(status.reloads.values()),
            status.founded,
            status.compacted,
            status.outages,
            status.dropped,
        )

    def _digest(self, pool: str) -> Digested:
        index = self.indexes[pool]
        if not isinstance(index, ReplicatedIndex):
            raise TypeError(f"{pool} follows no log")
        spaces = {replace(namespace, head="") for namespace in index.namespaces()}
        digest, size = hashlib.sha256(), 0
        for space in sorted(spaces, key=repr):
            # How a tree is cut into parts may differ between equal ones: as a whole it does not.
            for trees, parts in groupby(index.dump_space(space), lambda part: isinstance(part, TreePart)):
                for part in [join(part for part in parts if isinstance(part, TreePart))] if trees else parts:
                    data = msgspec.msgpack.encode(part)
                    size += len(data)
                    digest.update(data)
        return Digested(digest.hexdigest(), len(spaces), size)


def prepared(job: Prepare) -> list[Request]:
    """The requests of a job."""
    budget, numbers = OrderBudget(job.order), random.Random(job.seed)
    contexts: Sequence[Blocks]
    if job.contexts:
        known: dict[tuple[str, int], BlockRef] = {}
        listed = msgspec.json.decode(Path(job.contexts).read_bytes(), type=list[list[tuple[str, int]]])
        contexts = [[known.setdefault(block, BlockRef(*block)) for block in listed[number]] for number in job.numbers]
    else:
        contexts = list(islice(Traffic().new(job.seed), job.requests))
    spaces = [Namespace(f"tenant-{number}" if job.spaces > 1 else "") for number in range(job.spaces)]
    return [Request(tuple(context), numbers.choice(spaces), budget) for context in contexts]


def due(job: Prepare) -> list[float]:
    """When each request is, in seconds from the first moment: a Poisson process that has so many in its time."""
    numbers = random.Random(job.seed + 1)
    if not job.rate:
        return []
    seconds = job.requests / job.rate
    return sorted(numbers.uniform(0.0, seconds) for _ in range(job.requests))


def _report(index: LocalIndex, alignment: Alignment) -> None:
    """Usage as it was predicted."""
    index.observe(alignment, Usage(alignment.request.tokens, alignment.predicted_cached_tokens, 50))


def _sleep_until(at: float) -> None:
    left = at - time.perf_counter()
    if left > 0:
        time.sleep(left)


def main() -> None:
    """Do what standard input says."""
    lines = sys.stdin.buffer
    member = Member(msgspec.json.decode(lines.readline(), type=Begin))
    _say(member.began)
    for line in lines:
        _say(member.do(jobs.decode(line)))
    member.close()


def _say(answer: object) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(answer) + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
