"""deduplicate: message lists as clients send them; only what tools say is changed, and `expand` gives it back."""

from __future__ import annotations

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextpilot_rag.dedup.messages import deduplicate
from contextpilot_rag.dedup.units import normal
from contextpilot_rag.errors import TextTooLong
from contextpilot_rag.expand import expand
from tests.dedup.material import CODE, HOSTILE, TABLE, hostile, texts

odd = st.one_of(st.none(), st.integers(), st.just([]), st.just({}), st.just(b"bytes"), st.just(object))
parts = st.one_of(
    st.builds(lambda text, kind: {"type": kind, "text": text}, texts, st.sampled_from(["text", "input_text"])),
    st.builds(lambda text: {"type": "text", "text": text, "cache_control": {"type": "ephemeral"}}, texts),
    st.just({"type": "image_url", "image_url": {"url": "data:,"}}),
    st.builds(lambda kind, text: {"type": kind, "text": text}, odd, odd),
    st.builds(lambda text: {"type": "text", "text": text}, odd),
    odd,
    st.just("a text that is no part"),
)
contents = st.one_of(texts, texts, texts, st.lists(parts, max_size=3), odd)
calls = st.sampled_from([None, [], [{"id": "a", "type": "function", "function": {"name": "read", "arguments": "{}"}}]])
messages = st.lists(
    st.one_of(
        st.builds(lambda content: {"role": "tool", "tool_call_id": "a", "content": content}, contents),
        st.builds(lambda content: {"role": "tool", "tool_call_id": "a", "content": content, "name": "x"}, contents),
        st.builds(
            lambda content, calls: {"role": "assistant", "content": content, "tool_calls": calls}, contents, calls
        ),
        st.builds(lambda content: {"role": "user", "content": content}, contents),
        st.builds(lambda text: {"role": "user", "content": text}, hostile),
        st.builds(
            lambda role, content: {"role": role, "content": content},
            st.sampled_from(["system", "developer", None]),
            contents,
        ),
        st.just({"role": "tool"}),
        st.just({}),
    ),
    max_size=6,
)


def tool(text, **more):
    return {"role": "tool", "tool_call_id": "a", "content": text, **more}


def said_by_tools(given_messages):
    """Every text of every tool, with its place."""
    for number, message in enumerate(given_messages):
        content = message.get("content")
        if message.get("role") == "tool" and isinstance(content, str):
            yield (number,), content
        elif message.get("role") == "tool" and isinstance(content, list):
            for place, part in enumerate(content):
                if isinstance(part, dict) and isinstance(part.get("text"), str):
                    yield (number, place), part["text"]


@given(messages, st.booleans())
def test_what_tools_say_is_given_back(given_messages, normalise):
    sent = deduplicate(given_messages, normalise=normalise)
    full = dict(said_by_tools(expand(sent)))
    assert full.keys() == dict(said_by_tools(given_messages)).keys()
    for place, text in said_by_tools(given_messages):
        assert normal(full[place]) == normal(text) if normalise else full[place] == text


@given(messages)
def test_all_else_passes_as_it_is(given_messages):
    for sent, message in zip(deduplicate(given_messages), given_messages, strict=True):
        if message.get("role") != "tool":
            assert sent == message
        else:
            content, was = sent.pop("content", None), message.get("content")
            assert sent == {key: value for key, value in message.items() if key != "content"}
            assert type(content) is type(was)
            for part, part_was in zip(content, was, strict=False) if isinstance(was, list) else ():
                changes = isinstance(part_was, dict) and isinstance(part_was.get("text"), str)
                assert part == ({**part_was, "text": part["text"]} if changes else part_was)


@given(messages)
def test_the_callers_messages_are_not_changed(given_messages):
    before = copy.deepcopy(given_messages)
    sent = deduplicate(given_messages)
    assert given_messages == before
    expanded = copy.deepcopy(sent)
    expand(sent)
    assert sent == expanded


@given(messages, messages)
def test_history_sent_again_becomes_the_same_bytes(given_messages, more):
    assert deduplicate([*given_messages, *more])[: len(given_messages)] == deduplicate(given_messages)


def test_results_repeat_what_stands_before_in_any_message_but_the_models():
    for role, found in [("system", True), ("user", True), ("developer", True), ("tool", True), ("assistant", False)]:
        for content in (TABLE, [{"type": "text", "text": TABLE}]):
            sent = deduplicate([{"role": "user", "content": "?"}, {"role": role, "content": content}, tool(TABLE)])
            place = "message 2" if isinstance(content, str) else "message 2, part 1"
            assert sent[2]["content"].startswith(f"[same text as in {place} at 0") == found


def test_parts_of_one_message_repeat_each_other():
    sent = deduplicate(
        [tool([{"type": "text", "text": TABLE}, {"type": "image_url"}, {"type": "text", "text": TABLE}])]
    )
    assert sent[0]["content"][2]["text"].startswith("[same text as in message 1, part 1 at 0")
    assert expand(sent) == [
        tool([{"type": "text", "text": TABLE}, {"type": "image_url"}, {"type": "text", "text": TABLE}])
    ]


@pytest.mark.parametrize("hostile_text", HOSTILE)
@pytest.mark.parametrize("role", ["user", "system", "tool", "assistant"])
def test_hostile_messages_break_nothing(hostile_text, role):
    given_messages = [
        {"role": role, "content": hostile_text},
        tool(CODE),
        {"role": role, "content": hostile_text},
        tool(CODE),
    ]
    full = expand(deduplicate(given_messages))
    assert (full[1], full[3]) == (tool(CODE), tool(CODE))


def test_texts_are_bounded():
    with pytest.raises(TextTooLong, match="101 characters"):
        deduplicate([tool("x" * 101)], max_text=100)
    assert deduplicate([{"role": "assistant", "content": "x" * 101}], max_text=100)
