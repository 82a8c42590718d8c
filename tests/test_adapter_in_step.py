"""Adapter at an engine whose cache events are followed: prompts of frameworks are known there, too."""

from __future__ import annotations

import asyncio
import time

import pytest

from contextpilot_rag import ContextPilot, Engine
from contextpilot_rag.adapter import Adapter
from contextpilot_rag.testing import FakeEngine

VARIED = [f"{name} are what this text is about, at some length." * 8 for name in ("Slices", "Steps")]


@pytest.fixture
def followed():
    """A pilot that follows an engine's events, and the engine."""
    with FakeEngine(events=True, block_size=16) as engine:
        told = Engine(engine.base_url, name="fake", events=engine.events_url, replay=engine.replay_url)
        with ContextPilot(engines=[told]) as pilot:
            ends = time.monotonic() + 20
            while not (status(pilot).level == "events" and status(pilot).block_size):
                assert time.monotonic() < ends
                time.sleep(0.01)
            yield pilot, engine


def status(pilot):
    return next(iter(pilot.engines))


def covered(pilot):
    assert pilot.engines.drained()
    counts = pilot.engines.counts("fake")
    return counts.covered, counts.unlike, counts.unread, counts.dropped, counts.failed


@pytest.mark.parametrize("reports", [True, False])
@pytest.mark.parametrize("way", ["learn", "report", "areport"])
def test_a_prompt_that_somebody_else_assembled_is_looked_for_in_the_engines_cache(followed, way, reports):
    pilot, engine = followed
    adapter = Adapter(pilot)
    for given in (VARIED[:2], VARIED[1::-1]):
        prompt = adapter.arrange(given, "Why?")
        sent = "\n".join(["Read:", *(block.text for block in prompt.blocks), "Why?"])
        messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": sent}]
        answer = engine.chat({"messages": messages})
        if not reports:
            del answer["usage"]
        if way == "learn":
            usage = adapter.learn(f"Be brief.\n{sent}", answer, messages=messages)
        elif way == "report":
            usage = adapter.report(prompt, answer, messages)
        else:
            usage = asyncio.run(adapter.areport(prompt, answer, messages))
        assert (usage is not None) is reports
        assert pilot.engines.drained()
    assert covered(pilot) == (2, 0, 0, 0, 0)
    assert [block.text for block in prompt.blocks] == VARIED[:2]
    assert 0 < prompt.expected_cached_tokens <= engine.requests[-1].cached_tokens <= prompt.expected_cached_tokens + 16
    engine.reset()
    ends = time.monotonic() + 20
    while status(pilot).tree_blocks:
        assert time.monotonic() < ends
        time.sleep(0.01)
    assert [block.text for block in adapter.arrange(VARIED[1::-1], "Why?").blocks] == VARIED[1::-1]


def test_a_prompt_that_is_not_known_exactly_is_not_looked_for(followed):
    pilot, engine = followed
    adapter = Adapter(pilot)
    prompt = adapter.arrange(VARIED[:2], "Why?")
    prompt.messages()  # which is not what was sent
    answer = engine.chat({"messages": [{"role": "user", "content": f"{VARIED[0]}\n{VARIED[1]}\nWhy?"}]})
    assert adapter.learn(f"{VARIED[0]}\n{VARIED[1]}\nWhy?", answer).prompt_tokens > 0
    assert covered(pilot) == (0, 0, 0, 0, 0)
