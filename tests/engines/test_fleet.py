"""Fleet: one context index over several engines."""

from __future__ import annotations

import os
import random
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from contextpilot_rag import Alignment, BlockRef, LocalIndex, Namespace, OrderBudget, Request, Rule, Usage
from contextpilot_rag.engines.chain import chain, content
from contextpilot_rag.engines.covering import Covering
from contextpilot_rag.engines.engine import Engine, EngineFacts
from contextpilot_rag.engines.fleet import Fleet
from contextpilot_rag.engines.kv import Cleared, Removed, Stored
from contextpilot_rag.errors import SettingsError
from tests.index.conformance import A, B, C, IndexConformance
from tests.index.invariants import check

NAMES = ("one", "two", "three")
X, Y, Z = (BlockRef(key, 100) for key in "xyz")


def engines(*names, **settings):
    return [Engine(f"http://{name}:8000", name, **settings) for name in names]


def fleet_of(*names, clock=lambda: 0.0, routing="pilot", capacity=None, **settings):
    return Fleet(
        engines(*names, **settings), lambda engine: LocalIndex(capacity_tokens=capacity), routing=routing, clock=clock
    )


def answered(fleet, request, cached=None):
    alignment = fleet.align(request)
    fleet.observe(alignment, Usage(prompt_tokens=request.tokens + 30, cached_tokens=cached))
    return alignment


class TestOneEngine(IndexConformance):
    def make(self):
        return fleet_of("one")


class TestThreeEngines(IndexConformance):
    def make(self):
        return fleet_of(*NAMES)


class TestThreeEnginesWithAnotherRouter(IndexConformance):
    def make(self):
        return fleet_of(*NAMES, routing="external")


class TestNoEngines(IndexConformance):
    def make(self):
        return fleet_of()


class TestAllDead(IndexConformance):
    def make(self):
        fleet = fleet_of(*NAMES)
        for name in NAMES:
            fleet.alive(name, False)
        return fleet


def test_what_shares_a_prefix_goes_where_it_is_and_the_rest_is_spread():
    fleet = fleet_of(*NAMES)
    first = [answered(fleet, Request((BlockRef(number, 400), BlockRef(-number, 100)))) for number in range(1, 7)]
    assert sorted(alignment.engine for alignment in first) == sorted(NAMES * 2)
    for number in range(1, 7):
        again = answered(fleet, Request((BlockRef("new", 50), BlockRef(number, 400))))
        assert (again.engine, again.order) == (first[number - 1].engine, (1, 0))
        assert again.predicted_cached_tokens == 400


def test_with_another_router_no_engine_is_named_and_all_share_one_tree():
    fleet = fleet_of(*NAMES, routing="external")
    assert fleet.align(Request((A, B))).engine is None
    assert fleet.align(Request((B, A))).order == (1, 0)
    assert fleet.route(None, 100) is fleet.route("one", 100) is None


def test_without_engines_it_is_an_index_like_any_other():
    fleet = fleet_of()
    assert fleet.align(Request((A, B))).engine is None
    assert fleet.align(Request((B, A))).order == (1, 0)
    assert fleet.route("gone", 100) is None
    assert fleet.engines() == ()


def test_what_is_not_answered_yet_counts_as_a_queue_and_is_taken_back():
    now = [0.0]
    fleet = fleet_of("one", "two", clock=lambda: now[0])
    hot = (BlockRef("hot", 300),)
    home = answered(fleet, Request(hot)).engine
    waiting = []
    while True:  # each has 900 tokens to compute there
        waiting.append(fleet.align(Request((*hot, BlockRef(len(waiting), 900)))))
        if waiting[-1].engine != home:
            break
        assert len(waiting) < 10
    assert len(waiting) > 1
    busy = {status.name: status.outstanding_tokens for status in fleet.engines()}
    assert busy[home] == 900 * (len(waiting) - 1)
    for alignment in waiting:
        fleet.observe(alignment, Usage())
    assert [status.outstanding_tokens for status in fleet.engines()] == [0, 0]
    for number in range(5):
        fleet.align(Request((BlockRef((number, "never answered"), 700),)))
    assert sum(status.outstanding_tokens for status in fleet.engines()) == 3_500
    now[0] += 1_000
    fleet.align(Request((A,)))
    assert sum(status.outstanding_tokens for status in fleet.engines()) == 100


def test_equal_requests_on_their_way_are_taken_back_one_by_one():
    fleet = fleet_of("one")
    first, second = fleet.align(Request((A, B))), fleet.align(Request((A, B, C)))
    third = fleet.align(Request((B, A)))
    assert fleet.engines()[0].outstanding_tokens == 200 + 100
    fleet.observe(replace(third, engine=None), Usage())  # found without it, too
    fleet.observe(second, Usage())
    fleet.failed(first)
    fleet.observe(first, Usage())
    assert fleet.engines()[0].outstanding_tokens == 0


def test_what_failed_is_not_believed_cached_and_what_was_cached_before_is():
    fleet = fleet_of("one", "two")
    home = answered(fleet, Request((A, B))).engine
    longer = fleet.align(Request((A, B, X, Y)))
    assert (longer.engine, longer.cached_blocks) == (home, 2)
    fleet.failed(longer)
    assert fleet.predict(Request((A, B, X, Y))) == 200
    again = fleet.align(Request((B, A)))
    fleet.failed(again)  # all of it was cached
    assert fleet.predict(Request((A, B))) == 200
    assert all(status.outstanding_tokens == 0 for status in fleet.engines())


def test_what_failed_with_another_router_is_not_believed_cached():
    fleet = fleet_of(*NAMES, routing="external")
    fleet.failed(fleet.align(Request((A, B))))
    assert fleet.predict(Request((A, B))) == 0


def test_an_engine_that_dies_is_left_out_and_comes_back_cold():
    fleet = fleet_of("one", "two")
    homes = {number: answered(fleet, Request((BlockRef(number, 500),))).engine for number in range(8)}
    lost = [number for number, home in homes.items() if home == "one"]
    kept = [number for number, home in homes.items() if home == "two"]
    on_its_way = fleet.align(Request((BlockRef("way", 500), BlockRef(lost[0], 500))))
    fleet.alive("one", False, "it does not answer")
    fleet.alive("one", False, "it still does not")
    dead, living = fleet.engines()
    assert (dead.alive, dead.why, dead.tree_blocks, dead.outstanding_tokens) == (False, "it still does not", 0, 0)
    assert living.alive
    assert all(fleet.predict(Request((BlockRef(number, 500),))) == 0 for number in lost)
    assert all(fleet.predict(Request((BlockRef(number, 500),))) == 500 for number in kept)
    assert {fleet.align(Request((BlockRef(number, 500),))).engine for number in lost[:2]} == {"two"}
    fleet.observe(on_its_way, Usage(1_000, 0))
    fleet.alive("one", True)
    back = fleet.engines()[0]
    assert (back.alive, back.why, back.tree_blocks) == (True, "", 0)
    assert {answered(fleet, Request((BlockRef(number, 500),))).engine for number in kept} == {"two"}
    new = [answered(fleet, Request((BlockRef((number, "new"), 500),))).engine for number in range(12)]
    assert set(new) == {"one", "two"}


def test_what_was_believed_of_a_dead_engine_is_not_held_against_it_when_it_is_back():
    fleet = Fleet(engines("one"), lambda engine: LocalIndex(single=True))
    for _ in range(30):
        answered(fleet, Request((A, B)), cached=200)
    late = fleet.align(Request((A, B)))
    fleet.alive("one", False)
    fleet.alive("one", True)
    answered(fleet, Request((X, Y)), cached=0)
    fleet.observe(late, Usage(230, 0))  # it was aligned when all of it was believed cached
    assert fleet.predict(Request((X, Y))) == 200


def test_if_none_is_alive_all_are_tried():
    fleet = fleet_of("one", "two")
    for name in ("one", "two"):
        fleet.alive(name, False)
    assert fleet.align(Request((A, B))).engine in {"one", "two"}
    assert fleet.route("two", 10) == "two"


def test_engines_join_and_leave():
    fleet = fleet_of("one")
    for number in range(20):
        answered(fleet, Request((BlockRef(number, 500),)))
    fleet.add(Engine("http://two:8000", "two"))
    with pytest.raises(SettingsError, match="'two'"):
        fleet.add(Engine("http://other:8000", "two"))
    assert {answered(fleet, Request((BlockRef(number, 500),))).engine for number in range(20)} == {"one"}
    new = [answered(fleet, Request((BlockRef((number, "new"), 500),))).engine for number in range(40)]
    assert 10 <= new.count("two") <= 25
    counted = fleet.stats()
    assert counted.requests == counted.observed == 80
    on_its_way = fleet.align(Request((A, B)))
    fleet.remove("one")
    fleet.remove("one")
    fleet.observe(on_its_way, Usage(230, 0))
    assert [status.name for status in fleet.engines()] == ["two"]
    after = fleet.stats()
    assert (after.requests, after.observed) == (81, 81)
    assert after.tree_blocks < counted.tree_blocks
    assert fleet.align(Request((BlockRef(3, 500),))).engine == "two"
    fleet.remove("two")
    assert fleet.align(Request((A,))).engine is None
    assert fleet.stats().requests == 83


def test_two_engines_of_one_name_are_refused():
    with pytest.raises(SettingsError, match="'one'"):
        Fleet([*engines("one"), *engines("one")], lambda engine: LocalIndex())


def test_a_conversation_stays_where_it_is_as_long_as_that_lives():
    fleet = fleet_of("one", "two")
    for _ in range(5):
        assert fleet.route("two", 5_000) == "two"
    assert fleet.route(None, 100) == "one"  # the other one was given more
    fleet.alive("two", False)
    assert fleet.route("two", 100) == "one"
    assert fleet.route("never heard of", 100) == "one"


def test_requests_with_a_head_go_where_the_head_is():
    fleet = fleet_of(*NAMES)
    space = Namespace(tenant="acme", head="what was said before")
    home = answered(fleet, Request((A, B), space)).engine
    for number in range(6):
        assert answered(fleet, Request((BlockRef(number, 100),), space)).engine == home
    fleet.forget(Namespace(tenant="acme"))
    assert fleet.predict(Request((A, B), space)) == 0
    others = {answered(fleet, Request((BlockRef((number, "x"), 100),), space)).engine for number in range(1)}
    assert others != {home}  # it was given most


def test_a_head_that_all_share_is_no_hot_spot():
    fleet = fleet_of(*NAMES)
    space = Namespace(head="the system prompt")
    for number in range(60):
        fleet.align(Request((BlockRef(number, 1_000),), space))
    assert all(status.requests >= 10 for status in fleet.engines())


def test_the_size_of_the_cache_is_as_set_or_as_the_engine_says():
    sized = []

    class Index(LocalIndex):
        def resize(self, capacity_tokens, kv_block_tokens):
            sized.append((capacity_tokens, kv_block_tokens))

        def follow_usage(self, follow):
            sized.append(not follow)

    fleet = Fleet(engines("one", block_size=32), lambda engine: Index())
    fleet.facts("one", EngineFacts("vllm", 4_096, 16, running=2, waiting=1))
    fleet.facts("one", EngineFacts("vllm", 4_096, 16))
    fleet.level("one", "events")
    fleet.level("one", "events", "all is well")
    fleet.level("one", "usage", "no events")
    assert sized == [(None, 32), (4_096, 32), (8_192, 32), True, (4_096, 32), False]
    status = fleet.engines()[0]
    assert (status.kind, status.capacity_tokens, status.block_size) == ("vllm", 4_096, 32)
    assert (status.level, status.why) == ("usage", "no events")
    assert (fleet.block_size("one"), fleet.block_size("two")) == (32, None)


def test_one_tree_for_a_pool_is_as_large_as_all_that_live():
    sized = []

    class Index(LocalIndex):
        def resize(self, capacity_tokens, kv_block_tokens):
            sized.append((capacity_tokens, kv_block_tokens))

    fleet = Fleet(engines("one", "two"), lambda engine: Index(), routing="external")
    fleet.facts("one", EngineFacts("vllm", 4_000, 16))
    fleet.facts("two", EngineFacts("vllm", 6_000, 32))
    fleet.alive("one", False)
    fleet.alive("one", True)
    fleet.remove("two")
    assert sized == [(None, 16), (10_000, 32), (6_000, 32), (10_000, 32), (4_000, 16)]


def test_names_that_are_not_known_are_nobodys():
    fleet = fleet_of("one")
    fleet.alive("gone", True)
    fleet.facts("gone", EngineFacts())
    fleet.level("gone", "events")
    fleet.events("gone", 0, [Cleared()])
    fleet.lost("gone", 0, "it was restarted")
    stray = replace(fleet.align(Request((A, B))), engine="gone")
    fleet.observe(stray, Usage(1, 1))
    fleet.failed(stray)
    assert fleet.stats().observed == 1


def test_calibration_is_what_was_reported_over_what_was_expected():
    fleet = fleet_of("one")
    assert fleet.engines()[0].calibration is None
    alignment = fleet.align(Request((A, B)))
    fleet.observe(replace(alignment, expected_cached_tokens=None), Usage(230, 200))
    fleet.observe(replace(alignment, expected_cached_tokens=200), Usage(230, None))
    fleet.observe(replace(alignment, expected_cached_tokens=200), Usage(230, 150))
    status = fleet.engines()[0]
    assert (status.reported_cached_tokens, status.expected_cached_tokens, status.calibration) == (150, 200, 0.75)


def test_a_plan_begins_from_a_tree_only_where_there_is_one():
    request = Request((A, B))
    for fleet, known in ((fleet_of("one"), True), (fleet_of("one", "two"), False)):
        fleet.align(request)
        assert (fleet.tree(Namespace()) is not None) == known
    fleet.alive("two", False)
    fleet.align(request)
    assert fleet.tree(Namespace()) is not None


def test_what_a_plan_ordered_is_taken_as_sent_where_it_says():
    fleet = fleet_of("one", "two")
    fleet.sent(Alignment(Request((A, B, C)), (2, 0, 1), rule=Rule.PLANNED, engine="two"))
    assert fleet.engines()[1].tree_blocks == 3
    fleet.sent(Alignment(Request((A, B, C)), (2, 0, 1), rule=Rule.PLANNED))
    assert [status.tree_blocks for status in fleet.engines()] == [0, 3]


# --- cache events ---------------------------------------------------------------------------------------------------


def covering(alignment, size=16, head=20):
    """The prompt's KV blocks, if each block is as long as its tokens; the same tokens for the same block."""
    tokens, ends = list(range(head)), [head]
    for rank in alignment.order:
        block = alignment.request.blocks[rank]
        numbers = random.Random(str(block.key))
        tokens += [numbers.randrange(1 << 20) for _ in range(block.tokens)]
        ends.append(len(tokens))
    tokens += [1, 2, 3]
    contents = tuple(content(tokens[at : at + size]) for at in range(0, len(tokens) - size + 1, size))
    return tokens, Covering(chain(tokens, size), contents, tuple(ends), len(tokens), size)


def stored(tokens, size=16, first=0):
    """The events of a prompt that was computed from a KV block on; the engine calls each by its chained name."""
    names = [int.from_bytes(name[:8], "big") for name in chain(tokens, size)]
    tokens = tuple(tokens[first * size : len(names) * size])
    return Stored(tuple(names[first:]), names[first - 1] if first else None, tokens, size, ("",) * (len(names) - first))


def followed(*names, routing="pilot"):
    fleet = fleet_of(*names, routing=routing)
    for name in names:
        fleet.level(name, "events")
    return fleet


def test_events_move_the_tree_of_their_engine_alone():
    fleet = followed("one", "two")
    first, other = fleet.align(Request((A, B))), fleet.align(Request((X, Y)))
    assert (first.engine, other.engine) == ("one", "two")
    for alignment in (first, other):
        tokens, found = covering(alignment)
        fleet.events(alignment.engine, 0, [stored(tokens)])
        fleet.observe(alignment, Usage(found.tokens, 0))
        fleet.cover(alignment, None, found, 0)
    again = fleet.align(Request((B, A)))
    assert (again.engine, again.order, again.predicted_cached_tokens) == ("one", (1, 0), 200)
    assert again.expected_cached_tokens is not None
    assert 192 <= again.expected_cached_tokens <= 223
    event = stored(covering(first)[0])
    fleet.events("two", 0, [Removed(event.hashes[-1:])])  # the other one never had it
    assert fleet.predict(Request((A, B))) == 200
    fleet.events("one", 0, [Removed(event.hashes[-1:])])  # the last KV block is where B ends
    assert fleet.predict(Request((A, B))) == 100
    assert fleet.predict(Request((X, Y))) == 200
    fleet.events("one", 0, [stored(covering(first)[0], first=len(event.hashes) - 1)])
    assert fleet.predict(Request((A, B))) == 200
    fleet.events("one", 0, [Cleared()])
    assert fleet.predict(Request((A, B))) == 0
    assert fleet.predict(Request((X, Y))) == 200
    fleet.lost("two", 0, "it was restarted")
    assert fleet.predict(Request((X, Y))) == 0
    one, two = fleet.engines()
    assert (one.events, one.lost, two.events, two.lost, one.last_event) == (4, 0, 2, 1, 0.0)
    assert one.kv_blocks == two.kv_blocks == 0


def test_with_another_router_a_path_is_there_as_long_as_one_engine_has_it():
    fleet = followed("one", "two", routing="external")
    alignment = fleet.align(Request((A, B)))
    tokens, found = covering(alignment)
    for name in ("one", "two"):
        fleet.events(name, 0, [stored(tokens)])
    fleet.cover(alignment, None, found, None)
    fleet.events("one", 0, [Removed(stored(tokens).hashes)])
    assert fleet.predict(Request((A, B))) == 200
    fleet.alive("two", False)
    assert fleet.predict(Request((A, B))) == 0
    fleet.events("one", 0, [stored(tokens)])
    assert fleet.predict(Request((A, B))) == 200
    fleet.alive("one", False)
    assert fleet.predict(Request((A, B))) == 0


def test_an_engine_that_is_back_has_what_its_events_say():
    fleet = followed("one")
    alignment = fleet.align(Request((A, B)))
    tokens, found = covering(alignment)
    fleet.events("one", 0, [stored(tokens)])
    fleet.cover(alignment, None, found, 0)
    fleet.alive("one", False)
    fleet.alive("one", True)
    assert fleet.predict(Request((A, B))) == 0
    fleet.events("one", 0, [stored(tokens)])
    assert fleet.predict(Request((A, B))) == 200


def test_forgetting_a_tenant_outlasts_the_engines_events():
    fleet = followed("one")
    space = Namespace(tenant="acme", head="h")
    alignment = fleet.align(Request((A, B), space))
    tokens, found = covering(alignment)
    fleet.cover(alignment, None, found, 0)
    fleet.forget(Namespace(tenant="acme"))
    fleet.events("one", 0, [stored(tokens)])
    assert fleet.stats().namespaces == 0
    assert fleet.predict(Request((A, B), space)) == 0


# --- threads and forks ----------------------------------------------------------------------------------------------


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
@pytest.mark.parametrize("which", ["_lock", "_changing", "lane"])
def test_a_forked_child_goes_on_without_the_parents_locks_and_loads(which):
    fleet = fleet_of("one", "two")
    answered(fleet, Request((A, B)))
    fleet.align(Request((X, Y)))
    lock = fleet._members["one"].lane._lock if which == "lane" else getattr(fleet, which)
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
