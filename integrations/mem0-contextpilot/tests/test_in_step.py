"""Memories at an engine whose cache events are followed: what it has is known, and what it evicts is, too."""

from __future__ import annotations

import time
from contextlib import ExitStack

import pytest
from contextpilot_rag import ContextPilot, Engine
from contextpilot_rag.testing import FakeEngine
from openai import OpenAI

from mem0_contextpilot import ContextPilotMemory, order_hint
from tests.stage import LONG, Notes, reply

SOON = 20.0  # seconds; a bound, not a wait
A, B, C = LONG[:3]


def until(true):
    ends = time.monotonic() + SOON
    while not true():
        assert time.monotonic() < ends
        time.sleep(0.01)


def status(pilot):
    return next(iter(pilot.engines))


def counts(pilot):
    assert pilot.engines.drained()
    done = pilot.engines.counts("fake")
    return done.covered, done.unlike, done.unread, done.dropped, done.failed


@pytest.fixture
def engine():
    with FakeEngine(events=True, block_size=16, capacity_blocks=150) as engine:
        yield engine


@pytest.fixture
def pilot(engine):
    followed = Engine(engine.base_url, name="fake", events=engine.events_url, replay=engine.replay_url)
    with ContextPilot(engines=[followed]) as pilot:
        until(lambda: status(pilot).level == "events" and status(pilot).block_size == 16)
        yield pilot


def sending(client, messages, body=None, **options):
    return client.chat.completions.create(
        model="fake-engine", messages=messages, max_tokens=4, extra_body=body, **options
    )


@pytest.mark.parametrize("way", ["requests", "first turns", "own prompts", "search"])
def test_the_tree_is_what_the_engine_has(engine, client, pilot, way):
    memory = ContextPilotMemory(Notes(reply(A, B), reply(B, A), reply(B, C, A), reply(B, A)), pilot)
    body = memory.extra_body(user_id="alice")
    for number, question in enumerate(("One?", "Two?", "Three?")):
        if way == "search":
            results = memory.search(question, user_id="alice")["results"]
            lines = "\n".join(f"[{place}] {one['memory']}" for place, one in enumerate(results, start=1))
            messages = [{"role": "user", "content": f"{lines}\n\n{order_hint(results)}\n\n{question}"}]
            memory.learn(messages, sending(client, messages, body))
        else:
            talk = number if way == "first turns" else None
            context = memory.context(question, user_id="alice", conversation=talk, system="Be brief.")
            messages = context.messages()
            if way == "own prompts":
                messages = [{"role": "user", "content": f"{context.text}\n\nNow: {question}"}]
                context.answer(sending(client, messages, body), messages)
            else:
                context.answer(sending(client, messages, context.extra_body))
        assert pilot.engines.drained()
    assert counts(pilot) == (3, 0, 0, 0, 0)
    now = status(pilot)
    # What follows the last document and is the same for all fills no more than one KV block of 16 tokens.
    assert 0 < now.expected_cached_tokens <= now.reported_cached_tokens <= now.expected_cached_tokens + 2 * 16
    assert now.tree_blocks == 3

    for number in range(6):  # somebody else's, who needs the room
        engine.chat({"messages": [{"role": "user", "content": f"{number} is another thing. " * 80}]})
    until(lambda: pilot.engines.drained() and status(pilot).tree_blocks == 0)
    assert memory.context("Four?", user_id="alice").blocks[0].text == B


def test_the_text_of_a_prompt_is_not_enough_to_follow_it(client, pilot):
    memory = ContextPilotMemory(Notes(reply(A, B)), pilot)
    memory.search("One?", user_id="alice")
    messages = [{"role": "user", "content": f"{A}\n{B}\nOne?"}]
    assert memory.learn(messages[0]["content"], sending(client, messages)).prompt_tokens > 0
    assert counts(pilot) == (0, 0, 0, 0, 0)


def test_a_stream_whose_answer_is_a_text_is_followed_once(client, pilot):
    memory = ContextPilotMemory(Notes(reply(A, B)), pilot)
    context = memory.context("One?", user_id="alice", conversation="evening")
    stream = sending(
        client, context.messages(), context.extra_body, stream=True, stream_options={"include_usage": True}
    )
    text = ""
    for chunk in stream:
        text += (chunk.choices[0].delta.content or "") if chunk.choices else ""
    context.observe(chunk)
    context.answer(text)
    assert counts(pilot) == (1, 0, 0, 0, 0)


def test_each_request_goes_to_the_engine_that_was_chosen():
    with ExitStack() as stack:
        fakes = {name: stack.enter_context(FakeEngine(block_size=16)) for name in ("left", "right")}
        pilot = stack.enter_context(ContextPilot(engines=[Engine(one.base_url, name) for name, one in fakes.items()]))
        clients = {
            name: stack.enter_context(OpenAI(base_url=one.base_url, api_key="none")) for name, one in fakes.items()
        }
        memory = ContextPilotMemory(Notes(reply(A), reply(B), reply(A), reply(B)), pilot)
        for question in ("One?", "Two?", "Three?", "Four?"):
            context = memory.context(question, user_id="alice")
            assert pilot.engines.url(context.alignment) == fakes[context.alignment.engine].base_url
            context.answer(sending(clients[context.alignment.engine], context.messages(), context.extra_body))
        assert [len(one.requests) for one in fakes.values()] == [2, 2]
        assert all(one.requests[-1].cached_tokens > 30 for one in fakes.values())
        assert [(one.requests, one.observed) for one in pilot.engines] == [(2, 2), (2, 2)]
