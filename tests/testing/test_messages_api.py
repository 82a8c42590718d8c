"""Anthropic's messages with the real client, whole and in streams; one prompt and one cache, however it is asked."""

from __future__ import annotations

import contextlib
import json

import anthropic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextpilot_rag.engines.usage import usage_of
from contextpilot_rag.errors import EngineRefused, InputError
from contextpilot_rag.testing import FakeEngine
from tests.testing.common import ENGLISH, MESSAGES, post

SYSTEM, QUESTION = (one["content"] for one in MESSAGES)
TURNS = [{"role": "user", "content": QUESTION}]
CONTROL = {"cache_control": {"type": "ephemeral"}}
TOOL = {"name": "look_up", "description": "Looks up.", "input_schema": {"type": "object", "properties": {}}}


@pytest.fixture
def asked(engine):
    with anthropic.Anthropic(base_url=engine.base_url.removesuffix("/v1"), api_key="none", max_retries=0) as client:
        yield client


def body(**more):
    return {"model": "any", "max_tokens": 100, "system": SYSTEM, "messages": TURNS, **more}


def prompt_tokens(engine, **more):
    engine.message(body(**more))
    return engine.requests[-1].prompt_tokens


def test_a_message_and_what_its_usage_counts(engine, asked):
    first, second = (asked.messages.create(**body()) for _ in range(2))
    anthropic.types.Message.model_validate(first.to_dict(), strict=True)
    whole = engine.requests[-1].prompt_tokens
    assert "no model here" in first.content[0].text
    assert (first.stop_reason, first.role, first.model) == ("end_turn", "assistant", "any")
    hits = [one.usage.cache_read_input_tokens for one in (first, second)]
    assert hits == [0, (whole - 1) // 32 * 32]
    assert [one.usage.input_tokens for one in (first, second)] == [whole, whole - hits[1]]
    assert {one.usage.cache_creation_input_tokens for one in (first, second)} == {0}
    assert usage_of(second).prompt_tokens == whole
    received = engine.requests[-1]
    assert (received.kind, received.messages, received.body["system"]) == ("message", tuple(TURNS), SYSTEM)
    cut = asked.messages.create(**body(max_tokens=2))
    assert (cut.stop_reason, cut.usage.output_tokens) == ("max_tokens", 2)


def test_what_is_not_told_is_left_out(engine, asked):
    engine.report_cached = False
    assert set(engine.message(body())["usage"]) == {"input_tokens", "output_tokens"}
    usage = asked.messages.create(**body()).usage
    assert (usage.cache_read_input_tokens, usage.input_tokens) == (None, engine.requests[-1].prompt_tokens)


def test_messages_have_a_chats_prompt(engine):
    chat = engine.chat({"messages": MESSAGES})["usage"]["prompt_tokens"]
    text = {"type": "text", "text": QUESTION}
    for more in (
        {},
        {"system": [{"type": "text", "text": SYSTEM[:10]}, {"type": "text", "text": SYSTEM[10:], **CONTROL}]},
        {"messages": [{"role": "user", "content": [{**text, **CONTROL}]}]},
    ):
        usage = engine.message(body(**more))["usage"]
        assert usage["input_tokens"] + usage["cache_read_input_tokens"] == chat
        assert usage["cache_read_input_tokens"] == (chat - 1) // 32 * 32


def test_a_conversation_with_tools_has_a_chats_prompt(engine):
    call = {"type": "tool_use", "id": "1", "name": "look_up", "input": {"what": "slices"}}
    told = {"type": "tool_result", "tool_use_id": "1", "content": [{"type": "text", "text": ENGLISH}]}
    turns = [
        *TURNS,
        {"role": "assistant", "content": [{"type": "thinking", "thinking": "Hm.", "signature": "x"}, call]},
        {"role": "user", "content": [told, {"type": "text", "text": "So?"}]},
    ]
    function = {"name": "look_up", "arguments": '{"what":"slices"}'}
    chat = [
        *MESSAGES,
        {"role": "assistant", "content": None, "tool_calls": [{"id": "1", "type": "function", "function": function}]},
        {"role": "tool", "content": ENGLISH},
        {"role": "user", "content": "So?"},
    ]
    schema = {"description": TOOL["description"], "parameters": TOOL["input_schema"]}
    tools = [{"type": "function", "function": {"name": "look_up", **schema}}]
    whole = engine.chat({"messages": chat, "tools": tools})["usage"]["prompt_tokens"]
    assert prompt_tokens(engine, messages=turns, tools=[TOOL]) == whole


def test_cache_control_is_kept_and_changes_no_prompt(engine):
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "x"}}
    result = {"type": "tool_result", "tool_use_id": "1", "content": [{"type": "text", "text": ENGLISH}, image]}

    def ask(control):
        inner = [{**part, **control} for part in result["content"]]
        turns = [{"role": "user", "content": [{**result, "content": inner, **control}, {**image, **control}]}]
        engine.message(body(messages=turns, tools=[{**TOOL, **control}]))
        return engine.requests[-1]

    plain, marked = ask({}), ask(CONTROL)
    assert marked.prompt_tokens == plain.prompt_tokens
    assert marked.cached_tokens == (plain.prompt_tokens - 1) // 32 * 32
    assert marked.body["tools"][0]["cache_control"] == CONTROL["cache_control"]
    assert marked.messages[0]["content"][0]["cache_control"] == CONTROL["cache_control"]


def test_salts_isolate_messages(engine):
    cached = [engine.message(body(cache_salt=salt))["usage"]["cache_read_input_tokens"] > 0 for salt in "ABA"]
    assert cached == [False, False, True]


def test_a_message_in_a_stream(engine, asked):
    whole = engine.message(body())
    engine.reset()
    with asked.messages.stream(**body()) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert text == final.content[0].text == whole["content"][0]["text"]
    assert (final.stop_reason, final.usage.cache_read_input_tokens) == ("end_turn", 0)
    events = [*asked.messages.create(**body(), stream=True)]
    kinds = [event.type for event in events if event.type != "content_block_delta"]
    assert kinds == [
        "message_start",
        "content_block_start",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]
    assert events[-2].usage.to_dict() == engine.message(body())["usage"]
    assert events[0].message.usage.output_tokens == 0
    assert engine.requests[-2].stream


async def test_messages_async(engine):
    url = engine.base_url.removesuffix("/v1")
    async with anthropic.AsyncAnthropic(base_url=url, api_key="none", max_retries=0) as client:
        whole = await client.messages.create(**body())
        async with client.messages.stream(**body()) as stream:
            final = await stream.get_final_message()
    assert whole.stop_reason == final.stop_reason == "end_turn"
    assert final.usage.cache_read_input_tokens > 0


@pytest.mark.parametrize(
    "change",
    [
        {"messages": []},
        {"messages": None},
        {"messages": [{"role": "tool", "content": "a"}]},
        {"messages": [{"role": "user"}]},
        {"messages": [{"role": "user", "content": None}]},
        {"messages": [{"role": "user", "content": [1]}]},
        {"messages": [{"role": "user", "content": [{}]}]},
        {"messages": [{"role": "user", "content": [{"type": "text"}]}]},
        {"messages": [{"role": "user", "content": [{"type": "tool_result", "content": 1}]}]},
        {"messages": [{"role": "user", "content": [{"type": "tool_result", "content": ["a"]}]}]},
        {"messages": [{"role": "assistant", "content": [{"type": "tool_use", "name": "a"}]}]},
        {"messages": [{"role": "user", "content": [{"type": "tool_use", "name": "a", "input": {}}]}]},
        {"system": 1},
        {"system": [{"type": "image"}]},
        {"max_tokens": None},
        {"max_tokens": 0},
        {"tools": "a"},
    ],
    ids=repr,
)
def test_messages_that_cannot_be(engine, change):
    status, answer = post(engine, json.dumps(body(**change)).encode(), "/v1/messages")
    assert (status, answer["type"], answer["error"]["type"]) == (400, "error", "invalid_request_error")
    with pytest.raises(InputError):
        engine.message(body(**change))


def test_failures_are_told_in_anthropics_words(engine, asked):
    for status, error, kind in (
        (401, anthropic.AuthenticationError, "authentication_error"),
        (429, anthropic.RateLimitError, "rate_limit_error"),
        (500, anthropic.InternalServerError, "api_error"),
        (529, anthropic.InternalServerError, "overloaded_error"),
    ):
        engine.fail_next(1, status)
        with pytest.raises(error) as failed:
            asked.messages.create(**body())
        assert failed.value.body["error"]["type"] == kind
    engine.fail_next(1, 429)
    with pytest.raises(EngineRefused):
        engine.message(body())


@given(
    st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(), st.lists, max_leaves=5), st.data()
)
def test_any_value_in_any_field_of_messages_is_answered_or_refused(value, data):
    block = data.draw(
        st.sampled_from(
            [
                {"type": "text", "text": "a"},
                {"type": "tool_result", "content": "a"},
                {"type": "tool_use", "name": "a", "input": {}},
                {"type": "image", "source": {}},
            ]
        )
    )
    turn = {"role": "assistant", "content": [dict(block)]}
    tool = json.loads(json.dumps(TOOL))
    whole = body(messages=[turn], tools=[tool], tool_choice={"type": "any"}, stream=True)
    target = data.draw(st.sampled_from([whole, turn, turn["content"][0], tool, tool["input_schema"]]))
    target[data.draw(st.sampled_from([*target]))] = value
    with contextlib.suppress(InputError):
        answer = FakeEngine().answer(whole, "message")
        assert list(answer.chunks())
        assert answer.completion()["type"] == "message"
