"""A replica's threads: under load and faults from several sides, when they end, and what a fork leaves."""

from __future__ import annotations

import gc
import random
import threading
import time
import weakref

import pytest

from contextpilot_rag.replicas.pace import Pace
from contextpilot_rag.replicas.process import ProcessReplica
from contextpilot_rag.replicas.redis_log import open_log
from contextpilot_rag.replicas.replicated import ReplicatedIndex
from contextpilot_rag.replicas.space import Names
from contextpilot_rag.types import BlockRef, Namespace, OrderBudget, Request, Usage
from tests.until import until

from .link import Link
from .memory_log import MemoryLog
from .pilots import Connection

SPACES = (Namespace("t", "m", "a"), Namespace("t", "m", "b"), Namespace("u"))
BLOCKS = [BlockRef(f"block {number}", 40 + number) for number in range(20)]
QUICK = Pace(
    gather_seconds=0.001,
    listen_seconds=0.05,
    retry_seconds=0.02,
    alone_seconds=0.3,
    compact_entries=200,
    compact_seconds=0.5,
    most_pending=400,
)


class Replicas:
    """Some in this process, each with threads of its own and four that ask it."""

    def __init__(self, opens, number=3):
        self.replicas = [ProcessReplica(open_, Names("shared"), QUICK) for open_ in opens[:number]]
        self.indexes = [ReplicatedIndex(replica, "pilot", 2_000) for replica in self.replicas]
        for replica in self.replicas:
            replica.start()
        self.wrong = []
        self.asked = 0
        self._going = True
        self._threads = [
            threading.Thread(target=self._ask, args=(index, seed))
            for seed, index in enumerate(self.indexes)
            for _ in range(4)
        ]
        for thread in self._threads:
            thread.start()

    def _ask(self, index, seed):
        rand = random.Random(seed + threading.get_ident())
        waiting = []
        try:
            while self._going:
                namespace = rand.choice(SPACES)
                budget = OrderBudget(rand.choice(["balanced", "throughput"]))
                request = Request(tuple(rand.sample(BLOCKS, 6)), namespace, budget)
                alignment = index.align(request)
                assert sorted(alignment.order) == list(range(6))
                assert alignment.request.blocks == request.blocks
                waiting.append(alignment)
                for _ in range(rand.randrange(3)):
                    one = waiting.pop(rand.randrange(len(waiting))) if waiting else alignment
                    if rand.random() < 0.2:
                        index.failed(one)
                    else:
                        index.observe(one, Usage(one.request.tokens + 50, rand.choice([0, 100, None]), 20))
                if rand.random() < 0.01:
                    index.forget(namespace)
                self.asked += 1
                time.sleep(0.002)
        except BaseException as error:
            self.wrong.append(error)
            raise

    def stop(self):
        self._going = False
        for thread in self._threads:
            thread.join()

    def dumps(self):
        return [[self._tree(index, space) for space in SPACES] for index in self.indexes]

    @staticmethod
    def _tree(index, space):
        """All but what tails have learnt, for that is of requests that were decided here, too."""
        return [part for part in index.dump_space(space) if type(part).__name__ not in {"HistoryPart", "Standing"}]

    def alike(self):
        statuses = [replica.status for replica in self.replicas]
        if any(status.pending or not status.joined for status in statuses):
            return False
        first, *others = self.dumps()
        return all(other == first for other in others)

    def close(self):
        self.stop()
        for replica in self.replicas:
            replica.close()


def own_threads():
    return [thread for thread in threading.enumerate() if thread.name.startswith("contextpilot ")]


@pytest.fixture
def no_thread_stays():
    before = set(own_threads())
    yield
    assert not set(own_threads()) - before


def held_to_the_end(made, faults, seconds=3.0):
    """Faults come and go under load; after that all are alike, and nothing went wrong."""
    rand = random.Random(7)
    try:
        ends = time.monotonic() + seconds
        while time.monotonic() < ends:
            begin, end = rand.choice(faults)
            begin()
            time.sleep(rand.choice([0.02, 0.1, 0.5]))
            end()
            time.sleep(0.05)
        made.stop()
        until(made.alike)
        assert not made.wrong
        assert made.asked > 100
        for index in made.indexes:
            assert not index._forgetting
            assert not index._early
            assert all(share.ahead is None for share in index._shares.values())
    finally:
        made.close()


def test_threads_that_ask_while_a_log_in_memory_breaks_and_heals(no_thread_stays):
    log = MemoryLog()

    def set_to(**values):
        def change():
            for name, value in values.items():
                setattr(log, name, value)

        return change

    made = Replicas([lambda: Connection(log)] * 3)
    held_to_the_end(
        made,
        [
            (set_to(away=True), set_to(away=False)),
            (set_to(full=True), set_to(full=False)),
            (set_to(slow=0.03), set_to(slow=0.0)),
            (set_to(slow=0.1, timeout=0.05), set_to(slow=0.0, timeout=1.0)),
            (log.hold_appends, log.release),
            (log.hold_appends, lambda: log.release([])),
            (set_to(away=True), lambda: (log.lose_everything(), set_to(away=False)())),
        ],
    )


def test_threads_that_ask_while_a_real_log_breaks_and_heals(no_thread_stays, log_server):
    links = [Link(log_server.port) for _ in range(3)]
    try:
        made = Replicas([lambda link=link: open_log(link.url, timeout=0.3) for link in links])
        held_to_the_end(
            made,
            [
                (links[0].cut, links[0].heal),
                (lambda: links[1].cut(refuse=True), links[1].heal),
                (lambda: links[2].half("requests"), links[2].heal),
                (links[0].drop, lambda: None),
                (log_server.pause, log_server.resume),
                (log_server.kill, log_server.start),
            ],
            seconds=4.0,
        )
    finally:
        for link in links:
            link.close()


def test_a_replica_that_nobody_holds_ends_its_threads(no_thread_stays):
    before = set(own_threads())
    replica = ProcessReplica(lambda: Connection(MemoryLog()), Names("shared"), QUICK)
    index = ReplicatedIndex(replica, "pilot")
    replica.start()
    index.align(Request(tuple(BLOCKS[:3]), SPACES[0]))
    while replica.status.pending:
        time.sleep(0.005)
    assert len(set(own_threads()) - before) == 2
    gone = weakref.ref(replica)
    del replica, index
    gc.collect()
    assert gone() is None
    until(lambda: gc.collect() >= 0 and not set(own_threads()) - before)  # one of them may have held it just then


def test_close_tells_what_waits_and_ends_while_the_log_is_away(no_thread_stays):
    log = MemoryLog()
    one, other = (ProcessReplica(lambda: Connection(log), Names("shared"), QUICK) for _ in range(2))
    index, seen = ReplicatedIndex(one, "pilot"), ReplicatedIndex(other, "pilot")
    one.start()
    other.start()
    request = Request(tuple(BLOCKS[:3]), SPACES[0])
    index.align(request)
    one.close()
    until(lambda: seen.predict(request))
    log.away = True
    index.align(request)  # which begins anew
    one.close(0.2)
    other.close(0.2)
