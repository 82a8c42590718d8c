from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextpilot_rag.dedup.marks import hint, masked, quote, reveal, reveal_within, revealed_as_is, shield
from contextpilot_rag.errors import BrokenHint
from contextpilot_rag.prompt.escape import escape, unescape
from tests.dedup.material import HOSTILE, Hint, hostile, read, texts

places = st.one_of(
    st.integers(1, 10**6).map("[{}]".format),
    st.integers(1, 10**6).map("message {}".format),
    st.tuples(st.integers(1, 99), st.integers(1, 99)).map(lambda two: f"message {two[0]}, part {two[1]}"),
)
anything = st.one_of(texts, hostile, st.text(), st.text('\\"[]\n\r\u2028\x85 a', max_size=60))


def never(*_):
    raise AssertionError("there is no hint")


@given(anything)
def test_shielded_text_holds_no_hint_and_comes_back(text):
    assert reveal(shield(text), never) == text
    assert "".join(read(shield(text))) == text


@given(st.lists(st.sampled_from(HOSTILE), max_size=8).map("".join))
def test_shielding_twice_is_undone_twice(text):
    assert reveal(reveal(shield(shield(text)), never), never) == text


@given(anything, places, st.integers(0, 10**9), anything.filter(bool), anything)
def test_a_hint_is_found_between_any_texts(before, place, start, part, after):
    words = hint(place, start, part)
    if before.endswith("\\"):
        before += " "
    found = []

    def part_at(*asked):
        found.append(asked[:3])
        return part

    assert reveal(shield(before) + words + shield(after), part_at) == before + part + after
    assert found == [(place, start, len(part))]
    assert Hint(place, start, len(part), quote_of(part)) in read(words)


def quote_of(part):
    (found,) = (piece for piece in read(hint("[1]", 0, part)) if isinstance(piece, Hint))
    return found.quoted


@given(anything.filter(bool))
def test_a_quote_is_one_short_line_that_stands_in_the_part(part):
    assert len(quote(part).splitlines()) == 1
    assert len(quote_of(part)) <= 48
    assert quote_of(part) in part


@given(anything, anything.filter(bool), anything)
def test_hints_survive_the_escaping_of_blocks(before, part, after):
    text = shield(before) + " " + hint("[3]", 7, part) + shield(after)
    assert unescape(escape(text)) == text


@given(st.text("ab\r\n\u2028\x85", min_size=1), st.data())
def test_a_part_of_the_same_text_is_found_with_any_line_ends(text, data):
    start = data.draw(st.integers(0, len(text) - 1))
    part = text[start : data.draw(st.integers(start + 1, len(text)))]
    sent = text + hint("[1]", start, part) + text
    assert reveal(sent, lambda place, start, length, of_this: of_this(start, length)) == text + part + text


@pytest.mark.parametrize(
    ("part", "quoted"),
    [
        ("1. DEFINITIONS\nIn this agreement", '"1. DEFINITIONS"'),
        ("\n  \n---\n  Totals: \nmore", '"Totals:"'),
        ("-----\n=====", '"-----\\n====="'),
        ("a word " * 20, '"a word a word a word a word a word a word a"'),
        ('say "no"', '"say \\"no\\""'),
        ("zero\x85\u2028width", '"zero\\u0085\\u2028width"'),
    ],
)
def test_the_first_line_that_says_something_is_quoted(part, quoted):
    assert quote(part) == quoted


def test_a_quote_is_found_fast_where_there_are_no_words():
    assert quote("-=" * 10**6) == f'"{"-=" * 24}"'


@given(anything, places, st.integers(0, 10**9), anything, anything)
def test_a_hint_in_a_json_string_leaves_it_one_and_is_found(before, place, start, part, after):
    before, raw, after = (json.dumps(text)[1:-1] for text in (before, part, after))
    words = hint(place, start, raw, quoted=True)
    assert words == "" or isinstance(json.loads(f'"{before}{words}{after}"'), str)
    if not words or before.endswith("\\"):
        return
    found = []

    def part_at(*asked):
        found.append(asked[:3])
        return raw

    assert reveal(shield(before) + words + shield(after), part_at) == before + raw + after
    assert found == [(place, start, len(raw))]
    (read_back,) = (piece for piece in read(words) if isinstance(piece, Hint))
    assert read_back.quoted
    assert read_back.quoted in raw


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (r"1. DEFINITIONS\nIn this agreement", "1. DEFINITIONS"),
        (r"\n\u00a7 Totals of", "Totals of"),
        (r"\u6587\u5b57", "u6587"),
        (r"say \"no\"", "say"),
        (r"\\\\", ""),
        ("a word " * 20, "a word a word a word a word a word a word a"),
    ],
)
def test_what_needs_no_escape_is_quoted_in_json(raw, words):
    found = hint("[1]", 0, raw, quoted=True)
    assert found == (f'[same text as in [1] at 0: {len(raw)} characters from \\"{words}\\"]' if words else "")


@given(anything)
def test_a_text_that_is_revealed_as_it_is_says_so(text):
    if revealed_as_is(text):
        assert reveal(text, never) == text
    else:
        assert "[same text as in " in text


@given(anything, anything)
def test_a_masked_text_has_the_same_length_and_no_hint(before, after):
    text = shield(before) + " " + hint("[3]", 7, "<a> part") + shield(after)
    found = masked(text)
    assert len(found) == len(text)
    assert found.startswith(shield(before) + " xxx")
    assert found.endswith("xxx" + shield(after))
    assert reveal(found, never) == before + " " + "x" * len(hint("[3]", 7, "<a> part")) + after


def test_only_inside_spans_hints_are_followed_and_nothing_is_unshielded():
    words = hint("[1]", 0, "some words")
    text = f"{words} a {words} b {words} \\{words}"
    begin = text.index("a ")
    spans = [(begin, text.index("b ")), (text.index("\\"), len(text))]
    assert reveal_within(text, spans, lambda *_: "some words") == text.replace(f"a {words}", "a some words")
    assert reveal_within(text, [(begin, text.index("b ") - 2)], lambda *_: "some words") == text
    with pytest.raises(BrokenHint, match="other words"):
        reveal_within(text, spans, lambda *_: "other words")
