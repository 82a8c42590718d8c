"""Fleets in threads, and in forked children."""

from __future__ import annotations

import os
import random
import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from contextpilot_rag import BlockRef, Namespace, OrderBudget, Request, Usage
from contextpilot_rag.engines.engine import Engine, EngineFacts
from contextpilot_rag.engines.kv import Cleared, Removed
from tests.engines.fleets import NAMES, X, Y, Z, answered, covering, fleet_of, stored
from tests.index.conformance import A, B
from tests.index.invariants import check


@pytest.mark.parametrize("routing", ["pilot", "external"])
def test_threads_align_while_engines_die_join_leave_and_tell(routing):
    fleet = fleet_of(*NAMES, routing=routing, capacity=5_000)
    blocks = [BlockRef(number, 40 + number % 50) for number in range(60)]
    stop, steps = threading.Event(), 150

    def work(worker):
        numbers = random.Random(worker)
        for _ in range(steps):
            space = Namespace(tenant=str(numbers.randrange(3)), head=numbers.choice(["", "", "h"]))
            budget = OrderBudget(numbers.choice(["balanced", "throughput"]))
            request = Request(tuple(numbers.sample(blocks, 6)), space, budget)
            alignment = fleet.align(request)
            assert sorted(alignment.order) == list(range(6))
            assert (alignment.engine is None) == (routing == "external")
            what = numbers.random()
            if what < 0.1:
                fleet.failed(alignment)
            elif what < 0.9:
                fleet.observe(alignment, Usage(600, numbers.randrange(600)))
            if what > 0.7:
                tokens, found = covering(alignment)
                fleet.events(alignment.engine or "one", 0, [stored(tokens)])
                fleet.cover(alignment, None, found, None)
                if what > 0.95:
                    fleet.events(alignment.engine or "one", 0, [Removed(stored(tokens).hashes)])
            fleet.route(alignment.engine, 100)
        return True

    def disturb():
        numbers = random.Random(99)
        while not stop.is_set():
            name = numbers.choice(NAMES)
            fleet.alive(name, numbers.random() < 0.6)
            fleet.facts(name, EngineFacts("vllm", numbers.choice([None, 4_000, 6_000]), 16, 1, numbers.randrange(3)))
            fleet.level(name, numbers.choice(["model", "usage", "events"]))
            if numbers.random() < 0.2:
                fleet.lost(name, 0, "a gap")
            if numbers.random() < 0.2:
                fleet.add(Engine("http://four:8000", "four"))
                fleet.forget(Namespace(tenant="1"))
                fleet.remove("four")
            fleet.engines(), fleet.stats()

    with ThreadPoolExecutor(6) as pool:
        disturbing = pool.submit(disturb)
        try:
            assert all(pool.map(work, range(5)))
        finally:
            stop.set()
        disturbing.result(60)
    for lane in fleet._lanes():
        for share in lane.index._shares.values():
            check(share.tree)
    for name in NAMES:
        fleet.alive(name, True)
    assert all(status.outstanding_tokens >= 0 for status in fleet.engines())
    assert sum(status.outstanding_tokens for status in fleet.engines()) <= 5 * steps * 6 * 100
    assert fleet.align(Request((A, B))).engine in {None, *NAMES}


def test_counts_of_requests_are_kept_whatever_happens_to_engines():
    fleet = fleet_of(*NAMES)

    def work(worker):
        for step in range(100):
            fleet.observe(fleet.align(Request((BlockRef((worker, step), 10), A))), Usage(50, 0))

    with ThreadPoolExecutor(4) as pool:
        running = [pool.submit(work, worker) for worker in range(4)]
        for step in range(100):
            fleet.alive(NAMES[step % 3], step % 2 == 0)
        for one in running:
            one.result(60)
    stats = fleet.stats()
    assert (stats.requests, stats.observed) == (400, 400)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("which", ["_lock", "_changing", "dispatch", "lane"])
def test_a_forked_child_goes_on_without_the_parents_locks_and_loads(which):
    fleet = fleet_of("one", "two")
    answered(fleet, Request((A, B)))
    fleet.align(Request((X, Y)))
    locks = {"lane": fleet._members["one"].lane._lock, "dispatch": fleet._dispatch._lock}
    lock = locks.get(which) or getattr(fleet, which)
    taken, release = threading.Event(), threading.Event()

    def hold():
        with lock:
            taken.set()
            release.wait(60)

    thread = threading.Thread(target=hold)
    thread.start()
    taken.wait(60)
    try:
        child = os.fork()
        if child == 0:
            status = 1
            try:
                signal.alarm(5)
                idle = all(engine.outstanding_tokens == 0 for engine in fleet.engines())
                fleet.alive("two", False)
                fleet.events("one", 0, [Cleared()])
                fleet.forget(Namespace(tenant="nobody"))
                status = 0 if idle and fleet.align(Request((Z,))).engine == "one" else 2
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    finally:
        release.set()
        thread.join()
