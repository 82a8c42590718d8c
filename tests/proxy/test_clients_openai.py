"""The proxy with the openai client: what comes back is what the engine sent, and more of what goes there is cached."""

from __future__ import annotations

import asyncio

import openai
import pytest

from .clients import FILE, FIRST, SECOND, SYSTEM, documents, in_the_place_of, pair, timeless

PLAIN = [{"role": "user", "content": "Where do slices start?"}]
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "read_file",
            "parameters": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
        },
    }
]


@pytest.fixture
def both():
    """The engines, and a client for each way to them."""
    with pair() as them:
        direct, through = (openai.OpenAI(base_url=url, api_key="none", max_retries=0) for url in them.urls())
        with direct, through:
            yield them, (direct, through)


def chat(names, question="Where do slices start?", **more):
    messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": documents(names, question)}]
    return {"model": "any", "messages": messages, **more}


def test_answers_are_those_of_the_engine(both):
    _, clients = both
    for body in (
        {"messages": PLAIN},
        {"messages": PLAIN, "temperature": 0.0, "seed": 7, "extra_body": {"unheard_of": {"a": [1.50]}}},
        {"messages": PLAIN, "tools": TOOLS, "tool_choice": "required"},
        chat(FIRST),
    ):
        direct, through = (client.chat.completions.create(**{"model": "any", **body}) for client in clients)
        assert timeless(through) == timeless(direct)
    direct, through = (client.completions.create(model="any", prompt="Slices", max_tokens=5) for client in clients)
    assert timeless(through) == timeless(direct)
    direct, through = ([*client.models.list()] for client in clients)
    assert timeless(through) == timeless(direct)


def test_the_same_documents_in_another_order_are_cached(both):
    them, clients = both
    for names in (FIRST, SECOND):
        for client in clients:
            client.chat.completions.create(**chat(names, f"What is in {names}?"))
    direct, through = them.hits()
    assert direct < 200
    assert through > 1000
    sent = them.behind.requests[-1].messages[-1]["content"]
    assert sorted(line for line in sent.splitlines() if "Line 0" in line) == sorted(
        line for line in documents(SECOND).splitlines() if "Line 0" in line
    )
    assert sent.endswith(f"</documents>\n\nWhat is in {SECOND}?"), "by default, the order of relevance is not told"


def test_headers_say_what_was_done(both):
    _, (_, client) = both
    raw = client.chat.completions.with_raw_response
    first, second = (raw.create(**chat(names)) for names in (FIRST, SECOND))
    assert first.headers["x-contextpilot-order"] == "kept"
    assert second.headers["x-contextpilot-order"] == "changed"
    assert second.headers["x-contextpilot-blocks"] == "6"
    assert int(second.headers["x-contextpilot-predicted-cached-tokens"]) > 0
    assert second.parse().usage.prompt_tokens_details.cached_tokens > 1000
    plain = raw.create(model="any", messages=PLAIN)
    assert plain.headers["x-contextpilot-blocks"] == "0"
    assert plain.headers["x-contextpilot-reason"]


def test_it_is_switched_off_for_one_client_or_one_call(both):
    them, (_, client) = both
    off = client.with_options(default_headers={"x-contextpilot": "off"}, timeout=30)
    client.chat.completions.create(**chat(FIRST))
    off.chat.completions.create(**chat(SECOND))
    assert them.behind.requests[-1].messages[-1]["content"] == documents(SECOND)
    client.chat.completions.create(**chat(SECOND), extra_headers={"x-contextpilot": "off"})
    assert them.behind.requests[-1].messages[-1]["content"] == documents(SECOND)


def test_streams_are_those_of_the_engine(both):
    them, clients = both
    for names in (FIRST, SECOND):
        for options in ({}, {"stream_options": {"include_usage": True}}):
            direct, through = (
                timeless([*client.chat.completions.create(**chat(names), stream=True, **options)]) for client in clients
            )
            if names == FIRST:
                assert through == direct
            assert len(through) > 10
    assert through[-1]["usage"]["prompt_tokens_details"]["cached_tokens"] == them.hits()[1]
    with clients[1].chat.completions.stream(**chat(SECOND)) as stream:
        assert "no model here" in stream.get_final_completion().choices[0].message.content


def test_a_stream_that_is_left_is_no_trouble(both):
    them, (_, client) = both
    with client.chat.completions.create(**chat(FIRST), stream=True) as stream:
        next(iter(stream))
    assert client.chat.completions.create(**chat(FIRST)).choices[0].finish_reason == "stop"
    them.proxy.settled()
    assert not them.proxy.counts.failures


def test_tools_go_round_and_what_is_read_twice_is_sent_once(both):
    them, clients = both
    for client in clients:
        messages = [{"role": "user", "content": "Read a.py twice."}]
        for _ in range(2):
            answer = client.chat.completions.create(model="any", messages=messages, tools=TOOLS, tool_choice="required")
            message = answer.choices[0].message
            (call,) = message.tool_calls
            assert (call.function.name, call.function.arguments) == ("read_file", '{"path":""}')
            messages += [message, {"role": "tool", "tool_call_id": call.id, "content": FILE}]
        client.chat.completions.create(model="any", messages=messages, tools=TOOLS)
    direct, through = them.prompts()
    assert through < 0.65 * direct
    sent = them.behind.requests[-1].messages
    assert sent[2]["content"] == FILE
    assert len(sent[4]["content"]) < len(FILE) / 2
    # What was sent for the earlier turns is sent again, so it is found again.
    assert them.behind.requests[-1].cached_tokens > 0.9 * them.behind.requests[-2].prompt_tokens


def test_responses_whole_and_in_streams(both):
    them, clients = both
    for names in (FIRST, SECOND):
        question = {"model": "any", "instructions": SYSTEM, "input": documents(names)}
        direct, through = (client.responses.create(**question) for client in clients)
        if names == FIRST:
            assert timeless(through) == timeless(direct)
    direct, through = them.hits()
    assert direct < 200
    assert through > 1000
    items = [{"role": "user", "content": [{"type": "input_text", "text": documents(FIRST[::-1])}]}]
    events = [*clients[1].responses.create(model="any", instructions=SYSTEM, input=items, stream=True)]
    assert events[-1].response.usage.input_tokens_details.cached_tokens == them.hits()[1] > 1000
    assert [event.sequence_number for event in events] == [*range(len(events))]
    with clients[1].responses.stream(model="any", input="Hello") as stream:
        assert "no model here" in stream.get_final_response().output_text


def test_a_response_calls_tools_and_has_their_results(both):
    them, clients = both
    tools = [{"type": "function", **TOOLS[0]["function"]}]
    for client in clients:
        items = [{"role": "user", "content": "Read a.py twice."}]
        for _ in range(2):
            answer = client.responses.create(model="any", input=items, tools=tools, tool_choice="required")
            (call,) = answer.output
            items += [call, {"type": "function_call_output", "call_id": call.call_id, "output": FILE}]
        client.responses.create(model="any", input=items, tools=tools)
    direct, through = them.prompts()
    assert through < 0.65 * direct


def test_the_engines_errors_are_the_engines(both):
    them, (_, client) = both
    for status, error in ((429, openai.RateLimitError), (401, openai.AuthenticationError)):
        them.behind.fail_next(1, status)
        with pytest.raises(error, match="as fail_next asked for"):
            client.chat.completions.create(**chat(FIRST))
    with pytest.raises(openai.BadRequestError):
        client.chat.completions.create(model="any", messages=[])
    with pytest.raises(openai.NotFoundError):
        client.embeddings.create(model="any", input="a")
    assert client.with_options(max_retries=2).chat.completions.create(**chat(FIRST)).choices
    assert not them.proxy.counts.failures


async def test_many_at_once_whole_and_in_streams():
    with pair() as them:
        async with openai.AsyncOpenAI(base_url=them.urls()[1], api_key="none", max_retries=0) as client:

            async def ask(number):
                body = chat(FIRST[number % 3 :] + FIRST[: number % 3], f"What is {number}?")
                if number % 2:
                    return (await client.chat.completions.create(**body)).choices[0].message.content
                stream = await client.chat.completions.create(**body, stream=True)
                return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])

            texts = await asyncio.gather(*(ask(number) for number in range(30)))
        assert all("no model here" in text for text in texts)
        questions = {request.messages[-1]["content"].split("What is ")[-1] for request in them.behind.requests}
        assert questions == {f"{number}?" for number in range(30)}


@pytest.fixture
def cloud():
    """An engine in the cloud's place, and a client."""
    with (
        in_the_place_of("openai") as (engine, proxy),
        openai.OpenAI(base_url=f"{proxy.address}/v1", api_key="none", max_retries=0) as client,
    ):
        yield engine, client


def test_the_cloud_is_given_a_key_for_requests_that_begin_alike(cloud):
    engine, client = cloud
    for names in (FIRST, SECOND, "HGE"):
        client.chat.completions.create(**chat(names))
    client.responses.create(model="any", instructions=SYSTEM, input=documents(FIRST))
    client.chat.completions.create(**chat(FIRST), prompt_cache_key="own")
    client.chat.completions.create(model="any", messages=PLAIN)
    sent = [request.body for request in engine.requests]
    keys = [body.get("prompt_cache_key") for body in sent]
    assert keys[0] == keys[1] != keys[2]
    assert 0 < len(keys[0]) <= 64
    assert keys[3:] == [keys[3], "own", None]
    assert keys[3]
    assert not any("cache_salt" in body for body in sent)


def test_the_clouds_completions_are_given_no_key(cloud):
    engine, client = cloud
    client.completions.create(model="any", prompt=documents(FIRST))
    assert "prompt_cache_key" not in engine.requests[-1].body
