"""What a fleet makes of engines that are gone, busy or silent, and of requests that fail or are answered late."""

from __future__ import annotations

from contextpilot_rag import BlockRef, LocalIndex, Request, Usage
from contextpilot_rag.engines.engine import EngineFacts
from contextpilot_rag.engines.fleet import Fleet
from tests.engines.fleets import NAMES, X, Y, answered, engines, fleet_of
from tests.index.conformance import A, B


def test_if_none_is_alive_requests_are_spread_all_the_same():
    fleet = fleet_of(*NAMES)
    for number in range(30):
        answered(fleet, Request((BlockRef(number, 500),)))
    for name in NAMES:
        fleet.alive(name, False, "nobody may ask")
    went = [fleet.align(Request((BlockRef((number, "new"), 500),))).engine for number in range(60)]
    assert all(went.count(name) >= 15 for name in NAMES)
    went = [fleet.route(None, 500) for _ in range(60)]
    assert all(went.count(name) >= 15 for name in NAMES)
    fleet.alive("two", True)
    assert {fleet.align(Request((BlockRef((number, "then"), 500),))).engine for number in range(9)} == {"two"}


def test_what_costs_no_prefill_is_spread_too():
    fleet = fleet_of(*NAMES)
    went = [answered(fleet, Request(())).engine for _ in range(60)]
    assert [went.count(name) for name in NAMES] == [20, 20, 20]
    went = [fleet.align(Request(())).engine for _ in range(60)]
    assert all(went.count(name) >= 15 for name in NAMES)
    fleet = fleet_of(*NAMES)
    hot = answered(fleet, Request((A,)))
    went = [fleet.align(Request((A,))).engine for _ in range(300)]  # not answered yet
    assert went[:3] == [hot.engine] * 3
    assert all(went.count(name) >= 60 for name in NAMES)


def test_long_answers_are_a_queue():
    fleet = fleet_of("one", "two")
    hot = Request((A,))
    home = fleet.align(hot)
    for _ in range(20):
        fleet.observe(fleet.align(hot), Usage(150, 100, 2_000))
    fleet.observe(home, Usage(150, 0, 2_000))
    went = [fleet.align(hot).engine for _ in range(4)]  # it is no use to wait for two answers to save 100 tokens
    assert set(went) == {"one", "two"}


def test_of_one_that_says_that_many_wait_there_a_request_stays_away():
    fleet = fleet_of("one", "two")
    home = answered(fleet, Request((A,))).engine
    for _ in range(20):
        fleet.align(Request((A,)))
    fleet.facts("one", EngineFacts(running=4, waiting=17 if home == "one" else 0))
    fleet.facts("two", EngineFacts(running=4, waiting=17 if home == "two" else 0))
    went = [fleet.align(Request((A,))).engine for _ in range(4)]
    assert home not in went


def test_answers_that_report_nothing_are_answers():
    fleet = fleet_of("one", "two")
    for number in range(20):
        fleet.answered(fleet.align(Request((BlockRef(number, 100),))))
    assert [(status.outstanding_tokens, status.observed) for status in fleet.engines()] == [(0, 0), (0, 0)]
    pool = fleet_of("one", "two", routing="external")
    pool.answered(pool.align(Request((A, B))))
    assert pool.stats().observed == 0


def test_a_late_answer_is_learnt_from_all_the_same():
    now = [0.0]
    fleet = Fleet(engines("one"), lambda engine: LocalIndex(single=True), clock=lambda: now[0])
    for cached in (0, 200, 200):
        answered(fleet, Request((A, B)), cached=cached)
    late = fleet.align(Request((A, B)))
    now[0] += 1_000
    answered(fleet, Request((X, Y)))  # by now it is no load any more
    fleet.observe(late, Usage(230, 0))
    assert fleet.stats().cold_prefixes == 1


def test_what_failed_takes_nothing_away_that_others_were_answered_about():
    fleet = fleet_of("one")
    slow = fleet.align(Request((A, B)))
    for number in range(20):
        answered(fleet, Request((A, B, BlockRef(number, 100))))
    fleet.failed(slow)
    assert fleet.engines()[0].tree_blocks == 22


def test_what_failed_when_its_engine_had_died_takes_nothing_of_the_new_tree():
    fleet = fleet_of("one")
    for number in range(9):
        answered(fleet, Request((BlockRef(number, 100),)))
    old = fleet.align(Request((A, B)))
    fleet.alive("one", False)
    fleet.alive("one", True)
    fleet.align(Request((A, B)))
    fleet.failed(old)
    assert fleet.predict(Request((A, B))) == 200
