"""The wordings of the order hint: what they say, and that nothing of a block passes for words of ours in them."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextpilot_rag import AsyncContextPilot, ContextPilot
from contextpilot_rag.adapter import Adapter, hint_for
from contextpilot_rag.prompt.escape import escape
from contextpilot_rag.prompt.hints import RESERVED_PHRASES
from contextpilot_rag.prompt.parse import read_user
from contextpilot_rag.prompt.wording import LONGEST_QUOTE, best_sentence, hint, quoted, wording_of

SLICES = ("a", "Slices\nSlices count from zero. A step may be negative. " * 3)
SETS = ("b", "Sets\nSets have no order. They hold each thing once. " * 3)
WORDINGS = ["order", "best", "title", "sentence"]
TOLD = {
    "order": "Order of relevance, best first: [2] > [1]",
    "best": "Most relevant: [2]",
    "title": 'Most relevant: [2], which begins: "Sets"',
    "sentence": 'Most relevant: [2], which says: "They hold each thing once."',
}
marks = ['"', "\n", "\r\n", "\u2028", "\x85", "\x00", "\u202e", "\ud800", "[2]", "\\", "\u200b", ". ", "! ", " x "]
frames = ["</documents>", "<documents>", "<|im_end|>", "\uff1c/documents>"]
forging = st.sampled_from([*marks, *frames, *RESERVED_PHRASES])
texts = st.lists(forging | st.text(max_size=30), max_size=20).map("".join)


def moved(**options):
    pilot = ContextPilot(min_gain=0, **options)
    pilot.align([SLICES, SETS], "first")
    return pilot


@pytest.mark.parametrize("wording", WORDINGS)
def test_a_changed_order_is_told_in_the_wording_that_was_asked_for(wording):
    for prompt in (
        moved(order_hint=wording).align([SETS, SLICES], "What do they hold once?"),
        moved().align([SETS, SLICES], "What do they hold once?", order_hint=wording),
    ):
        assert (prompt.changed, prompt.order_hint) == (True, TOLD[wording])
        assert prompt.user_message.endswith(f"</documents>\n\n{TOLD[wording]}\n\nWhat do they hold once?")


async def test_true_and_false_mean_what_they_meant(monkeypatch):
    monkeypatch.setenv("CONTEXTPILOT_ORDER_HINT", "best")
    pilot = AsyncContextPilot.around(moved())
    assert (await pilot.align([SETS, SLICES], "?")).order_hint == TOLD["best"]
    assert (await pilot.align([SETS, SLICES], "?", order_hint=True)).order_hint == TOLD["order"]
    assert (await pilot.align([SETS, SLICES], "?", order_hint=False)).order_hint is None
    monkeypatch.delenv("CONTEXTPILOT_ORDER_HINT")
    assert (await AsyncContextPilot.around(moved()).align([SETS, SLICES], "?")).order_hint is None  # the default
    assert moved(order_hint=True).align([SLICES, SETS], "?").order_hint is None  # as retrieved


@pytest.mark.parametrize("wording", WORDINGS)
def test_a_conversation_tells_it_by_its_own_labels(wording):
    pilot = moved(order_hint=wording)
    turn = pilot.conversation().align([SETS, SLICES], "What do they hold once?")
    assert turn.order_hint == TOLD[wording]
    assert turn.user_message.endswith(f"{TOLD[wording]}\n\nWhat do they hold once?")
    assert turn.hint_for([7, 9]) == TOLD[wording].replace("[2]", "[9]").replace("[1]", "[7]")


@pytest.mark.parametrize("wording", WORDINGS)
def test_an_adapter_tells_it_too(wording):
    adapter = Adapter(ContextPilot(min_gain=0), order_hint=wording)
    adapter.arrange([SLICES[1], SETS[1]], "first")
    prompt = adapter.arrange([SETS[1], SLICES[1]], "What do they hold once?")
    assert prompt.order_hint == TOLD[wording]
    shown = [block.text for block in prompt.blocks]
    assert hint_for(prompt.order, prompt.wording, shown, prompt.question) == TOLD[wording]
    assert (hint_for([1, 0], None), hint_for([1, None], "best")) == (None, None)


def test_without_texts_the_best_block_is_named():
    assert {hint(wording, [1, 0]) for wording in WORDINGS[1:]} == {TOLD["best"]}
    assert hint(None, [1, 0]) is hint("best", [0, 1]) is hint("best", []) is None
    assert [wording_of(one) for one in (True, False, "title")] == ["order", None, "title"]


@given(texts, texts, st.sampled_from(["title", "sentence"]))
def test_a_quote_forges_nothing_and_stays_on_its_line(text, question, wording):
    said = hint(wording, [1, 0], None, ["", text], question)
    assert len(said.splitlines()) == 1
    found = re.fullmatch(r'Most relevant: \[2\](?:, which (?:says|begins): "([^"]+)")?', said, re.DOTALL)
    assert found
    quote = found[1] or ""
    assert len(quote) <= 2 * LONGEST_QUOTE + 4
    assert not re.search(r"(?<!\\)[<\uff1c][/\uff0f]?documents", quote)
    assert "<|im_end|>" not in quote
    assert not escape(f"{quote}\n").startswith("\\") or quote.startswith("\\")


@given(texts, texts)
def test_a_message_with_a_quoting_hint_is_read_back(text, question):
    prompt = moved(order_hint="sentence").align([("c", text or "x"), SETS, SLICES], "Why?" + question)
    blocks, rest = read_user(prompt.user_message, ())
    assert [block.text for block in blocks] == [block.text for block in prompt.blocks]
    assert rest == "".join(f"\n\n{part}" for part in (prompt.order_hint, prompt.question) if part)


@given(texts)
def test_quoting_keeps_short_texts_but_for_blanks_quotes_and_backslashes(text):
    plain = text.replace('"', "'").replace("\\", "").split()
    words = quoted(text).replace("\\", "").split()
    assert words == plain or (words[-1] == "..." and words[:-1] == plain[: len(words) - 1]) or len(text) > LONGEST_QUOTE


@given(texts, texts)
def test_the_sentence_is_one_of_the_texts_and_has_most_words_of_the_question(text, question):
    found = best_sentence(text, question)
    assert found in text
    assert "\n" not in found
    assert found == found.strip()
    shared = [len(words(part) & words(question)) for part in re.split(r"(?<=[.!?])\s+|\n", text) if part.strip()]
    assert len(words(found) & words(question)) == max(shared, default=0)


def test_a_text_of_blanks_is_gone_over_once():
    blank = " " * 200_000
    assert best_sentence(f"{blank}x{blank}y", "y").endswith("y")


def words(text):
    return set(re.findall(r"\w+", text.lower()))
