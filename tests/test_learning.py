"""What a pilot makes of answers that say nothing, and of messages that are none."""

from __future__ import annotations

import logging

import pytest

from contextpilot_rag import ContextPilot, Engine
from contextpilot_rag.testing import FakeEngine

TEXTS = ["Slices count from zero. " * 20, "A step may be negative. " * 20]
REPORT = {"usage": {"prompt_tokens": 250, "prompt_tokens_details": {"cached_tokens": 0}}}


@pytest.fixture
def following():
    with FakeEngine() as engine, ContextPilot(engines=[Engine(engine.base_url, "e")]) as pilot:
        yield engine, pilot


def test_answers_without_usage_are_answers(following):
    _, pilot = following
    for number in range(20):
        prompt = pilot.align([f"{number} " * 300], "?")
        assert pilot.observe(prompt, {"choices": []}) is None
    status = pilot.engines["e"]
    assert (status.requests, status.observed, status.outstanding_tokens) == (20, 0, 0)


async def test_so_they_are_where_they_are_awaited(following):
    _, pilot = following
    prompt = pilot.align(TEXTS, "?")
    assert pilot.engines["e"].outstanding_tokens > 0
    assert await pilot.aobserve(prompt, None) is None
    assert pilot.engines["e"].outstanding_tokens == 0


def test_an_index_that_fails_to_hear_of_an_answer_is_counted(monkeypatch):
    pilot = ContextPilot()
    prompt = pilot.align(TEXTS, "?")
    monkeypatch.setattr(pilot.index, "answered", lambda alignment: 1 / 0)
    assert pilot.observe(prompt, None) is None
    assert pilot.failures == 1


@pytest.mark.parametrize(
    "bad",
    ["hello", b"x", [1], 5, {"role": "user"}, [{"content": "x"}], [{"role": "user", "content": 5}], [None], [[]]],
)
@pytest.mark.parametrize("on_error", ["open", "raise"])
def test_messages_that_are_none_are_left_out_and_counted_once(following, bad, on_error, caplog):
    engine, _ = following
    given = Engine(engine.base_url, "e")
    with (
        caplog.at_level(logging.WARNING, "contextpilot_rag"),
        ContextPilot(engines=[given], on_error=on_error) as pilot,
    ):
        usage = pilot.observe(pilot.align(TEXTS, "?"), REPORT, messages=bad)
        assert usage is not None
        assert pilot.failures == 1
        assert pilot.engines.drained()
        assert pilot.engines["e"].outstanding_tokens == 0
    said = [record for record in caplog.records if "contextpilot" in record.name]
    assert len(said) == (on_error == "open")
    assert all("message" in record.getMessage() and record.exc_info is None for record in said)


def test_messages_may_be_any_iterable_of_them():
    with FakeEngine(events=True) as engine:
        given = Engine(engine.base_url, "e", engine.events_url, engine.replay_url)
        with ContextPilot(engines=[given]) as pilot:
            prompt = pilot.align(TEXTS, "?")
            sent = prompt.messages("Answer.")
            answer = engine.chat({"messages": sent})
            assert pilot.observe(prompt, answer, messages=(message for message in sent)) is not None
            assert pilot.failures == 0
            assert pilot.engines.drained()
