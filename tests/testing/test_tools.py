"""Tools that a FakeEngine has to call: by name, or any; whole and in streams, with the real clients."""

from __future__ import annotations

import json

import anthropic
import openai
import pytest

from contextpilot_rag.errors import InputError
from contextpilot_rag.testing.tools import call_of
from tests.testing.common import MESSAGES

SCHEMA = {
    "type": "object",
    "properties": {
        "path": {"type": "string"},
        "mode": {"enum": ["read", "write"]},
        "lines": {"type": "array"},
        "how": {"type": "object", "properties": {"deep": {"type": "boolean"}}, "required": ["deep"]},
        "left": {"type": "string"},
    },
    "required": ["path", "mode", "lines", "how", "unheard_of"],
}
LEAST = {"path": "", "mode": "read", "lines": [], "how": {"deep": False}, "unheard_of": {}}
ANY = {"type": "any"}


def chat_tool(name):
    return {"type": "function", "function": {"name": name, "parameters": SCHEMA}}


def tools(style):
    names = ("look_up", "read_file")
    if style == "chat":
        return [chat_tool(name) for name in names]
    if style == "response":
        return [{"type": "function", "name": name, "parameters": SCHEMA, "strict": False} for name in names]
    return [{"name": name, "input_schema": SCHEMA} for name in names]


def named(style, name="read_file"):
    if style == "chat":
        return {"type": "function", "function": {"name": name}}
    return {"type": "function" if style == "response" else "tool", "name": name}


@pytest.mark.parametrize("style", ["chat", "response", "message"])
def test_a_forced_tool_is_called_with_the_least_that_it_takes(style):
    forced = ANY if style == "message" else "required"
    first, second = call_of(style, tools(style), forced), call_of(style, tools(style), named(style))
    assert (first.name, first.named, second.name, second.named) == ("look_up", False, "read_file", True)
    assert json.loads(first.arguments) == json.loads(second.arguments) == LEAST
    for free in (None, *([{"type": "auto"}, {"type": "none"}] if style == "message" else ["auto", "none"])):
        assert call_of(style, tools(style), free) is None


@pytest.mark.parametrize("style", ["chat", "response", "message"])
@pytest.mark.parametrize("choice", [1, [], {}, {"type": 1}, "always", True], ids=repr)
def test_what_is_no_choice_is_refused(style, choice):
    with pytest.raises(InputError, match="tool_choice"):
        call_of(style, tools(style), choice)


@pytest.mark.parametrize("style", ["chat", "response", "message"])
def test_a_tool_that_is_not_there_is_refused(style):
    forced = ANY if style == "message" else "required"
    for given, choice in ((None, forced), ([], forced), (tools(style), named(style, "write")), ([1, {}], forced)):
        with pytest.raises(InputError, match="tool_choice"):
            call_of(style, given, choice)


def test_schemas_without_end_are_cut():
    schema = {"type": "object", "required": ["a"], "properties": {}}
    schema["properties"]["a"] = schema
    call = call_of("message", [{"name": "deep", "input_schema": schema}], ANY)
    assert len(call.arguments) < 100


def test_a_chat_calls_a_tool(engine, client):
    def ask(choice, **more):
        return client.chat.completions.create(
            model="any", messages=MESSAGES, tools=tools("chat"), tool_choice=choice, **more
        )

    (choice,) = ask("required").choices
    assert (choice.finish_reason, choice.message.content) == ("tool_calls", None)
    (call,) = choice.message.tool_calls
    assert (call.function.name, json.loads(call.function.arguments)) == ("look_up", LEAST)
    openai.types.chat.ChatCompletion.model_validate(ask("required").to_dict(), strict=True)
    assert ask(named("chat")).choices[0].finish_reason == "stop"  # as OpenAI and vLLM have it
    assert ask("auto").choices[0].message.tool_calls is None
    cut = ask("required", max_tokens=2).choices[0]
    assert cut.finish_reason == "length"
    chunks = [*ask("required", stream=True)]
    deltas = [chunk.choices[0].delta.tool_calls[0] for chunk in chunks if chunk.choices[0].delta.tool_calls]
    assert (deltas[0].id != call.id, deltas[0].function.name) == (True, "look_up")
    assert {delta.id for delta in deltas[1:]} == {None}
    assert "".join(delta.function.arguments for delta in deltas) == call.function.arguments
    assert chunks[-1].choices[0].finish_reason == "tool_calls"
    with client.chat.completions.stream(
        model="any", messages=MESSAGES, tools=tools("chat"), tool_choice="required"
    ) as stream:
        final = stream.get_final_completion()
    assert final.choices[0].message.tool_calls[0].function.arguments == call.function.arguments


def test_a_response_calls_a_tool(engine, client):
    def ask(choice="required", **more):
        return client.responses.create(model="any", input="a", tools=tools("response"), tool_choice=choice, **more)

    whole = ask()
    openai.types.responses.Response.model_validate(whole.to_dict(), strict=True)
    (item,) = whole.output
    assert (item.type, item.name, json.loads(item.arguments)) == ("function_call", "look_up", LEAST)
    assert ask(named("response")).output[0].name == "read_file"
    assert ask("auto").output[0].type == "message"
    events = [*ask(stream=True)]
    parts = [event.delta for event in events if event.type == "response.function_call_arguments.delta"]
    assert "".join(parts) == item.arguments
    assert events[-1].response.output[0].arguments == item.arguments
    assert [event.sequence_number for event in events] == [*range(len(events))]
    with client.responses.stream(model="any", input="a", tools=tools("response"), tool_choice="required") as stream:
        final = stream.get_final_response()
    assert final.output[0].arguments == item.arguments


def test_the_answer_to_a_call_is_a_part_of_a_responses_prompt(engine, client):
    call = {"type": "function_call", "call_id": "1", "name": "read_file", "arguments": "{}"}
    told = {"type": "function_call_output", "call_id": "1", "output": "A slice is a copy. " * 50}
    begun = [{"role": "user", "content": "a"}, call]
    lengths = [
        client.responses.create(model="any", input=items).usage.input_tokens
        for items in (begun, [*begun, told], [*begun, {**told, "output": [{"type": "input_text", "text": "b"}]}])
    ]
    assert lengths[1] - lengths[0] > 200
    assert lengths[0] < lengths[2] < lengths[1]
    assert engine.requests[-2].messages[-1] == {"role": "tool", "content": told["output"]}


def test_messages_call_a_tool(engine):
    with anthropic.Anthropic(base_url=engine.base_url.removesuffix("/v1"), api_key="none", max_retries=0) as client:

        def asked(choice):
            turns = [{"role": "user", "content": "a"}]
            rest = {"tools": tools("message"), "tool_choice": choice}
            return {"model": "any", "max_tokens": 100, "messages": turns, **rest}

        whole = client.messages.create(**asked(ANY))
        (block,) = whole.content
        assert (whole.stop_reason, block.type, block.name, block.input) == ("tool_use", "tool_use", "look_up", LEAST)
        assert client.messages.create(**asked(named("message"))).content[0].name == "read_file"
        assert client.messages.create(**asked({"type": "auto"})).content[0].type == "text"
        with client.messages.stream(**asked(ANY)) as stream:
            kinds = {event.delta.type for event in stream if event.type == "content_block_delta"}
            final = stream.get_final_message()
    assert kinds == {"input_json_delta"}
    assert (final.stop_reason, final.content[0].input) == ("tool_use", LEAST)
    cut = engine.message({**asked(ANY), "max_tokens": 2})
    assert (cut["stop_reason"], cut["content"][0]["input"]) == ("max_tokens", {})


def test_tools_are_at_the_front_of_the_prompt(engine):
    def ask(offered):
        engine.chat({"messages": MESSAGES, "tools": offered})
        return engine.requests[-1].cached_tokens

    assert ask(tools("chat")) == 0
    assert ask(tools("chat")[::-1]) == 0
    assert ask(tools("chat")) > 100
