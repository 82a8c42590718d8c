"""What the status page remembers: the last hour, the hottest prefixes, the engines. All of it bounded."""

from __future__ import annotations

import asyncio
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from contextpilot_rag.service.engine_table import OTHER, Engines
from contextpilot_rag.service.hot import Hot
from contextpilot_rag.service.hour import Hour, Row
from contextpilot_rag.service.summary import Summary
from contextpilot_rag.service.tally import Tally
from contextpilot_rag.types import Alignment, BlockRef, Namespace, Request


def summed(minutes):
    return asyncio.run(Summary.of(minutes))


class Clock:
    def __init__(self, now=0.0):
        self.now = now

    def __call__(self):
        return self.now


def row(model="", corpus=""):
    return Row("t", ("", model, corpus), None)


def alignment(first, tokens, namespace=None, blocks=1):
    refs = tuple(BlockRef(first if number == 0 else f"{first} {number}", tokens) for number in range(blocks))
    return Alignment(Request(refs, namespace or Namespace()), tuple(range(blocks)), blocks, tokens * blocks)


steps = st.lists(st.tuples(st.floats(0, 900), st.sampled_from("ab"), st.integers(0, 5), st.booleans()), max_size=60)


@given(steps)
def test_an_hour_is_its_last_sixty_minutes(steps):
    clock = Clock()
    hour = Hour(clock)
    done = []
    for wait, model, requests, rejected in steps:
        clock.now += wait
        minute = int(clock.now // 60)
        assert hour.turn() == (minute + 1) * 60
        if rejected:
            hour.rejected(model)
        else:
            hour.add(row(model=model), Tally(requests=requests, block_tokens=requests * 7))
        done.append((minute, model, requests, rejected))
    now = int(clock.now // 60)
    kept = [step for step in done if step[0] > now - 60]
    summary = summed(hour.minutes())
    assert summary.total.requests == sum(requests for *_, requests, rejected in kept if not rejected)
    assert summary.errors == Counter(model for _, model, _, rejected in kept if rejected)
    for model in "ab":
        known = summary.spaces.get(("t", ("", model, "")), Tally())
        assert known.block_tokens == sum(7 * step[2] for step in kept if step[1] == model and not step[3])
    by_minute = [0] * 60
    for minute, _, requests, rejected in kept:
        by_minute[59 - (now - minute)] += 0 if rejected else requests
    assert [tally.requests for tally in summary.minutes] == by_minute


def test_what_was_taken_of_the_hour_changes_no_more():
    hour = Hour(Clock())
    hour.add(row(), Tally(requests=1))
    taken = hour.minutes()
    hour.add(row(), Tally(requests=1))
    hour.rejected("malformed")
    summary = summed(taken)
    assert summary.total.requests == 1
    assert not summary.errors


def test_a_minute_has_so_many_rows_and_no_request_is_lost():
    hour = Hour(Clock())
    for number in range(5_000):
        hour.add(Row(f"t{number % 10}", ("", "", str(number)), None), Tally(requests=1))
    minutes = hour.minutes()
    assert len(minutes[0].rows) <= 201
    summary = summed(minutes)
    assert summary.total.requests == 5_000
    assert summary.spaces["", None].requests == 4_800


def test_one_tenants_many_namespaces_do_not_hide_anothers():
    hour = Hour(Clock())
    for number in range(5_000):
        hour.add(Row("greedy", ("", "", str(number)), f"e{number}"), Tally(requests=1))
    hour.add(Row("quiet", ("", "m", ""), "e"), Tally(requests=1))
    summary = summed(hour.minutes())
    assert summary.spaces["quiet", ("", "m", "")].requests == 1
    assert summary.engines["quiet", "e"].requests == 1
    assert summary.spaces["greedy", None].requests == 4_950
    assert len(summary.engines) == 51


def test_a_minute_long_ago_is_forgotten_even_if_nothing_came_since():
    clock = Clock()
    hour = Hour(clock)
    hour.add(row(), Tally(requests=1))
    clock.now += 59 * 60
    assert summed(hour.minutes()).total.requests == 1
    clock.now += 60
    assert summed(hour.minutes()).total.requests == 0


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 50)), max_size=200))
def test_few_prefixes_are_counted_exactly(requests):
    hot = Hot(Clock())
    tokens, times = Counter(), Counter()
    for first, weight in requests:
        hot.add("t", alignment(str(first), weight))
        tokens[str(first)] += weight
        times[str(first)] += 1
    found = hot.hottest(100)
    assert {prefix.block: prefix.tokens for prefix in found} == tokens
    assert {prefix.block: prefix.requests for prefix in found} == times
    assert [prefix.tokens for prefix in found] == sorted(tokens.values(), reverse=True)


def test_among_very_many_prefixes_the_hot_ones_are_found_and_none_gets_more_than_it_had():
    hot = Hot(Clock())
    tokens = Counter()
    for number in range(30_000):
        first = f"hot {number // 10 % 5}" if number % 10 == 0 else f"cold {number}"
        hot.add("t", alignment(first, 10))
        tokens[first] += 10
    assert all(len(span.heats) <= 256 for span in hot._spans)
    found = hot.hottest(5)
    assert {prefix.block for prefix in found} == {f"hot {number}" for number in range(5)}
    assert all(0.8 * tokens[prefix.block] <= prefix.tokens <= tokens[prefix.block] for prefix in hot.hottest(5))
    assert all(prefix.tokens <= tokens[prefix.block] for prefix in hot.hottest(300))


def test_prefixes_cool_down_within_the_hour():
    clock = Clock()
    hot = Hot(clock)
    hot.add("t", alignment("a", 10))
    clock.now += 30 * 60
    hot.add("t", alignment("a", 10))
    assert hot.hottest()[0].tokens == 20
    clock.now += 30 * 60
    assert hot.hottest()[0].tokens == 10
    clock.now += 60 * 60
    assert hot.hottest() == []


def test_what_saves_nothing_is_not_hot_and_hashes_are_shown_as_such():
    hot = Hot(Clock())
    hot.add("t", Alignment(Request((BlockRef("a", 5),)), (0,)))
    assert hot.hottest() == []
    hot.add("t", alignment(bytes(range(16)), 10, blocks=1))
    hot.add("t", alignment("doc", 10, blocks=3))
    assert [(prefix.block, prefix.hashed, prefix.blocks) for prefix in hot.hottest()] == [
        ("doc", False, 3),
        ("0001020304", True, 1),
    ]


def test_what_a_tenant_has_forgotten_is_shown_no_more():
    hot = Hot(Clock())
    for tenant in ("t", "u"):
        for corpus in ("x", "y"):
            hot.add(tenant, alignment("a", 10, Namespace(corpus=corpus, head="h")))
    hot.forget("t", Namespace(corpus="x"))
    assert {(prefix.tenant, prefix.namespace[2]) for prefix in hot.hottest()} == {("t", "y"), ("u", "x"), ("u", "y")}
    hot.forget("t", None)
    assert {prefix.tenant for prefix in hot.hottest()} == {"u"}


def test_an_engine_is_kept_in_step_by_reports_as_long_as_they_come():
    clock = Clock()
    engines = Engines()
    engines.add("t", "e", Tally(requests=1))
    engines.add("t", "e", Tally(not_reported=1))
    assert engines.of("t")["e"].level(clock.now) == "model"
    engines.add("t", "e", Tally(reports=1, reported_prompt=10), clock.now)
    assert engines.of("t")["e"].level(clock.now) == "usage"
    clock.now += 3_601
    assert engines.of("t")["e"].level(clock.now) == "model"


def test_engines_are_bounded_and_one_tenant_has_nothing_of_anothers():
    engines = Engines()
    for number in range(1_000):
        engines.add("greedy", f"e{number}", Tally(requests=1))
    known = engines.of("greedy")
    assert len(known) == 65
    assert known[OTHER].tally.requests == 1_000 - 64
    assert engines.of("quiet") == {}
    for tenant in range(400):
        for number in range(64):
            engines.add(f"t{tenant}", f"e{number}", Tally(requests=1))
    assert sum(len(engines.of(tenant)) for tenant in ["greedy", *map("t{}".format, range(400))]) <= 20_000
    assert engines.of("t399")
    assert not engines.of("greedy")
