"""Repeating: what a request's texts repeat is left out where it may be, and `expand` gives it back."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextpilot_rag.dedup.marks import is_marked, shield
from contextpilot_rag.dedup.units import normal
from contextpilot_rag.expand import expand
from contextpilot_rag.proxy.repeating import Repeating
from contextpilot_rag.proxy.words import Text
from tests.dedup.material import CODE, HOSTILE, SENTENCES, TABLE, Hint, hostile, read, results, texts

ROLES = ("system", "user", "assistant", "tool")
OPEN, CLOSE = "\u27e6", "\u27e7"  # what these conversations frame their documents with


@dataclass(frozen=True)
class Said:
    """A message with one text, or several parts, and where in each anything may be replaced."""

    role: str
    texts: tuple[str, ...]
    quoted: bool = False
    in_parts: bool = False


def spans_of(text):
    return [found.span(1) for found in re.finditer(f"{OPEN}([^{OPEN}{CLOSE}]*){CLOSE}", text)]


def within(role, text):
    return spans_of(text) if role in {"system", "user"} else []


plain = texts.map(lambda text: text.replace(OPEN, "").replace(CLOSE, ""))
framed = st.lists(plain, min_size=1, max_size=5).map(
    lambda some: "".join(f"{OPEN}{text}{CLOSE}\n" if place % 2 else text for place, text in enumerate(some))
)
passages = st.one_of(plain, framed, st.sampled_from((CODE, TABLE, SENTENCES)))
said = st.one_of(
    st.builds(
        lambda role, some, in_parts: Said(role, tuple(some) if in_parts else tuple(some[:1]), in_parts=in_parts),
        st.sampled_from(ROLES),
        st.lists(passages, min_size=1, max_size=2),
        st.booleans(),
    ),
    st.builds(lambda found: Said("tool", (found[0],), quoted=True), results(plain)),
)
conversations = st.lists(said, max_size=6)
levels = st.sampled_from(["off", "blocks", "blocks+chunks"])


def strings_of(text):
    """The insides of the texts of our results."""
    return [found.span(1) for found in re.finditer(r'"text": "((?:[^"\\]|\\.)*)", "score"', text, re.DOTALL)]


def taken(given_messages, repeating):
    """What is sent, and the messages that it is sent in; each with the texts as they were."""
    before, after = [], []
    for number, message in enumerate(given_messages, start=1):
        sent = []
        for place, text in enumerate(message.texts, start=1):
            part = place if message.in_parts else None
            path = ("messages", number - 1, "content", *((place - 1, "text") if message.in_parts else ()))
            spans = strings_of(text) if message.quoted else spans_of(text) or None
            sent.append(repeating.take(Text(message.role, number, part, text, path), text, spans, message.quoted))
        for messages, some in ((before, message.texts), (after, sent)):
            content = [{"type": "text", "text": text} for text in some] if message.in_parts else some[0]
            messages.append({"role": message.role, "content": content})
    return before, after


def texts_of(messages):
    for message in messages:
        content = message["content"]
        yield from ([content] if isinstance(content, str) else [part["text"] for part in content])


@given(conversations, st.sampled_from(["blocks", "blocks+chunks"]), st.booleans())
def test_expand_gives_everything_back(given_messages, level, normalise):
    before, after = taken(given_messages, Repeating(level, normalise, 10**6))
    for was, now in zip(before, expand(after, within), strict=True):
        ours = next(texts_of([was])).startswith("<documents>\n") and was["role"] == "user"
        for text, full in zip(texts_of([was]), texts_of([now]), strict=True):
            assert ours or (normal(full) == normal(text) if normalise else full == text)


@given(conversations, levels, st.booleans())
def test_what_may_not_be_changed_is_not(given_messages, level, normalise):
    before, after = taken(given_messages, Repeating(level, normalise, 10**6))
    for message, was, now in zip(given_messages, texts_of_each(before), texts_of_each(after), strict=True):
        for text, sent in zip(was, now, strict=True):
            may_change = level != "off" and (message.role == "tool" or (message.role != "assistant" and spans_of(text)))
            assert may_change or sent == text
            if message.role == "tool" and not message.quoted and not spans_of(text):
                continue
            if may_change and not is_marked(text):
                assert outside(sent, message.quoted) == outside(text, message.quoted)


def texts_of_each(messages):
    return [list(texts_of([message])) for message in messages]


def outside(text, quoted):
    """A text without what stands in its spans."""
    for begin, end in reversed(strings_of(text) if quoted else spans_of(text)):
        text = text[:begin] + text[end:]
    return text


@given(conversations, levels, st.booleans())
def test_json_stays_json(given_messages, level, normalise):
    before, after = taken(given_messages, Repeating(level, normalise, 10**6))
    for message, (was, *_), (now, *_) in zip(given_messages, texts_of_each(before), texts_of_each(after), strict=True):
        if message.quoted and not is_marked(was):
            results_was, results_now = (json.loads(text)["results"] for text in (was, now))
            assert [list(item) for item in results_now] == [list(item) for item in results_was]


@given(conversations, conversations, levels, st.booleans())
def test_history_sent_again_becomes_the_same_bytes(given_messages, more, level, normalise):
    _, first = taken(given_messages, Repeating(level, normalise, 10**6))
    _, again = taken([*given_messages, *more], Repeating(level, normalise, 10**6))
    assert again[: len(first)] == first


@given(conversations, st.sampled_from(["blocks", "blocks+chunks"]))
def test_a_hint_points_at_text_that_stands_in_full_before_it(given_messages, level):
    """A slow reader: which characters of each text were sent as they are."""
    repeating = Repeating(level, False, 10**6)
    _, after = taken(given_messages, repeating)
    if any(is_marked(text) for message in given_messages for text in message.texts):
        return
    full, plainly, hints = {}, {}, 0
    for number, message in enumerate(after, start=1):
        for part, text in enumerate(texts_of([message]), start=1):
            place = f"message {number}" if isinstance(message["content"], str) else f"message {number}, part {part}"
            full[place], plainly[place] = "", []
            for piece in read(text):
                if isinstance(piece, str):
                    full[place] += piece
                    plainly[place] += [message["role"] != "assistant"] * len(piece)
                    continue
                hints += 1
                there = slice(piece.start, piece.start + piece.length)
                words = full[piece.place][there]
                assert len(words) == piece.length > 0
                assert all(plainly[piece.place][there])
                assert piece.quoted in words
                full[place] += words
                plainly[place] += [False] * len(words)
    assert repeating.replaced == hints
    assert repeating.left_out >= 0
    assert hints or repeating.left_out == 0


def take(repeating, role, number, text, spans=None):
    return repeating.take(Text(role, number, None, text, ()), text, spans, quoted=False)


@pytest.mark.parametrize("level", ["off", "blocks", "blocks+chunks"])
@pytest.mark.parametrize("role", ROLES)
def test_results_repeat_what_anybody_but_the_model_said(level, role):
    repeating = Repeating(level, True, 10**6)
    assert take(repeating, role, 1, CODE) == CODE
    again = take(repeating, "tool", 2, CODE)
    assert again.startswith("[same text as in message 1 at 0") == (level != "off" and role != "assistant")
    assert (repeating.replaced, repeating.left_out) == (
        (1, len(CODE.rstrip()) - len(again.rstrip())) if again != CODE else (0, 0)
    )


def test_a_part_is_left_out_at_the_level_of_chunks_alone():
    for level, hints in (("blocks", 0), ("blocks+chunks", 1)):
        repeating = Repeating(level, True, 10**6)
        take(repeating, "tool", 1, TABLE + "one\n")
        take(repeating, "tool", 2, "two\n" + TABLE)
        assert repeating.replaced == hints


def test_a_block_of_a_user_that_a_tool_gave_before_is_left_out():
    for level in ("blocks", "blocks+chunks"):
        repeating = Repeating(level, True, 10**6)
        take(repeating, "tool", 1, TABLE)
        text = f"<a>{TABLE}</a> {TABLE}"
        sent = take(repeating, "user", 2, text, [(3, 3 + len(TABLE))])
        assert [type(piece) for piece in read(sent)] == [str, Hint, str]
        assert sent.endswith(f"</a> {TABLE}")


@pytest.mark.parametrize("text", HOSTILE)
def test_a_text_that_is_too_long_passes_and_nothing_repeats_it(text):
    text = f"{text}{SENTENCES}"
    repeating = Repeating("blocks+chunks", True, len(text) - 1)
    assert take(repeating, "user", 1, text) == text
    assert take(repeating, "user", 2, text, [(0, len(text))]) == text
    assert take(repeating, "tool", 3, text) == shield(text)
    assert take(repeating, "tool", 4, SENTENCES) == SENTENCES
    assert repeating.replaced == 0


@given(st.lists(st.tuples(st.sampled_from(ROLES), hostile), max_size=6))
def test_hostile_texts_break_nothing(given_texts):
    repeating = Repeating("blocks+chunks", True, 10**6)
    for number, (role, text) in enumerate(given_texts, start=1):
        sent = take(repeating, role, number, text, [(0, len(text))] if role != "tool" else None)
        if role == "assistant" or (role != "tool" and is_marked(text)):
            assert sent == text
