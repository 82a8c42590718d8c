"""Fleet: one context index over several engines."""

from __future__ import annotations

from dataclasses import replace

import pytest

from contextpilot_rag import Alignment, BlockRef, LocalIndex, Namespace, Request, Rule, Usage
from contextpilot_rag.engines.engine import Engine, EngineFacts
from contextpilot_rag.engines.fleet import Fleet
from contextpilot_rag.engines.kv import Cleared
from contextpilot_rag.errors import SettingsError
from tests.engines.fleets import NAMES, X, Y, answered, engines, fleet_of
from tests.index.conformance import A, B, C, IndexConformance


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


def test_one_engine_under_two_names_is_refused():
    fleet = fleet_of("one")
    for same in ("http://ONE:8000/v1/", "http://user@one:8000"):
        with pytest.raises(SettingsError, match="'one' and 'other' are the same"):
            fleet.add(Engine(same, "other"))
        with pytest.raises(SettingsError, match="are the same"):
            Fleet([*engines("one"), Engine(same, "other")], lambda engine: LocalIndex())
    fleet.add(Engine("http://one:8000", "another model's", model="m"))
    assert [status.name for status in fleet.engines()] == ["one", "another model's"]


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


@pytest.mark.parametrize("routing", ["pilot", "external"])
def test_what_was_set_stays_whatever_the_engine_says(routing):
    def make(_):
        return LocalIndex(capacity_tokens=5_000, kv_block_tokens=32)

    def known():
        terms = fleet._members["one"].lane.index.terms
        return terms.capacity_tokens, terms.kv_block_tokens

    fleet = Fleet(engines("one"), make, routing=routing)
    assert known() == (5_000, 32)
    fleet.facts("one", EngineFacts("vllm", 777, running=1, waiting=2))
    assert known() == (5_000, 32)
    fleet.facts("one", EngineFacts())  # it could not be asked for once
    assert known() == (5_000, 32)
    status = fleet.engines()[0]
    assert (status.kind, status.capacity_tokens, status.waiting) == ("vllm", 777, None)
    fleet.facts("one", EngineFacts("vllm", 888, 16))
    assert known() == (5_000, 16)
    fleet.level("one", "events")
    assert known() == (2 * 5_000, 16)
    fleet.facts("one", EngineFacts("sglang"))  # another one altogether
    assert known() == (2 * 5_000, 32)


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
    assert (status.reported_cached_tokens, status.reported_of_expected, status.expected_cached_tokens) == (
        350,
        150,
        200,
    )
    assert status.calibration == 0.75
    counts = fleet.stats()  # the same words mean the same
    assert (counts.reported_cached_tokens, counts.reported_of_expected, counts.predicted_of_reported) == (350, 150, 200)
    assert counts.calibration == 0.75


def test_a_plan_begins_from_a_tree_only_where_there_is_one(caplog):
    request = Request((A, B))
    for fleet, known in ((fleet_of("one"), True), (fleet_of("one", "two"), False)):
        fleet.align(request)
        for _ in range(3):
            assert (fleet.tree(Namespace()) is not None) == known
        said = [record for record in caplog.records if "contextpilot" in record.name]
        assert len(said) == (not known)  # once
    assert "one of 2 engines" in said[0].getMessage()
    fleet.alive("two", False)
    fleet.align(request)
    assert fleet.tree(Namespace()) is not None


def test_what_a_plan_ordered_is_taken_as_sent_where_it_says():
    fleet = fleet_of("one", "two")
    fleet.sent(Alignment(Request((A, B, C)), (2, 0, 1), rule=Rule.PLANNED, engine="two"))
    assert fleet.engines()[1].tree_blocks == 3
    fleet.sent(Alignment(Request((A, B, C)), (2, 0, 1), rule=Rule.PLANNED))
    assert [status.tree_blocks for status in fleet.engines()] == [0, 3]
