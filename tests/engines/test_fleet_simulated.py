"""Fleets of simulated engines: what choosing well is worth, and that nobody is overrun or starved."""

from __future__ import annotations

from dataclasses import replace

import pytest

from contextpilot_rag.index.local import LocalIndex
from tests.engines.simulated import (
    AsRetrieved,
    Blind,
    Clock,
    Machine,
    OfFleet,
    fleet_of,
    run,
    topics,
)

pytestmark = pytest.mark.no_cover  # thousands of requests, which take twice as long where lines are counted
CAPACITY, RATE, ENGINES = 60_000, 8_000.0, 4  # tokens; tokens a second


def simulated(kind, requests, per_second, count=ENGINES, capacity=CAPACITY, rate=RATE, **options):
    clock = Clock()
    machines = [Machine(capacity, rate) for _ in range(count)]
    if kind == "fleet":
        router = OfFleet(*fleet_of(count, capacity, clock, **options))
    elif kind == "as retrieved":
        router = AsRetrieved(count)
    else:
        router = Blind(kind, [LocalIndex(capacity) for _ in range(count)])
    return run(router, machines, requests, clock, per_second)


@pytest.mark.parametrize("zipf", [0.7, 1.0])
def test_four_engines_are_nearly_as_good_as_one_with_four_times_the_cache(zipf):
    requests = list(topics(1_200, zipf=zipf))
    fleet = simulated("fleet", requests, per_second=12)
    one = simulated("fleet", requests, per_second=12, count=1, capacity=4 * CAPACITY, rate=4 * RATE)
    blind = [simulated(way, requests, per_second=12) for way in ("random", "turns")]
    assert fleet.hit_ratio > 0.92 * one.hit_ratio
    assert all(fleet.hit_ratio > 1.3 * other.hit_ratio for other in blind)
    assert all(fleet.ttft[0] < other.ttft[0] for other in blind)
    assert fleet.spread < 1.15


def test_under_a_heavy_load_it_is_the_queues_that_count():
    requests = list(topics(1_000))
    fleet, blind = (simulated(kind, requests, per_second=30) for kind in ("fleet", "turns"))
    assert fleet.ttft[1] < 0.5 * blind.ttft[1]
    assert fleet.spread < 1.15


def test_a_hot_topic_is_spread_when_queues_build():
    requests = list(topics(1_000, hot=0.8))
    busy, blind = (simulated(kind, requests, per_second=60) for kind in ("fleet", "turns"))
    assert max(machine.requests for machine in busy.machines) < 0.5 * len(requests)
    assert busy.spread < 1.25
    assert busy.hit_ratio > blind.hit_ratio
    assert busy.ttft[1] < blind.ttft[1]


def test_one_that_dies_and_comes_back_is_warmed_to_its_share_and_costs_the_others_nothing():
    requests = list(topics(3_000))
    clock = Clock()
    machines = [Machine(CAPACITY, RATE) for _ in range(ENGINES)]
    fleet, names = fleet_of(ENGINES, CAPACITY, clock)

    def die():
        machines[0].cache.clear()
        fleet.alive(names[0], False, "killed")

    outcome = run(
        OfFleet(fleet, names),
        machines,
        requests,
        clock,
        per_second=12,
        at={1_000: die, 1_300: lambda: fleet.alive(names[0], True)},
    )
    undisturbed = simulated("fleet", requests, per_second=12)
    assert not [place for place, _, _ in outcome.served[1_000:1_300] if place == 0]
    others = (1, 2, 3)
    assert outcome.part(1_300, 3_000, others)[0] > 0.97 * undisturbed.part(1_300, 3_000, others)[0]
    early, late = outcome.part(1_300, 1_400, others)[1], outcome.part(2_000, 3_000, others)[1]
    assert 0 < early[0] < 1.5 * sum(early) / ENGINES  # gradually
    assert late[0] > 0.75 * sum(late) / ENGINES
    assert max(late) < 1.25 * sum(late) / ENGINES
    everywhere = range(ENGINES)
    assert outcome.part(2_000, 3_000, everywhere)[0] > 0.95 * undisturbed.part(2_000, 3_000, everywhere)[0]


def test_one_that_joins_is_given_no_flood_and_then_its_share():
    requests = list(topics(2_500))
    clock = Clock()
    fleet, names = fleet_of(3, CAPACITY, clock)
    machines = [Machine(CAPACITY, RATE) for _ in range(4)]
    router = OfFleet(fleet, [*names, "new"])

    def join():
        fleet.add(replace(next(iter(fleet._members.values())).engine, url="http://new:8000", name="new"))

    outcome = run(router, machines, requests, clock, per_second=9, at={1_000: join})
    first = [place for place, _, _ in outcome.served[1_000:1_050]].count(3)
    assert 0 < first < 25
    work = outcome.part(1_500, 2_500, (0, 1, 2, 3))[1]
    assert work[3] > 0.7 * sum(work) / 4


@pytest.mark.parametrize(("per_second", "zipf"), [(6, 1.0), (22, 1.0), (12, 0.7)])
def test_with_a_router_that_draws_it_is_never_worse_than_as_retrieved(per_second, zipf):
    requests = list(topics(800, zipf=zipf))
    pool = simulated("fleet", requests, per_second, routing="external")
    plain = simulated("as retrieved", requests, per_second)
    assert pool.hit_ratio > 1.5 * plain.hit_ratio
    assert pool.ttft[0] < plain.ttft[0]


@pytest.mark.parametrize(("count", "capacity"), [(1, 15_000), (4, 8_000)])
def test_followed_by_events_it_knows_what_will_be_reported(count, capacity):
    """Though nobody says how large the caches are."""
    requests, clock = list(topics(600)), Clock()
    machines = [Machine(capacity, RATE) for _ in range(count)]
    fleet, names = fleet_of(count, None, clock)
    run(OfFleet(fleet, names, follow=True), machines, requests, clock, per_second=0.5)  # one by one
    prompt = max(sum(block.tokens for block in request.blocks) for request in requests)
    for status, machine in zip(fleet.engines(), machines, strict=True):
        assert status.kv_blocks == len(machine.cache.hashes)
        assert status.observed > 90
        assert status.calibration == pytest.approx(1, abs=0.02)
        assert status.tree_tokens < capacity + 2 * prompt
