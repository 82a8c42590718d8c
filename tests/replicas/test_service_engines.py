"""Replicas that follow one engine: each hears its events, and clients tell one of them where their prompts stand."""

from __future__ import annotations

import pytest

from contextpilot_rag.testing import FakeEngine
from tests.engines.hurrying import hurry
from tests.service.followed import BLOCKS, ask, client, in_step, line, settled, watch_of
from tests.service.harness import serving
from tests.until import until


@pytest.fixture(autouse=True)
def _hurry(monkeypatch):
    hurry(monkeypatch)


@pytest.fixture
def fake():
    with FakeEngine(events=True, block_size=16, capacity_blocks=60) as engine:
        yield engine


@pytest.fixture
def both(fake, log_server):
    given = {"engines": line(fake), "replicate": log_server.url, "salt_secret": "s"}
    with serving(**given) as first, serving(**given) as second:
        for service in (first, second):
            in_step(service)
        yield first, second


def tree(service):
    return service.hub.service.tenant("").stats().tree_blocks


def covered(service):
    return watch_of(service).figures().mirror.covered


def test_an_eviction_reaches_the_trees_of_all_replicas_whichever_was_told_of_the_prompt(fake, both):
    first, second = both
    with client(first, fake) as one, client(second, fake) as other:
        for count, names in enumerate(("AB", "CDE", "FGH", "DEC"), 1):
            question = f"What is {names}? " * 8  # longer than a KV block, so that each prompt has one of its own
            ask(one if count % 2 else other, fake, names, question)
            for service, pilot in zip(both, (one, other), strict=True):
                settled(service, pilot)
            until(lambda count=count: covered(first) == covered(second) == count, "what was told of a prompt")
        for service in both:
            settled(service)
            assert watch_of(service).figures().pruned > 0
            assert watch_of(service).figures().mirror.mismatched == 0
        assert tree(first) == tree(second)
        for pilot in (one, other):
            # Not sent: the other one would soon know of it.
            again = pilot.prepare([(name, BLOCKS[name]) for name in "AB"], "What is it?")
            assert pilot.predict(again) == 0, "evicted, and both know"
            assert pilot.failures == 0


def test_a_cleared_cache_clears_the_trees_of_all_replicas_and_is_nothing_to_be_forgotten(fake, both):
    first, second = both
    with client(first, fake) as pilot:
        ask(pilot, fake, "AB")
        until(lambda: tree(first) == tree(second) == 2)
        fake.reset()
        until(lambda: tree(first) == tree(second) == 0)
        assert [watch_of(service).figures().emptied for service in both] == [1, 1]
        ask(pilot, fake, "AB")
        until(lambda: tree(first) == tree(second) == 2)
