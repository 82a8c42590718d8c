"""NFC as Python has it, for whatever anybody writes; and texts that only hurt are done with as fast as others."""

from __future__ import annotations

import sys
import unicodedata

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from contextpilot_rag import ContextPilot, expand
from contextpilot_rag.dedup import composed as module
from contextpilot_rag.dedup.chunks import Originals, Repeats
from contextpilot_rag.dedup.composed import composed, is_composed, is_piled
from contextpilot_rag.dedup.units import normal, units

HIGH, LOW = "\u0301", "\u0316"
SCRIPTS = (
    "e\u0301 \u00e9\u0316 a\u030a\u0323 \u1e69 \u0958 \u0915\u093c\u094d \u1112\u1161\u11ab \ud55c\ud558\u11ab"
    "\u304b\u3099 \u0bc6\u0bbe\u0b95 \u0f40\u0f71\u0f72\u0f73 \u05e9\u05c1\u05bc \u0628\u0651\u064e \u1025\u102e"
    "\u0344 \u212b \ufb2c \u0dd9\u0dca\u0dcf \u1fa7 \u034f \u200d \U0001f468\U0001f3fd \U00011099\U000110ba"
    "\U0001d15e\U0001d165 \u0e33\u0e49 \n\r"
)
written = st.one_of(
    st.text(), st.text(SCRIPTS, max_size=80), st.text("\u0915\u093c\u0bc6\u0bbe\u1161\u11ab" + HIGH, max_size=80)
)
piles = st.lists(
    st.one_of(st.text(SCRIPTS, max_size=6), st.text(HIGH + LOW + "\u0344\u0f73", min_size=25, max_size=40)), max_size=6
).map("".join)


@pytest.fixture(params=[module._PIECE, 3])
def piece(request, monkeypatch):
    monkeypatch.setattr(module, "_PIECE", request.param)


def forms(text):
    return [unicodedata.normalize("NFC", text), unicodedata.normalize("NFD", text)]


def test_what_is_called_a_letter_begins_something_in_every_text():
    joining = set()
    for letter in map(chr, range(sys.maxunicode + 1)):
        parts = unicodedata.decomposition(letter).split()
        if len(parts) == 2 and not parts[0].startswith("<"):
            joining.add(chr(int(parts[1], 16)))
    joining |= {chr(number) for number in range(0x1161, 0x11C3)}  # Hangul is joined by rule
    assert len(joining) > 50
    for letter in map(chr, range(sys.maxunicode + 1)):
        if module._LETTER.match(letter):
            assert letter not in joining
            assert not unicodedata.combining(unicodedata.normalize("NFD", letter)[0])


def test_no_letter_is_taken_apart_into_more_marks_than_thought():
    for letter in map(chr, range(sys.maxunicode + 1)):
        parts = unicodedata.normalize("NFD", letter)
        assert sum(map(bool, map(unicodedata.combining, parts))) <= (3 if not unicodedata.combining(parts[0]) else 2)
        if not module._LETTER.match(letter):
            assert sum(map(bool, map(unicodedata.combining, parts))) <= 2


@settings(deadline=None)
@given(written)
@example("e" + 15 * (HIGH + LOW))
def test_it_is_nfc_for_whatever_is_written(text):
    if not is_piled(text):
        assert composed(text) == unicodedata.normalize("NFC", text)
        assert {composed(form) for form in forms(text)} == {composed(text)}
    assert is_composed(text) == unicodedata.is_normalized("NFC", text)


@pytest.mark.usefixtures("piece")
def test_pieces_do_not_show():
    for text in (SCRIPTS, SCRIPTS[::-1], "e" + 40 * (HIGH + LOW) + SCRIPTS, "x\u00e9" + LOW + HIGH):
        for form in (text, *forms(text)):
            assert composed(form) == module._composed(form)
            assert is_composed(form) == unicodedata.is_normalized("NFC", form)
        assert "".join(module._pieces(text)) == text


@settings(deadline=None)
@given(piles)
@example("\u1f82" + 28 * HIGH)
@example("\r" + 40 * (HIGH + LOW) + " \r\n\u1112\u1161" + 40 * (HIGH + LOW))
def test_it_is_done_with_the_first_time(text):
    once = composed(text)
    assert composed(once) == once
    assert normal(normal(text)) == normal(text)
    assert len({is_piled(form) for form in (text, once, *forms(text))}) == 1
    assert unicodedata.normalize("NFC", once) == unicodedata.normalize("NFC", text)
    assert "".join(units(text, composed=False)) == text


@settings(deadline=None)
@given(st.lists(piles, min_size=1, max_size=3), st.booleans())
def test_repeats_of_piles_come_back(texts, decomposed):
    long = "A sentence that is long enough to be pointed at, and which is said again and again. "
    given_texts = [long * 2 + text + long for text in texts]
    if decomposed:
        given_texts += [unicodedata.normalize("NFD", text) for text in given_texts]
    repeats, originals = Repeats(), Originals()
    for number, text in enumerate(given_texts):
        assert normal(originals.add(f"[{number}]", repeats.add(f"[{number}]", text))) == normal(text)


@pytest.mark.no_cover  # a line that is counted takes twice as long
@pytest.mark.parametrize(
    "text",
    [
        (HIGH + LOW) * 1_000_000,
        "e" + (HIGH + LOW) * 1_000_000,
        "\u0915" + ("\u0f71\u0f72\u0f73" * 300_000),
        ("e" + (HIGH + LOW) * 15 + LOW) * 60_000,
        ("e" + (HIGH + LOW) * 15) * 60_000,
        "\u1161" * 1_000_000 + HIGH + LOW,
        ("\u0f40" * 13 + "x") * 100_000 + "e" + HIGH,
    ],
    ids="marks letter tibetan piles almost jamo short".split(),
)
def test_a_long_text_of_marks_takes_no_time(text):
    """A few seconds for all that is asked of it; with marks in order as Python has it, a million would take hours."""
    is_composed(text)
    is_piled(text)
    assert normal(normal(text)) == normal(text)


@pytest.mark.no_cover
def test_a_pilot_takes_them_too():
    pile = "e" + (HIGH + LOW) * 200_000
    request = ContextPilot().align([pile, "b", pile + "c"], "Why?")
    assert pile in request.user_message
    messages = request.messages()
    assert expand(messages) == messages
