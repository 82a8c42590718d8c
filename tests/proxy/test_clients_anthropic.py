"""The proxy with the anthropic client, before an engine that speaks its messages, and before the cloud's own format."""

from __future__ import annotations

import json

import anthropic
import pytest

from contextpilot_rag.testing import FakeEngine

from .clients import FILE, FIRST, SECOND, SYSTEM, documents, in_the_place_of, pair, timeless
from .harness import proxying

TOOLS = [
    {
        "name": "read_file",
        "input_schema": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
    }
]
OURS = {"type": "ephemeral"}


@pytest.fixture
def both():
    """The engines, and a client for each way to them."""
    with pair() as them:
        direct, through = (anthropic.Anthropic(base_url=url, api_key="none", max_retries=0) for url in them.urls(""))
        with direct, through:
            yield them, (direct, through)


def asked(names, question="Where do slices start?", **more):
    turn = {"role": "user", "content": documents(names, question)}
    return {"model": "any", "max_tokens": 100, "system": SYSTEM, "messages": [turn], **more}


def test_answers_are_those_of_the_engine(both):
    _, clients = both
    plain = [{"role": "user", "content": "Where do slices start?"}]
    for body in (
        {"messages": plain},
        {"messages": plain, "stop_sequences": ["x"], "extra_body": {"temperature": 0.0, "unheard_of": [1.50]}},
        {"messages": plain, "tools": TOOLS, "tool_choice": {"type": "any"}},
        asked(FIRST),
    ):
        direct, through = (client.messages.create(**{"model": "any", "max_tokens": 100, **body}) for client in clients)
        assert timeless(through) == timeless(direct)


def test_the_same_documents_in_another_order_are_cached(both):
    them, clients = both
    for names in (FIRST, SECOND):
        for client in clients:
            answer = client.messages.create(**asked(names))
    direct, through = them.hits()
    assert direct < 200
    assert answer.usage.cache_read_input_tokens == through > 1000
    raw = clients[1].messages.with_raw_response.create(**asked(SECOND[::-1]))
    assert raw.headers["x-contextpilot-order"] == "changed"
    assert raw.headers["x-contextpilot-blocks"] == "6"


def test_streams_are_those_of_the_engine(both):
    them, clients = both
    direct, through = (timeless([*client.messages.create(**asked(FIRST), stream=True)]) for client in clients)
    assert through == direct
    with clients[1].messages.stream(**asked(SECOND)) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert final.content[0].text == text
    assert final.usage.cache_read_input_tokens == them.behind.requests[-1].cached_tokens > 1000
    with clients[1].messages.stream(**asked(SECOND, tools=TOOLS, tool_choice={"type": "any"})) as stream:
        assert stream.get_final_message().content[0].input == {"path": ""}


def test_tools_go_round_and_what_is_read_twice_is_sent_once(both):
    them, clients = both
    for client in clients:
        turns = [{"role": "user", "content": "Read a.py twice."}]
        body = {"model": "any", "max_tokens": 100, "tools": TOOLS}
        for _ in range(2):
            answer = client.messages.create(**body, messages=turns, tool_choice={"type": "any"})
            (call,) = answer.content
            result = {"type": "tool_result", "tool_use_id": call.id, "content": FILE}
            turns += [{"role": "assistant", "content": answer.content}, {"role": "user", "content": [result]}]
        client.messages.create(**body, messages=turns)
    direct, through = them.prompts()
    assert through < 0.65 * direct
    sent = them.behind.requests[-1].messages
    assert sent[2]["content"][0]["content"] == FILE
    assert len(sent[4]["content"][0]["content"]) < len(FILE) / 2


def test_the_engines_errors_are_the_engines(both):
    them, (_, client) = both
    them.behind.fail_next(1, 529)
    with pytest.raises(anthropic.InternalServerError, match="overloaded_error"):
        client.messages.create(**asked(FIRST))
    with pytest.raises(anthropic.BadRequestError, match="invalid_request_error"):
        client.messages.create(model="any", max_tokens=9, messages=[])
    with pytest.raises(anthropic.BadRequestError, match="invalid_request_error"):
        client.messages.create(**asked(FIRST), extra_headers={"x-contextpilot": "perhaps"})


async def test_async_whole_and_in_a_stream():
    with pair() as them:
        async with anthropic.AsyncAnthropic(base_url=them.urls("")[1], api_key="none", max_retries=0) as client:
            whole = await client.messages.create(**asked(FIRST))
            async with client.messages.stream(**asked(SECOND)) as stream:
                final = await stream.get_final_message()
        assert whole.stop_reason == final.stop_reason == "end_turn"
        assert final.usage.cache_read_input_tokens == them.behind.requests[-1].cached_tokens > 1000


@pytest.fixture
def cloud():
    """An engine in the cloud's place, and a client."""
    with (
        in_the_place_of("anthropic") as (engine, proxy),
        anthropic.Anthropic(base_url=proxy.address, api_key="none", max_retries=0) as client,
    ):
        yield engine, client


def following(body, **more):
    """The next turn of a conversation."""
    answer = {"role": "assistant", "content": "From zero."}
    return {**body, "messages": [*body["messages"], answer, {"role": "user", "content": "Why?", **more}]}


def test_the_cloud_is_given_breakpoints_and_no_salt(cloud):
    engine, client = cloud
    client.messages.create(**asked(FIRST))
    client.messages.create(**asked(FIRST, "Hello"))
    plain = {**asked(FIRST), "messages": [{"role": "user", "content": "Hello"}]}
    client.messages.create(**plain)
    first, second, last = (request.body for request in engine.requests)
    (content, question) = first["messages"][0]["content"]
    assert content["cache_control"] == OURS
    assert content["text"] + question["text"] == documents(FIRST)
    assert second["messages"][0]["content"][0] == content
    assert last == plain
    assert "cache_salt" not in json.dumps([first, second])


def test_a_conversation_with_the_cloud_keeps_its_blocks(cloud):
    """Also where more of them is cached at its second turn than was at its first."""
    engine, client = cloud
    client.messages.create(**asked(FIRST))
    for body in (asked(SECOND), following(asked(SECOND)), following(following(asked(SECOND)))):
        client.messages.create(**body)
    first, *later = (request.body["messages"] for request in engine.requests[1:])
    assert [turns[0] for turns in later] == [first[0]] * 2
    assert later[0][2]["content"] == [{"type": "text", "text": "Why?", "cache_control": OURS}]
    assert later[1][2]["content"] == "Why?"


def test_the_clients_own_breakpoints_reach_the_cloud(cloud):
    engine, client = cloud
    own = [{"type": "text", "text": "Why?", "cache_control": {"type": "ephemeral", "ttl": "5m"}}]
    client.messages.create(**following(asked(FIRST), content=own))
    sent = engine.requests[-1].body["messages"]
    assert sent[2]["content"] == own
    assert sent[0]["content"][0]["cache_control"] == OURS


def test_what_an_answer_says_of_its_tokens_is_heard():
    """By the half of the proxy that learns from it: all of the prompt, and what of it was cached."""
    with FakeEngine() as engine, proxying(engine.base_url) as proxy:
        with anthropic.Anthropic(base_url=proxy.address, api_key="none", max_retries=0) as client:
            client.messages.create(**asked(FIRST))
            for _ in client.messages.create(**asked(FIRST), stream=True):
                pass
        proxy.settled()
        heard = [(usage.prompt_tokens, usage.cached_tokens) for usage, _ in proxy.rewriting.learnt]
        assert heard == [(request.prompt_tokens, request.cached_tokens) for request in engine.requests]
        assert heard[1][1] > 1000
