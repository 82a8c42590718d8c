"""FakeEngine over HTTP with the real openai client."""

from __future__ import annotations

import asyncio
import http.client

import openai
import pytest

from contextpilot_rag.engines.usage import usage_of
from contextpilot_rag.testing import FakeEngine
from tests.testing.common import ENGLISH, MESSAGES, Clock, cached, chat_body, post


def test_the_openai_client_sees_the_cache(engine, client):
    first, second = (client.chat.completions.create(model="any", messages=MESSAGES) for _ in range(2))
    assert cached(first) == 0
    assert cached(second) == (second.usage.prompt_tokens - 1) // 32 * 32
    assert "no model here" in second.choices[0].message.content
    salted = client.chat.completions.create(model="any", messages=MESSAGES, extra_body={"cache_salt": "A"})
    assert cached(salted) == 0
    assert engine.requests[-1].cache_salt == "A"
    assert list(engine.requests[-1].messages) == MESSAGES


def test_process_and_server_share_one_cache(engine, client):
    engine.chat({"messages": MESSAGES})
    assert cached(client.chat.completions.create(model="any", messages=MESSAGES)) > 0


def test_report_cached_can_be_switched_off(engine, client):
    engine.report_cached = False
    completion = client.chat.completions.create(model="any", messages=MESSAGES)
    assert completion.usage.prompt_tokens_details is None
    assert usage_of(completion).cached_tokens is None


def test_streaming(engine, client):
    def stream(**options):
        return list(client.chat.completions.create(model="any", messages=MESSAGES, stream=True, **options))

    whole = engine.chat({"messages": MESSAGES})
    engine.reset()
    chunks = stream(stream_options={"include_usage": True})
    assert chunks[0].choices[0].delta.role == "assistant"
    assert (
        "".join(chunk.choices[0].delta.content or "" for chunk in chunks[:-1])
        == whole["choices"][0]["message"]["content"]
    )
    assert [chunk.choices[0].finish_reason for chunk in chunks[:-1] if chunk.choices[0].finish_reason] == ["stop"]
    assert all(chunk.usage is None for chunk in chunks[:-1])
    assert chunks[-1].choices == []
    assert usage_of(chunks[-1]) == usage_of(whole)
    assert len(chunks) - 3 == whole["usage"]["completion_tokens"]
    assert all(chunk.usage is None for chunk in stream())
    assert engine.requests[-1].stream


async def test_streaming_async(engine):
    async with openai.AsyncOpenAI(base_url=engine.base_url, api_key="none", max_retries=0) as client:
        stream = await client.chat.completions.create(
            model="any", messages=MESSAGES, stream=True, stream_options={"include_usage": True}
        )
        chunks = [chunk async for chunk in stream]
    assert usage_of(chunks[-1]).cached_tokens == 0


def test_the_stream_ends_with_done(engine):
    connection = http.client.HTTPConnection("127.0.0.1", int(engine.base_url.rsplit(":", 1)[1][:-3]), timeout=30)
    connection.request("POST", "/v1/chat/completions", chat_body(stream=True))
    response = connection.getresponse()
    assert response.headers["content-type"].startswith("text/event-stream")
    events = response.read().split(b"\n\n")
    connection.close()
    assert events[-2:] == [b"data: [DONE]", b""]
    assert all(event.startswith(b"data: ") for event in events[:-1])


def test_the_server_sleeps_for_what_is_not_cached():
    clock = Clock()
    with FakeEngine(prefill_tokens_per_second=10, delay_seconds=3, sleep=clock) as engine:
        for stream in (False, True):
            status, *_ = post(engine, chat_body()) if not stream else (len(list(openai_stream(engine))) and 200,)
            assert status == 200
        assert clock.slept == [request.wait_seconds for request in engine.requests]
        assert clock.slept[1] < clock.slept[0]
        engine.prefill_tokens_per_second, engine.delay_seconds = None, 0
        post(engine, chat_body())
        assert len(clock.slept) == 2


def openai_stream(engine):
    with openai.OpenAI(base_url=engine.base_url, api_key="none", max_retries=0) as client:
        yield from client.chat.completions.create(model="any", messages=MESSAGES, stream=True)


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (500, openai.InternalServerError),
        (503, openai.InternalServerError),
        (429, openai.RateLimitError),
        (None, openai.APIConnectionError),
    ],
)
def test_failures_over_http(engine, client, status, error, caplog):
    engine.fail_next(2, status)
    for options in ({}, {"stream": True}):
        with pytest.raises(error) as raised:
            client.chat.completions.create(model="any", messages=MESSAGES, **options)
        assert not isinstance(raised.value, openai.APITimeoutError)
    assert client.chat.completions.create(model="any", messages=MESSAGES).usage is not None
    assert not [record for record in caplog.records if record.name.startswith("uvicorn")]


def test_the_client_recovers_by_itself(engine):
    engine.fail_next(1, None)
    before = engine.failures
    with openai.OpenAI(base_url=engine.base_url, api_key="none", max_retries=1) as client:
        assert client.chat.completions.create(model="any", messages=MESSAGES).usage is not None
    assert engine.failures == before + 1


def test_the_other_addresses(engine, client):
    assert [model.id for model in client.models.list()] == ["fake-engine"]
    assert post(engine, None, "/health", "GET") == (200, None)
    assert post(engine, b'{"prompt":"A slice."}', "/tokenize")[1] == engine.tokenize({"prompt": "A slice."})
    tokenized = post(engine, chat_body(model="any"), "/tokenize")[1]
    assert tokenized["max_model_len"] == 32 * 262_144
    completion = client.chat.completions.create(model="any", messages=MESSAGES)
    assert completion.usage.prompt_tokens == tokenized["count"] == len(tokenized["tokens"])
    assert post(engine, None, "/reset_prefix_cache") == (200, None)
    assert cached(client.chat.completions.create(model="any", messages=MESSAGES)) == 0
    assert post(engine, b"{}", "/tokenize")[0] == 400
    assert post(engine, b"[]", "/tokenize")[0] == 400


@pytest.mark.parametrize("parallel", [50, 200])
async def test_many_at_once(parallel):
    """They wait together, so that none of them blocks the others: all have to be in before any may go on."""
    waiting = 0
    everybody = asyncio.Event()

    async def until_all_are_in(_):
        nonlocal waiting
        waiting += 1
        if waiting == parallel:
            everybody.set()
        await everybody.wait()

    with FakeEngine(delay_seconds=1, sleep=until_all_are_in) as engine:

        async def one(client, number):
            messages = [{"role": "user", "content": f"{number}: {ENGLISH}"}]
            stream = await client.chat.completions.create(
                model="any", messages=messages, stream=True, stream_options={"include_usage": True}
            )
            return [chunk async for chunk in stream][-1].usage

        async with openai.AsyncOpenAI(base_url=engine.base_url, api_key="none", max_retries=0, timeout=60) as client:
            usages = await asyncio.gather(*(one(client, number) for number in range(parallel)))
        assert len(engine.requests) == parallel
        assert all(usage.prompt_tokens_details.cached_tokens == 0 for usage in usages)
