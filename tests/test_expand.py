"""expand: full text from what was sent. That it undoes all de-duplication is tested where that is done."""

from __future__ import annotations

import copy
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextpilot_rag import ContextPilot
from contextpilot_rag.dedup.marks import hint
from contextpilot_rag.dedup.units import normal
from contextpilot_rag.errors import BrokenHint
from contextpilot_rag.expand import expand, read_full
from tests.dedup.material import CODE, HOSTILE, TABLE, hostile, texts
from tests.strategies import texts as escaped


def user(content):
    return {"role": "user", "content": content}


def documents(*blocks):
    return "<documents>\n" + "\n\n".join(blocks) + "\n</documents>"


@given(st.lists(st.one_of(texts, escaped), max_size=5), st.sampled_from(["off", "blocks+chunks"]), st.integers(0, 2))
def test_the_prompt_of_one_request_in_full(blocks, dedup, echo):
    pilot = ContextPilot(dedup=dedup, min_gain=0, echo=echo, order_hint=True)
    pilot.align(blocks[::-1])
    prompt = pilot.align(blocks, "Why?")
    (full,) = read_full(prompt.messages())
    expected = [block.text for block in prompt.blocks]
    expected += [expected[place] for place in prompt.echoed]
    assert [normal(block.text) for block in full.blocks or ()] == list(map(normal, expected))
    assert not full.apart
    tail = [part for part in (prompt.order_hint, "Why?") if part]
    assert full.message["content"].endswith("\n\n".join(tail))


@given(st.lists(st.lists(texts, max_size=3), max_size=4))
def test_prompts_that_were_put_one_after_the_other(requests):
    """Each with labels from 1, as with a history of one's own."""
    pilot = ContextPilot(dedup="blocks+chunks", order="retrieved")
    prompts = [pilot.align(blocks, "Why?") for blocks in requests]
    for prompt, full in zip(prompts, read_full([prompt.messages()[0] for prompt in prompts]), strict=True):
        found = [normal(block.text) for block in full.blocks or ()]
        assert found == [normal(block.text) for block in prompt.blocks]


@given(st.lists(st.one_of(st.sampled_from(HOSTILE), hostile), max_size=5))
def test_messages_that_look_like_ours_break_nothing(contents):
    messages = [user(content) for content in contents]
    before = copy.deepcopy(messages)
    assert len(expand(messages)) == len(messages)
    assert messages == before


@pytest.mark.parametrize("role", ["user", "assistant", "system", "developer", None])
@pytest.mark.parametrize(
    "content", ["Why?", "[1] (given above)", f"{documents('[1] a')[1:]}", None, 7, [{"type": "text"}]]
)
def test_what_is_none_of_ours_passes_as_it_is(role, content):
    message = {"role": role, "content": content, "name": "x", "tool_calls": None}
    assert expand([message, message]) == [message, message]


def test_labels_of_a_message_that_stands_apart_are_its_own():
    messages = [
        user(documents("[1] one")),
        user(documents("[1] other", "[2] two")),
        user(documents("[1] (given above)")),
    ]
    first, apart, third = read_full(messages)
    assert (first.apart, apart.apart, third.apart) == (False, True, False)
    assert [block.text for block in apart.blocks] == ["other", "two"]
    assert [(block.text, block.again) for block in third.blocks] == [("one", True)]


def test_a_users_message_that_points_to_nothing_passes_as_it_is():
    message = user(documents('[1] [same text as in [9] at 0: 5 characters from "x"]'))
    assert expand([message]) == [message]


@pytest.mark.parametrize("start", ["0: 6", "5: 1", "99: 1"])
def test_a_result_that_points_to_nothing_is_an_error(start):
    messages = [
        user("12345"),
        {"role": "tool", "content": f'[same text as in message 1 at {start} characters from "x"]'},
    ]
    with pytest.raises(BrokenHint, match="of message 1, which are not there"):
        expand(messages)
    assert [full.message for full in read_full(messages, strict=False)] == messages


def test_results_point_at_blocks_and_messages():
    messages = [
        {"role": "system", "content": TABLE},
        user(documents(f"[1] {CODE}")),
        {"role": "tool", "content": [{"type": "text", "text": '[same text as in [1] at 4: 20 characters from "x"]'}]},
        {"role": "tool", "content": 'Rows: [same text as in message 1 at 0: 30 characters from "x"].'},
        {"role": "tool", "content": '[same text as in message 3, part 1 at 0: 5 characters from "x"]'},
    ]
    full = expand(messages)
    assert full[2]["content"][0]["text"] == CODE[4:24]
    assert full[3]["content"] == f"Rows: {TABLE[:30]}."
    assert full[4]["content"] == CODE[4:9]


def parts(*texts):
    """Where the documents of a text begin and end, as one who frames them like this knows."""
    return [found.span(1) for text in texts for found in re.finditer(r"<doc>(.*?)</doc>", text, re.DOTALL)]


def within(role, text):
    return parts(text) if role in {"user", "system"} else []


def test_hints_of_users_are_followed_only_where_they_may_stand():
    words = hint("message 1", 4, CODE[4:104])
    messages = [
        {"role": "system", "content": CODE},
        user(f"{words} <doc>{words}</doc> <doc>See {words}.</doc> {words}"),
        {"role": "developer", "content": f"<doc>{words}</doc>"},
        {"role": "system", "content": [{"type": "text", "text": f"<doc>{words}</doc>"}, {"type": "image_url"}]},
        {"role": "tool", "content": hint("message 2", len(words) + 6, CODE[4:104])},
    ]
    full = expand(messages, within)
    part = CODE[4:104]
    assert full[1]["content"] == f"{words} <doc>{part}</doc> <doc>See {part}.</doc> {words}"
    assert full[2] == messages[2]
    assert full[3]["content"] == [{"type": "text", "text": f"<doc>{part}</doc>"}, {"type": "image_url"}]
    assert full[4]["content"] == part, "hints count in the text in full"
    assert expand(messages)[:4] == messages[:4]


@pytest.mark.parametrize(
    "words",
    [
        '[same text as in message 1 at 0: 5 characters from "x"]',
        hint("message 1", 99_999, CODE),
        hint("message 7", 0, CODE),
        hint("message 1", 0, "other words"),
        "\\" + hint("message 1", 0, CODE),
        "[same text as in a mirror",
    ],
)
def test_a_users_text_that_only_looks_like_one_with_hints_passes_as_it_is(words):
    messages = [user(CODE), user(f"<doc>{words}</doc>"), user(f"<doc>{hint('message 2', 5, words)}</doc>")]
    full = expand(messages, within)
    assert full[:2] == messages[:2]
    assert full[2]["content"] == f"<doc>{words}</doc>"


@given(st.lists(st.one_of(st.sampled_from(HOSTILE), hostile), max_size=5))
def test_messages_that_look_like_a_proxys_break_nothing(contents):
    messages = [user(f"<doc>{content}</doc>") for content in contents]
    assert len(expand(messages, lambda _, text: [(5, len(text) - 6)])) == len(messages)


def test_documents_of_ours_may_stand_in_the_first_text_part():
    question = {"type": "text", "text": "Why?"}
    image = {"type": "image_url", "image_url": {"url": "data:,"}}

    def several(*blocks):
        return user([{"type": "text", "text": f"{documents(*blocks)}\n\nhint"}, image, question])

    messages = [
        several(f"[1] {CODE}", "[2] \\[9] two"),
        user(documents("[1] (given above)")),
        several("[2] (given above)", f"[3] {hint('[1]', 4, CODE[4:60])}"),
        {"role": "tool", "content": hint("[3]", 0, CODE[4:40])},
        {"role": "tool", "content": hint("message 1, part 3", 0, "Why?")},
        user([question, {"type": "text", "text": documents("[2] (given above)")}]),
    ]
    assert expand(messages) == [
        several(f"[1] {CODE}", "[2] [9] two"),
        user(documents(f"[1] {CODE}")),
        several("[2] [9] two", f"[3] {CODE[4:60]}"),
        {"role": "tool", "content": CODE[4:40]},
        {"role": "tool", "content": "Why?"},
        messages[5],
    ]


@pytest.mark.parametrize("content", [documents("[1] forged"), [{"type": "text", "text": documents("[1] forged")}]])
def test_no_hint_points_at_a_label_that_a_user_gave_to_another_text(content):
    pilot = ContextPilot(dedup="blocks+chunks")
    talk = pilot.conversation()
    talk.add(user(content))
    talk.add({"role": "assistant", "content": "So."})
    talk.align([CODE + TABLE], "Why?")
    talk.answer("So.")
    talk.add({"role": "tool", "content": CODE})
    full = expand(talk.messages)
    assert CODE + TABLE in full[2]["content"]
    assert full[-1]["content"] == CODE
