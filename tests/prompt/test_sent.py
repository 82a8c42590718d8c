"""What a prompt remembers of what was rendered, and the system prompt that it keeps."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextpilot_rag import ContextPilot
from contextpilot_rag.errors import InputError, InvalidBlock


def prompt(system=None):
    return replace(ContextPilot().align(["Slices.", "Steps."], "Why?"), system=system)


def test_nothing_is_rendered_before_somebody_asks():
    fresh = ContextPilot().align(["Slices."], "Why?")
    assert (fresh.sent.prompt_bytes, fresh.sent.messages) == (0, None)


@given(st.text(max_size=20), st.text(max_size=20), st.one_of(st.none(), st.text(max_size=20)))
def test_keeps_what_was_rendered_last(block, question, system):
    aligned = ContextPilot().align([block], question)
    messages = aligned.messages(system)
    assert aligned.sent.messages == tuple(messages)
    whole = "".join(message["content"] for message in messages)
    assert aligned.sent.prompt_bytes == len(whole.encode("utf-8", "surrogatepass"))


def test_what_the_caller_does_to_his_messages_is_nothing_to_it():
    aligned = prompt("Be brief.")
    messages = aligned.messages()
    before = aligned.sent.messages
    messages[1]["content"] = "something else"
    messages.append({"role": "assistant", "content": "Because."})
    assert before == aligned.sent.messages == tuple(aligned.messages())
    assert [message["role"] for message in before] == ["system", "user"]


def test_a_turn_keeps_its_messages_too():
    talk = ContextPilot().conversation(system="Be brief.")
    first = talk.align(["Slices."], "Why?")
    messages = first.messages()
    talk.answer("Because.", first)
    second = talk.align(["Steps."], "And?")
    later = second.messages()
    assert second.sent.messages == tuple(later)
    assert len(later) == len(messages) + 2
    later[1]["content"] = "something else"
    assert second.sent.messages == tuple(second.messages())
    assert second.sent.messages[1] == messages[1]
    assert second.sent.prompt_bytes == sum(len(message["content"]) for message in second.messages())


def test_the_system_prompt_of_align_stands_in_the_messages():
    assert prompt("Be brief.").messages() == prompt().messages("Be brief.") == prompt("Be brief.").messages("Be brief.")
    assert prompt("").messages()[0] == {"role": "system", "content": ""}
    assert [message["role"] for message in prompt().messages()] == ["user"]


@pytest.mark.parametrize(("given", "other"), [("Be brief.", "Be kind."), ("Be brief.", ""), ("", "Be brief.")])
def test_another_system_prompt_is_an_error(given, other):
    aligned = prompt(given)
    with pytest.raises(InputError, match="another system prompt"):
        aligned.messages(other)
    assert aligned.sent.messages is None


def test_a_system_prompt_is_a_text():
    with pytest.raises(InvalidBlock, match="the system prompt must be str"):
        prompt("Be brief.").messages(7)
