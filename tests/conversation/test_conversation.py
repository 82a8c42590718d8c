"""Conversations: nothing is lost, whatever happens in which order, and nothing is given twice."""

from __future__ import annotations

import copy
from dataclasses import replace
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextpilot_rag import Block, ContextPilot, Rule
from contextpilot_rag.errors import InputError, SettingsError, TextTooLong
from contextpilot_rag.expand import expand
from tests.conversation.talks import (
    LEVELS,
    MOST,
    Driver,
    Mistake,
    Restart,
    Turn,
    interrupted,
    mistakes,
    pilot_for,
    restarts,
    retried,
    says,
    steps,
    truncations,
)
from tests.dedup.material import CODE, SENTENCES, TABLE, padded

levels = st.sampled_from(LEVELS)
everything = steps(says, truncations, restarts, mistakes, retried, interrupted)


@given(everything, levels, st.booleans())
def test_nothing_is_lost(all_steps, level, normalise):
    Driver(pilot_for(level, normalise)).take(*all_steps)


@given(everything, levels, st.sampled_from(["balanced", "throughput"]))
def test_nothing_is_lost_where_the_first_turn_is_aligned(all_steps, level, order):
    pilot = pilot_for(level, order=order, min_gain=0, order_hint=True)
    for system in (None, "System"):
        Driver(pilot, system=system).take(*all_steps)
    assert pilot.failures == 0


@given(steps(says, restarts, truncations), levels, st.booleans())
def test_a_restart_in_between_changes_no_byte(all_steps, level, normalise):
    without = [step for step in all_steps if not isinstance(step, Restart)]
    assert Driver(pilot_for(level, normalise)).take(*all_steps) == Driver(pilot_for(level, normalise)).take(*without)


@given(steps(says, retried, mistakes, truncations), levels)
def test_turns_that_are_dropped_and_mistakes_leave_no_trace(all_steps, level):
    done = [step for step in all_steps if not isinstance(step, Mistake)]
    done = [replace(step, instead_of=[]) if isinstance(step, Turn) else step for step in done]
    assert Driver(pilot_for(level)).take(*all_steps) == Driver(pilot_for(level)).take(*done)


@given(st.lists(st.tuples(st.integers(0, 3), steps(says, truncations, most=3)), max_size=6), levels)
def test_conversations_and_namespaces_share_nothing(shares, level):
    places = [{"name": "x"}, {"name": "x", "namespace": "acme"}, {"name": "x", "namespace": "other"}, {"name": "y"}]
    pilot = pilot_for(level)
    drivers = [Driver(pilot, **place) for place in places]
    for number, some_steps in shares:
        drivers[number].take(*some_steps)
    for number, driver in enumerate(drivers):
        own = [step for other, some_steps in shares for step in some_steps if other == number]
        assert driver.prompts == Driver(pilot_for(level)).take(*own)
        assert pilot.conversation(**places[number]) is driver.talk


def tokens(messages):
    return sum(ContextPilot().count_tokens(message["content"]) for message in messages)


def test_a_block_is_given_once():
    talk = ContextPilot().conversation()
    talk.align([("a", TABLE), ("b", CODE)], "Why?")
    talk.answer("So.")
    second = talk.align([("c", SENTENCES), ("also b", CODE)], "And?")
    assert second.user_message == f"<documents>\n[3] {SENTENCES}\n\n[2] (given above)\n</documents>\n\nAnd?"
    assert second.labels == {3: "c", 2: "also b"}
    assert (second.again, second.numbers, second.rule) == ({2}, (3, 2), Rule.CONVERSATION)


def test_a_turn_that_is_tried_again_has_the_same_bytes():
    talk = pilot_for().conversation()
    talk.align([TABLE], "Why?")
    talk.answer("So.")
    first = talk.align([CODE, TABLE], "And?").messages()
    talk.align([SENTENCES, CODE], "Something else?")
    assert talk.align([CODE, TABLE], "And?").messages() == first


def test_off_gives_everything_each_time():
    talk = pilot_for("off").conversation()
    for number in (1, 2):
        assert talk.align([TABLE], "Why?").user_message == f"<documents>\n[{number}] {TABLE}\n</documents>\n\nWhy?"
        talk.answer("So.")


def test_exact_conversations_tell_forms_apart():
    for normalise in (True, False):
        talk = pilot_for("blocks", normalise).conversation()
        talk.align([TABLE])
        talk.answer("So.")
        assert (talk.align([padded(TABLE)]).again == {1}) == normalise


def test_only_the_first_turn_is_aligned_and_only_turns_that_are_used_count():
    pilot = ContextPilot(min_gain=0, order_hint=True)
    pilot.align(["b" * 400, "a" * 400])
    talk = pilot.conversation()
    first = talk.align(["a" * 400, "b" * 400], "?")
    assert (first.order, first.rule) == ((1, 0), Rule.PREFIX)
    assert first.order_hint in first.user_message
    assert first.labels == {1: first.ids[1][0], 2: first.ids[2][0]}
    talk.answer("So.")
    assert not talk.align(["c" * 400, "a" * 400]).changed
    assert pilot.stats().requests == 2


def test_a_first_turn_that_cannot_be_sent_is_not_taken_as_sent():
    pilot = ContextPilot(max_text=100)
    with pytest.raises(TextTooLong, match="a block of 101 characters; max_text is 100"):
        pilot.conversation().align(["x" * 101])
    assert pilot.stats().requests == 0


def test_a_mistake_keeps_the_turn_that_waits_for_its_answer():
    talk = ContextPilot().conversation()
    messages = talk.align([TABLE], "Why?").messages()
    with pytest.raises(InputError):
        talk.align([7])
    talk.answer("So.")
    assert talk.messages == [*messages, {"role": "assistant", "content": "So."}]


def test_truncating_keeps_the_turn_that_waits_for_its_answer():
    talk = ContextPilot().conversation(system="S")
    for text in (TABLE, CODE):
        talk.align([text, SENTENCES], "Why?")
        talk.answer("So.")
    talk.align([SENTENCES, TABLE], "And?")
    assert talk.truncate(10**6) == 0
    assert talk.truncate(200) == 4
    talk.answer("So.")
    assert [message["role"] for message in talk.messages] == ["system", "user", "assistant"]
    assert talk.messages[1]["content"] == f"<documents>\n[2] {SENTENCES}\n\n[1] {TABLE}\n</documents>\n\nAnd?"


@pytest.mark.parametrize("wrong", [0, -1, 1.5, "many", None, True])
def test_a_length_to_truncate_to_is_a_positive_number(wrong):
    with pytest.raises(SettingsError, match="max_tokens must be a positive int"):
        ContextPilot().conversation().truncate(wrong)


def test_truncation_cuts_the_fewest_turns():
    talk = pilot_for("off").conversation()
    for number in range(8):
        talk.align([f"{number}" * 400])
        talk.answer("So.")
    each = tokens(talk.messages) // 8
    assert talk.truncate(7 * each) == 2 * 5
    assert tokens(talk.messages) <= 3.5 * each
    assert talk.truncate(7 * each) == 0


def test_the_callers_objects_can_change_afterwards():
    talk = pilot_for().conversation()
    message = {"role": "tool", "tool_call_id": "a", "content": [{"type": "text", "text": TABLE}], "more": {"x": [1]}}
    talk.add(message)
    before = copy.deepcopy(talk.messages)
    message["content"][0]["text"] = "other"
    message["more"]["x"].append(2)
    talk.messages[0]["more"]["x"].append(3)
    prompt = talk.align([CODE])
    prompt.messages()[0]["content"].clear()
    assert prompt.messages()[:-1] == talk.messages == before


@pytest.mark.parametrize(
    "answer",
    [
        "So.",
        {"role": "assistant", "content": "So."},
        {"choices": [{"message": {"role": "assistant", "content": "So."}}]},
        SimpleNamespace(usage=None, text="So."),
        SimpleNamespace(choices=[SimpleNamespace(message={"role": "assistant", "content": "So."})]),
        SimpleNamespace(model_dump=lambda exclude_none: {"role": "assistant", "content": "So."}),
    ],
)
def test_answers_of_many_forms(answer):
    talk = ContextPilot().conversation()
    talk.align([TABLE])
    talk.answer(answer)
    assert talk.messages[-1] == {"role": "assistant", "content": "So."}


@pytest.mark.parametrize("answer", [None, 7, {}, {"choices": []}, {"choices": [7]}, {"content": "x"}, {"role": 7}, []])
def test_what_is_no_answer(answer):
    talk = ContextPilot().conversation()
    with pytest.raises(InputError, match=r"an answer is a text|a message is a mapping"):
        talk.answer(answer)
    assert talk.messages == []


def test_the_system_prompt_is_given_once():
    pilot = ContextPilot()
    talk = pilot.conversation("x", system="S")
    assert pilot.conversation("x").system == "S"
    prompt = talk.align(["a"])
    assert prompt.messages("S") == prompt.messages()
    with pytest.raises(InputError, match="given once"):
        prompt.messages("T")
    talk.answer("So.")
    with pytest.raises(InputError, match="another system prompt"):
        pilot.conversation("x", system="T")
    for messages in (talk.messages, talk.messages[1:]):
        with pytest.raises(InputError, match="another system prompt"):
            pilot.conversation(None, system="T", messages=messages)


def test_a_prompt_is_observed_as_any_other():
    pilot = ContextPilot()
    talk = pilot.conversation(system="S")
    prompt = talk.align([Block("x" * 4000, id="x")])
    bytes_sent = sum(len(message["content"]) for message in prompt.messages())
    pilot.observe(prompt, {"usage": {"prompt_tokens": bytes_sent // 2}})
    assert pilot.count_tokens("x" * 36) > 9


def test_tools_may_repeat_questions_system_and_blocks():
    talk = pilot_for().conversation(system=TABLE)
    talk.align([SENTENCES], "Why?")
    talk.answer("So.")
    talk.align([], CODE)
    talk.answer({"role": "assistant", "content": None, "tool_calls": [{}]})
    for text, place in ((TABLE, "message 1"), (SENTENCES, "[1]"), (CODE, "message 4")):
        talk.add({"role": "tool", "content": text})
        assert talk.messages[-1]["content"].startswith(f"[same text as in {place} at ")
        assert expand(talk.messages)[-1]["content"] == text


def test_texts_are_bounded():
    talk = pilot_for().conversation()
    with pytest.raises(TextTooLong, match=r"a tool's result of 50,001 characters"):
        talk.add({"role": "tool", "content": [{"type": "text", "text": "x" * (MOST + 1)}]})
    assert talk.messages == []
    parts = [{"type": "text", "text": "x" * MOST}] * 2  # each counts by itself
    talk.add({"role": "tool", "content": parts})
    assert expand(talk.messages)[0]["content"] == parts


def test_what_is_not_searched_for_repeats_may_be_of_any_length():
    talk = pilot_for().conversation(system="y" * (MOST + 1))
    talk.align([], "x" * (MOST + 1))
    talk.answer("z" * (MOST + 1))
    assert [len(message["content"]) for message in talk.messages] == [MOST + 1] * 3


def test_what_was_sent_shares_nothing_with_what_is_sent_next():
    talk = ContextPilot().conversation(system="Be brief.")
    turn = talk.align(["Slices."], "Why?")
    given = turn.messages()
    for message in (*given, *turn.sent.messages, *turn.history):
        message["content"] = "changed"
    assert [message["content"] for message in turn.sent.messages] == ["changed", "changed"]
    talk.answer("So.")
    sent = talk.align(["Steps."], "And?").messages()
    assert (sent[0]["content"], len(sent)) == ("Be brief.", 4)
    assert "Slices." in sent[1]["content"]


def test_the_order_hint_goes_by_the_labels_that_the_blocks_have():
    pilot = ContextPilot(min_gain=0, order_hint=True)
    pilot.conversation(messages=[{"role": "assistant", "content": "As in [3]."}]).align(["Slices. " * 9, "Steps. " * 9])
    talk = pilot.conversation(messages=[{"role": "assistant", "content": "As in [3]."}])
    prompt = talk.align(["Steps. " * 9, "Slices. " * 9], "Why?")
    assert list(prompt.labels) == [4, 5]
    assert prompt.order_hint == "Order of relevance, best first: [5] > [4]"
    assert prompt.order_hint in prompt.user_message
