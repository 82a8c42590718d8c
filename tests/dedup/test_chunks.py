"""Repeats and Originals: nothing is lost, every hint is true and shorter than what it stands for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextpilot_rag.dedup.chunks import Originals, Repeats
from contextpilot_rag.dedup.marks import shield
from contextpilot_rag.dedup.units import normal
from contextpilot_rag.errors import BrokenHint, TextTooLong
from tests.dedup.material import (
    CODE,
    LINES,
    SAME,
    SENTENCES,
    SOLID,
    TABLE,
    Hint,
    another_digit,
    indented,
    padded,
    read,
    restore,
    size,
    texts,
    windows,
)

several = st.lists(texts, max_size=6)
modes = st.booleans()


def sent(originals, repeats=None, **options):
    repeats = repeats or Repeats(**options)
    return {f"[{number}]": repeats.add(f"[{number}]", text) for number, text in enumerate(originals, start=1)}


@given(several, modes)
def test_every_text_is_restored(given_texts, exact):
    originals = Originals()
    for (place, found), text in zip(sent(given_texts, exact=exact).items(), given_texts, strict=True):
        restored = originals.add(place, found)
        assert restored == text if exact else normal(restored) == normal(text)


@given(several, modes)
def test_a_slow_reader_restores_the_same_and_every_hint_points_at_text_that_was_sent(given_texts, exact):
    found = sent(given_texts, exact=exact)
    originals = Originals()
    assert restore(found) == {place: originals.add(place, text) for place, text in found.items()}


@given(several, modes)
def test_nothing_gets_longer(given_texts, exact):
    for text, found in zip(given_texts, sent(given_texts, exact=exact).values(), strict=True):
        assert found == shield(text) or size(found) < size(shield(text))


@given(several, several, modes)
def test_what_is_sent_depends_only_on_what_stands_before(given_texts, more, exact):
    before, after = sent(given_texts, exact=exact), sent([*given_texts, *more], exact=exact)
    assert list(after.values())[: len(before)] == list(before.values())


@given(several, modes)
def test_what_hints_restore_would_have_been_sent_the_same(given_texts, exact):
    """So a conversation can go on from what was sent, without the originals."""
    found = sent(given_texts, exact=exact)
    assert sent(restore(found).values(), exact=exact) == found


@given(several, modes, st.lists(st.booleans(), min_size=6))
def test_texts_that_are_sent_as_they_are_can_be_pointed_at(given_texts, exact, as_they_are):
    repeats, originals = Repeats(exact=exact), Originals()
    for number, (text, as_it_is) in enumerate(zip(given_texts, as_they_are, strict=False), start=1):
        place = f"message {number}"
        found = repeats.add(place, text, replace=not as_it_is)
        if as_it_is:
            assert found == originals.note(place, text) == text
        else:
            assert normal(originals.add(place, found)) == normal(text)


@given(st.permutations([line for line in LINES if len(line) > 60] * 4), st.sampled_from((1, 3, 12)))
def test_a_line_that_is_long_enough_is_sent_once(lines, per_text):
    lines = [line * 2 for line in lines]
    given_texts = ["\n".join(lines[at : at + per_text]) for at in range(0, len(lines), per_text)]
    everything = "\n".join(sent(given_texts).values())
    for line in lines:
        assert everything.count(line) == 1


@pytest.mark.parametrize("change", SAME)
@pytest.mark.parametrize("text", [TABLE, CODE, SENTENCES, SOLID, "\n".join(LINES)])
def test_a_text_that_comes_again_is_one_hint(text, change):
    repeats = Repeats()
    repeats.add("message 1", text, replace=False)
    again = repeats.add("message 2", change(text))
    assert [type(piece) for piece in read(again) if not isinstance(piece, str) or piece.strip()] == [Hint]


@pytest.mark.parametrize("change", [windows, padded])
@pytest.mark.parametrize("text", [TABLE, CODE, "\n".join(LINES)])
def test_exact_takes_no_other_form_for_the_same(text, change):
    found = sent([text, change(text)], exact=True)
    assert not [piece for piece in read(found["[2]"]) if isinstance(piece, Hint) and piece.place == "[1]"]
    assert restore(found)["[2]"] == change(text)


def test_a_part_is_found_at_any_place_of_one_long_line():
    """100 kB without a line's end; the second text has the same sentences elsewhere, between others."""
    line = "".join(
        f"Item {number} of {number * 7919 % 1009} was counted on day {number % 31}. " for number in range(2500)
    )
    again = "Something else. " * 40 + line[30_000:70_000] + "And on. " * 20 + line[:10_000]
    assert len(line) > 90_000
    assert len(sent([line, again])["[2]"]) < 3_000
    assert len(sent([line + again])["[1]"]) < len(line) + 3_000


def test_a_text_repeats_itself():
    assert len(sent([TABLE + CODE + TABLE])["[1]"]) < len(TABLE + CODE) + 100


@pytest.mark.parametrize(("text", "change"), [(TABLE, another_digit), (CODE, indented), (SENTENCES, another_digit)])
def test_what_differs_in_a_digit_or_an_indent_is_sent(text, change):
    changed = change(text)
    line = next(new for new, old in zip(changed.split("\n"), text.split("\n"), strict=True) if new != old)
    found = sent([text, changed])["[2]"]
    assert (line in found) if len(line) < 400 else (line[:20] in found)
    assert restore(sent([text, changed]))["[2]"] == changed


@pytest.mark.parametrize("end", ["\x0b", "\x0c", "\x1c", "\x85", "\u2028", "\xa0\n", "\u3000\n"])
def test_only_blanks_and_line_ends_count_for_nothing_at_the_end_of_a_line(end):
    text = LINES[0] * 2
    assert text + end in sent([text + "\n", text + end + "and on"])["[2]"]


@pytest.mark.parametrize("text", ["", " ", "\n", "\r\n", "\t\n" * 50, " " * 5000, "\\" * 5000, "\ud800" * 500])
def test_empty_and_blank_texts(text):
    found = sent([text, text, LINES[0] + text, LINES[0] + text], exact=True)
    assert list(restore(found).values()) == [text, text, LINES[0] + text, LINES[0] + text]


def test_a_backslash_before_a_part_does_not_shield_its_hint():
    assert restore(sent([SOLID, "\\" * 480 + SOLID]))["[2]"] == "\\" * 480 + SOLID


def test_a_line_end_is_never_cut():
    text = "x" * 479 + "\r\n"
    assert restore(sent([text, text], exact=True))["[2]"] == text


def test_a_text_that_is_too_long_changes_nothing():
    repeats, other = Repeats(max_text=1000), Repeats(max_text=1000)
    with pytest.raises(TextTooLong, match=r"1,001 characters; at most 1,000"):
        repeats.add("[9]", "x" * 1001)
    for number, text in enumerate([TABLE, CODE, TABLE], start=1):
        assert repeats.add(f"[{number}]", text) == other.add(f"[{number}]", text)


@given(several)
def test_beyond_the_limit_texts_are_sent_in_full(given_texts):
    found = sent([*given_texts, *given_texts], max_characters=sum(map(len, given_texts)))
    for place, text in enumerate(given_texts):
        assert list(found.values())[place] == list(sent(given_texts).values())[place]
        assert list(found.values())[place + len(given_texts)] == shield(text)
    originals = Originals()
    for (place, one), text in zip(found.items(), [*given_texts, *given_texts], strict=True):
        assert normal(originals.add(place, one)) == normal(text)


@given(several)
def test_what_is_left_out_is_counted(given_texts):
    repeats = Repeats()
    found = sent(given_texts, repeats)
    assert repeats.left_out == sum(map(len, map(shield, given_texts))) - sum(map(len, found.values())) or any(
        "[same text as in " in text
        for text in given_texts  # shields of what is left out are not counted
    )


@pytest.mark.parametrize(
    "sent_text",
    [
        '[same text as in [1] at 0: 5 characters from "x"]',
        '[same text as in [2] at 0: 1 characters from "x"]',
        '[same text as in message 1 at 0: 1 characters from "x"]',
    ],
)
def test_a_hint_to_nothing_is_an_error(sent_text):
    originals = Originals()
    originals.add("[1]", "four")
    with pytest.raises(BrokenHint, match="not there"):
        originals.add("[2]", sent_text)
