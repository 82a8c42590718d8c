"""Completions and responses with the real openai client, whole, in streams, sync and async; one prompt, one cache."""

from __future__ import annotations

import asyncio
import json

import openai
import pytest

from contextpilot_rag.engines.kv import Stored
from contextpilot_rag.errors import EngineRefused, InputError
from contextpilot_rag.testing import FakeEngine
from contextpilot_rag.testing.paged import PagedPrefixCache
from tests.testing.common import ENGLISH, MESSAGES, post

PARTS = [
    {"role": "developer", "content": "Answer from the documents."},
    {"type": "message", "role": "user", "content": [{"type": "input_text", "text": ENGLISH}]},
    {"role": "assistant", "content": [{"type": "output_text", "text": "Yes."}]},
    {"type": "function_call_output", "call_id": "1", "output": "2"},
    {"role": "user", "content": [{"type": "input_text", "text": "Why?"}, {"type": "input_image", "image_url": "x"}]},
]


def async_client(engine):
    return openai.AsyncOpenAI(base_url=engine.base_url, api_key="none", max_retries=0)


# Completions


def test_a_completion_of_a_text(engine, client):
    first, second = (client.completions.create(model="any", prompt=ENGLISH, max_tokens=4) for _ in range(2))
    openai.types.Completion.model_validate(first.to_dict(), strict=True)
    assert first.choices[0].text == "FakeEngine: no"
    assert first.choices[0].finish_reason == "length"
    assert first.usage.prompt_tokens == engine.tokenize({"prompt": ENGLISH})["count"]
    assert first.usage.completion_tokens == 4
    hits = [one.usage.prompt_tokens_details.cached_tokens for one in (first, second)]
    assert hits == [0, (first.usage.prompt_tokens - 1) // 32 * 32]
    received = engine.requests[-1]
    assert (received.kind, received.prompt, received.messages) == ("completion", ENGLISH, ())
    assert client.completions.create(model="any", prompt=ENGLISH, max_tokens=100).choices[0].finish_reason == "stop"
    assert len(FakeEngine().complete({"prompt": "a"})["choices"][0]["text"]) > 0
    assert FakeEngine().complete({"prompt": "a"})["usage"]["completion_tokens"] <= 16


def test_token_ids_are_cached_as_they_are(engine, client):
    """A chat's ids, sent as a prompt, are the chat's prompt."""
    tokens = engine.tokenize({"messages": MESSAGES})["tokens"]
    client.completions.create(model="any", prompt=tokens, max_tokens=1)
    hit = client.chat.completions.create(model="any", messages=MESSAGES).usage.prompt_tokens_details.cached_tokens
    assert hit == (len(tokens) - 1) // 32 * 32
    assert engine.requests[-2].prompt == tuple(tokens)
    heard = []
    cache = PagedPrefixCache(4, told=lambda events, _: heard.extend(events))
    cache.serve([5, 6, 7, 2**64 - 1, 9])
    other = FakeEngine(block_size=4, events=True)
    other.complete({"prompt": [5, 6, 7, 2**64 - 1, 9], "max_tokens": 1})
    (stored,) = heard
    assert isinstance(stored, Stored)
    assert other.cached_hashes == set(stored.hashes)


def test_salts_isolate_completions_and_responses(engine, client):
    def hit(salt):
        body = {"cache_salt": salt} if salt else {}
        completion = client.completions.create(model="any", prompt=ENGLISH, max_tokens=1, extra_body=body)
        response = client.responses.create(model="any", input=ENGLISH, extra_body=body)
        return [
            completion.usage.prompt_tokens_details.cached_tokens > 0,
            response.usage.input_tokens_details.cached_tokens > 0,
        ]

    assert [hit(salt) for salt in ("A", "B", None, "A")] == [[False] * 2, [False] * 2, [False] * 2, [True] * 2]


def test_a_completion_in_a_stream(engine, client):
    def stream(**options):
        return [*client.completions.create(model="any", prompt=ENGLISH, stream=True, max_tokens=50, **options)]

    whole = engine.complete({"prompt": ENGLISH, "max_tokens": 50})
    engine.reset()
    *chunks, last = stream(stream_options={"include_usage": True})
    assert "".join(chunk.choices[0].text for chunk in chunks) == whole["choices"][0]["text"]
    assert [chunk.choices[0].finish_reason for chunk in chunks] == [None] * (len(chunks) - 1) + ["stop"]
    assert last.choices == []
    assert last.usage.to_dict() == whole["usage"]
    assert all(chunk.usage is None for chunk in [*chunks, *stream()])


async def test_completions_async(engine):
    async with async_client(engine) as client:
        whole = await client.completions.create(model="any", prompt=[1, 2, 3])
        chunks = [chunk async for chunk in await client.completions.create(model="any", prompt=[1, 2, 3], stream=True)]
    assert "".join(chunk.choices[0].text for chunk in chunks) == whole.choices[0].text


@pytest.mark.parametrize(
    "prompt",
    [None, "", [], [[]], [""], 1, ["a", "b"], [[1], [2]], [1, "a"], [1.5], [True], [-1], [2**64], {"a": 1}, [None]],
    ids=repr,
)
def test_prompts_that_cannot_be(engine, prompt):
    status, answer = post(engine, json.dumps({"prompt": prompt}).encode(), "/v1/completions")
    assert (status, answer["error"]["type"]) == (400, "BadRequestError")


def test_a_batch_of_one_is_one():
    engine = FakeEngine()
    assert engine.complete({"prompt": ["a"]})["usage"] == engine.complete({"prompt": "a"})["usage"]
    engine.complete({"prompt": [[1, 2]]})
    assert engine.requests[-1].prompt == (1, 2)


# Responses


def test_a_response(engine, client):
    first, second = (client.responses.create(model="any", input=ENGLISH) for _ in range(2))
    openai.types.responses.Response.model_validate(first.to_dict(), strict=True)
    assert "no model here" in first.output_text
    assert (first.status, first.incomplete_details) == ("completed", None)
    assert first.usage.input_tokens_details.cached_tokens == 0
    assert second.usage.input_tokens_details.cached_tokens == (second.usage.input_tokens - 1) // 32 * 32
    assert first.usage.total_tokens == first.usage.input_tokens + first.usage.output_tokens
    received = engine.requests[-1]
    assert (received.kind, received.prompt) == ("response", None)
    assert received.messages == ({"role": "user", "content": ENGLISH},)
    cut = client.responses.create(model="any", input=ENGLISH, max_output_tokens=2)
    assert (cut.status, cut.incomplete_details.reason, cut.usage.output_tokens) == (
        "incomplete",
        "max_output_tokens",
        2,
    )
    engine.report_cached = False
    assert client.responses.create(model="any", input=ENGLISH).usage.input_tokens_details is None


def test_a_response_has_a_chats_prompt(engine, client):
    chat = client.chat.completions.create(model="any", messages=MESSAGES)
    for body in (
        {"instructions": MESSAGES[0]["content"], "input": MESSAGES[1]["content"]},
        {"input": MESSAGES},
        {"input": [{**one, "content": [{"type": "input_text", "text": one["content"]}]} for one in MESSAGES]},
    ):
        response = client.responses.create(model="any", **body)
        assert response.usage.input_tokens == chat.usage.prompt_tokens
        assert response.usage.input_tokens_details.cached_tokens == (chat.usage.prompt_tokens - 1) // 32 * 32
    assert client.responses.create(model="any", input=PARTS).status == "completed"


def test_a_response_in_a_stream(engine, client):
    whole = engine.respond({"input": ENGLISH})
    engine.reset()
    events = [*client.responses.create(model="any", input=ENGLISH, stream=True)]
    text = whole["output"][0]["content"][0]["text"]
    assert [event.sequence_number for event in events] == [*range(len(events))]
    assert [events[0].type, events[1].type, events[-1].type] == [
        "response.created",
        "response.in_progress",
        "response.completed",
    ]
    assert events[0].response.usage is None
    assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == text
    assert events[-1].response.usage.to_dict() == whole["usage"]
    assert events[-1].response.output_text == text
    assert engine.requests[-1].stream


def test_the_clients_own_helper_for_streams(engine, client):
    with client.responses.stream(model="any", input=ENGLISH) as stream:
        final = stream.get_final_response()
    assert "no model here" in final.output_text
    with client.chat.completions.stream(model="any", messages=MESSAGES) as stream:
        assert "no model here" in stream.get_final_completion().choices[0].message.content


async def test_responses_async(engine):
    async with async_client(engine) as client:
        whole = await client.responses.create(model="any", input=ENGLISH)
        stream = await client.responses.create(model="any", input=ENGLISH, stream=True)
        events = [event async for event in stream]
        async with client.responses.stream(model="any", input=ENGLISH) as helper:
            final = await helper.get_final_response()
    assert events[-1].response.usage.input_tokens == whole.usage.input_tokens == final.usage.input_tokens
    assert final.usage.input_tokens_details.cached_tokens > 0


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"input": None},
        {"input": []},
        {"input": ["a"]},
        {"input": [{"content": "a"}]},
        {"input": [{"role": "", "content": "a"}]},
        {"input": [{"role": "user"}]},
        {"input": [{"role": "user", "content": [1]}]},
        {"input": [{"role": "user", "content": [{"type": "input_text"}]}]},
        {"input": [{"type": 1}]},
        {"input": "a", "max_output_tokens": 0},
        {"input": "a", "instructions": 1},
        {"input": "a", "previous_response_id": "resp_1"},
        {"input": "a", "stream_options": {}},
        {"input": "a", "cache_salt": ""},
    ],
    ids=repr,
)
def test_responses_that_cannot_be(engine, body):
    status, answer = post(engine, json.dumps(body).encode(), "/v1/responses")
    assert (status, answer["error"]["type"]) == (400, "BadRequestError")
    with pytest.raises(InputError):
        engine.respond(body)


@pytest.mark.parametrize("kind", ["completion", "response"])
def test_told_failures_are_for_all(engine, client, kind):
    engine.fail_next(1, 503)
    ask = client.completions.create if kind == "completion" else client.responses.create
    with pytest.raises(openai.InternalServerError):
        ask(model="any", **({"prompt": "a"} if kind == "completion" else {"input": "a"}))
    engine.fail_next(1, 429)
    with pytest.raises(EngineRefused):
        engine.answer({"prompt": "a", "input": "a"}, kind)


@pytest.mark.parametrize("kind", ["chat", "completion", "response"])
async def test_all_kinds_wait_in_streams_and_whole(kind):
    waits = []

    async def sleep(seconds):
        waits.append(seconds)
        await asyncio.sleep(0)

    with FakeEngine(delay_seconds=2, sleep=sleep) as engine:
        async with async_client(engine) as client:
            for stream in (False, True):
                if kind == "chat":
                    answer = await client.chat.completions.create(model="any", messages=MESSAGES, stream=stream)
                elif kind == "completion":
                    answer = await client.completions.create(model="any", prompt="a", stream=stream)
                else:
                    answer = await client.responses.create(model="any", input="a", stream=stream)
                if stream:
                    assert [chunk async for chunk in answer]
    assert waits == [2, 2]
