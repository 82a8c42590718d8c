"""What comes out of a pilot, and what it learns."""

from __future__ import annotations

import pytest

from contextpilot_rag import (
    AsyncContextPilot,
    Block,
    Context,
    ContextPilot,
    LocalIndex,
    Settings,
    Usage,
    errors,
)

A, B, C = (Block(letter * 400, id=letter) for letter in "abc")


def test_hints_labels_and_echo_of_a_changed_order():
    pilot = ContextPilot(min_gain=0, order_hint=True)
    pilot.align([B, C], "?")
    alignment = pilot.align([A, C, B], "Why?", key="q1", echo=1)
    assert alignment.labels == {1: "b", 2: "c", 3: "a"}
    assert alignment.order_hint == "Order of relevance, best first: [3] > [2] > [1]"
    assert alignment.echoed == ()  # the best block stands last already
    assert alignment.request.key == "q1"
    assert alignment.user_message.endswith("\n</documents>\n\n" + alignment.order_hint + "\n\nWhy?")


def test_the_best_blocks_are_echoed_after_the_last_with_their_own_labels():
    pilot = ContextPilot(min_gain=0)
    pilot.align([B, A], "?")
    alignment = pilot.align([A, B, C], "?", echo=2)
    assert alignment.labels == {1: "b", 2: "a", 3: "c"}
    assert alignment.echoed == (0, 1)  # second best, then the best, nearest to the question
    assert alignment.user_message.count("[2] " + A.text) == 2
    assert f"[3] {C.text}\n\n[1] {B.text}\n\n[2] {A.text}\n</documents>\n\n" in alignment.user_message


def test_an_echo_of_more_blocks_than_there_are_repeats_none():
    pilot = ContextPilot(min_gain=0)
    pilot.align([B, A], "?")
    assert pilot.align([A, B], "?", echo=9).echoed == ()  # all of them already stand among the last nine


def test_an_echo_does_not_disturb_the_shared_prefix():
    plain, echoing = ContextPilot(min_gain=0), ContextPilot(min_gain=0, echo=1)
    for pilot in (plain, echoing):
        pilot.align([B, A], "?")
        pilot.align([A, B, C], "?")
    assert plain.align([C, A, B], "?").order == echoing.align([C, A, B], "?").order


def test_a_prompt_shows_itself_in_one_short_line():
    assert repr(ContextPilot().align([A, B], "?")) == (
        "<AlignedPrompt: 2 blocks, nothing_gained, 0 of 200 tokens believed cached>"
    )


@pytest.mark.parametrize("given", [{}, {"order_hint": False}], ids=["by default", "said so"])
def test_nothing_is_said_of_a_changed_order_unless_it_is_asked_for(given):
    pilot = ContextPilot(**given)
    pilot.align([A, B], "?")
    alignment = pilot.align([B, A], "?")
    assert alignment.changed
    assert alignment.order_hint is None
    assert "relevance" not in alignment.user_message
    assert pilot.align([B, A], "?", order_hint=True).order_hint == "Order of relevance, best first: [2] > [1]"


def test_shared_blocks_are_shared_bytes():
    pilot = ContextPilot()
    first = pilot.align([A, B], "One?").messages("S")
    second = pilot.align([C, B, A], "Two?").messages("S")
    shared = first[1]["content"].index("\n</documents>")
    assert second[1]["content"][:shared] == first[1]["content"][:shared]


# Learning


def test_observe_counts_and_returns_what_was_reported():
    pilot = ContextPilot()
    alignment = pilot.align([A, B], "?")
    response = {"usage": {"prompt_tokens": 210, "prompt_tokens_details": {"cached_tokens": 96}}}
    assert pilot.observe(alignment, response) == Usage(210, 96)
    assert pilot.stats().reported_cached_tokens == 96


@pytest.mark.parametrize("response", [None, "text", 3, {}, {"usage": None}, {"usage": {"prompt_tokens": "many"}}])
def test_observe_takes_anything(response):
    pilot = ContextPilot()
    assert pilot.observe(pilot.align([A]), response) is None
    assert pilot.stats().observed == 0


@pytest.mark.parametrize("thing", [None, "alignment", Usage(1)])
def test_observe_needs_an_alignment(thing):
    pilot = ContextPilot()
    with pytest.raises(errors.InputError, match="observe takes what align returned"):
        pilot.observe(thing, Usage(1))
    assert pilot.failures == 0


def test_a_system_prompt_that_is_no_text():
    with pytest.raises(errors.InvalidBlock, match="system prompt must be str, not int"):
        ContextPilot().align([A]).messages(5)


def test_token_counts_follow_what_the_engine_counts():
    pilot = ContextPilot()
    before = pilot.align([A]).request.tokens
    for _ in range(30):
        alignment = pilot.align([A], "?")
        messages = alignment.messages("a system prompt that counts " * 50)
        pilot.observe(alignment, Usage(prompt_tokens=sum(len(message["content"]) for message in messages) // 2))
    assert (before, pilot.align([A]).request.tokens) == (100, 200)


def test_a_prompt_that_was_put_together_elsewhere_teaches_nothing_about_lengths():
    pilot = ContextPilot()
    pilot.observe(pilot.align([A], "?"), Usage(prompt_tokens=400))
    assert pilot.align([A]).request.tokens == 100


def test_a_tokenizer_is_used_where_given():
    pilot = ContextPilot(tokenizer=len)
    assert pilot.align([A]).request.tokens == 400


def raises(text):
    raise RuntimeError("no such model")


@pytest.mark.parametrize("tokenizer", [raises, lambda text: None, lambda text: text.encode("utf-8", "x")])
def test_a_tokenizer_that_fails_costs_only_exactness(tokenizer):
    pilot = ContextPilot(tokenizer=tokenizer)
    assert pilot.align([A]).request.tokens == 100
    assert pilot.failures == 1


def test_a_contexts_own_question_is_asked_unless_another_is_given():
    context = Context((A,), "Own?")
    assert ContextPilot().align(context).question == "Own?"
    assert ContextPilot().align(context, "Other?").question == "Other?"


def test_what_the_retrievers_order_would_have_had_is_counted_beside():
    pilot = ContextPilot(min_gain=0)
    for order in ([A, B], [B, A], [A, B]):
        pilot.align(order, "?")
    stats = pilot.stats()
    assert (stats.block_tokens, stats.predicted_cached_tokens, stats.retrieved_cached_tokens) == (600, 400, 200)


def test_pilots_can_share_an_index():
    index = LocalIndex()
    ContextPilot(index).align([A, B], "?")
    assert ContextPilot(index).align([B, A], "?").changed


def test_settings_come_from_the_environment_unless_given(monkeypatch):
    monkeypatch.setenv("CONTEXTPILOT_ORDER", "retrieved")
    assert ContextPilot().settings.order == "retrieved"
    assert ContextPilot(order="balanced").settings.order == "balanced"
    assert ContextPilot(settings=Settings()).settings.order == "balanced"


async def test_the_async_pilot_speaks_the_same_words():
    pilot = AsyncContextPilot(min_gain=0, namespace="acme", order_hint=True)
    first = await pilot.align([A, B], "?")
    second = await pilot.align([B, A], "?", key=7, order_hint=False)
    assert (first.changed, second.changed, second.request.key, second.order_hint) == (False, True, 7, None)
    assert await pilot.observe(second, Usage(10, 5)) == Usage(10, 5)
    assert (await pilot.stats()).requests == 2
    await pilot.forget("acme")
    assert (await pilot.stats()).namespaces == 0
    assert (pilot.failures, pilot.settings.min_gain) == (0, 0)
