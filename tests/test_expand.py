"""expand: full text from what was sent. That it undoes all de-duplication is tested where that is done."""

from __future__ import annotations

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextpilot_rag import ContextPilot
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
    pilot = ContextPilot(dedup=dedup, min_gain=0, echo=echo)
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
