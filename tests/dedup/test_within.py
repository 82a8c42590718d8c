"""Repeats within parts of a text: the rest stays as it is, byte for byte, and JSON stays JSON."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextpilot_rag.dedup.chunks import Originals, Repeats
from contextpilot_rag.dedup.marks import is_marked, shield
from contextpilot_rag.dedup.units import normal
from contextpilot_rag.errors import InputError
from tests.dedup.material import (
    CODE,
    EMOJI,
    LINES,
    SAME,
    SENTENCES,
    SOLID,
    TABLE,
    Hint,
    parted,
    read,
    restore,
    results,
    size,
    texts,
)

modes = st.booleans()
either = st.one_of(texts.map(lambda text: (text, None)), parted())
json_texts = st.one_of(texts, st.sampled_from((EMOJI, EMOJI[7:], SENTENCES, CODE, TABLE)))


def sent(originals, repeats=None, *, exact=False, **options):
    repeats = repeats or Repeats(exact=exact)
    return {
        f"[{number}]": repeats.add(f"[{number}]", text, within=spans, **options)
        for number, (text, spans) in enumerate(originals, start=1)
    }


def restored(found):
    originals = Originals()
    return [originals.add(place, text) for place, text in found.items()]


def hints(text):
    return [piece for piece in read(text) if isinstance(piece, Hint)]


@given(st.lists(either, max_size=5), modes, modes)
def test_every_text_is_restored_and_every_hint_is_true(given_texts, exact, whole):
    found = sent(given_texts, exact=exact, whole=whole)
    full = restored(found)
    for one, (text, _) in zip(full, given_texts, strict=True):
        assert one == text if exact else normal(one) == normal(text)
    if not any(spans is not None and is_marked(text) for text, spans in given_texts):
        assert list(restore(found).values()) == full


@given(st.lists(either, max_size=5), modes)
def test_hints_stand_inside_the_spans_alone(given_texts, whole):
    for (text, spans), found in zip(given_texts, sent(given_texts, exact=True, whole=whole).values(), strict=True):
        if spans is None or is_marked(text):
            continue
        at = 0
        for piece in read(found):
            if isinstance(piece, str):
                assert text.startswith(piece, at)
                at += len(piece)
                continue
            assert any(begin <= at and at + piece.length <= end for begin, end in spans)
            assert not whole or any(
                text[begin:end].strip() == text[at : at + piece.length].strip() for begin, end in spans
            )
            at += piece.length
        assert at == len(text)


@given(st.lists(either, max_size=5), modes)
def test_what_stands_outside_is_sent_as_it_is(given_texts, whole):
    for (text, spans), found in zip(given_texts, sent(given_texts, whole=whole).values(), strict=True):
        if spans is None or is_marked(text):
            continue
        bounds = [0, *(place for span in spans for place in span), len(text)]
        outside = [text[begin:end] for begin, end in zip(bounds[::2], bounds[1::2], strict=True)]
        assert re.fullmatch(".*?".join(map(re.escape, outside)), found, re.DOTALL)
        assert found == text or size(found) < size(text)


@given(st.lists(either, max_size=5), st.lists(either, max_size=3), modes, modes)
def test_what_is_sent_depends_only_on_what_stands_before(given_texts, more, exact, whole):
    before = sent(given_texts, exact=exact, whole=whole)
    after = sent([*given_texts, *more], exact=exact, whole=whole)
    assert list(after.values())[: len(before)] == list(before.values())


@given(st.lists(either, max_size=4), st.lists(either, max_size=3), st.lists(either, max_size=3), modes)
def test_what_was_taken_back_was_never_there(given_texts, dropped, more, whole):
    repeats, other = Repeats(), Repeats()
    sent(given_texts, repeats, whole=whole)
    sent(given_texts, other, whole=whole)
    mark = repeats.mark
    for text, spans in dropped:
        repeats.add("[77]", text, within=spans, whole=whole)
    repeats.back_to(mark)
    assert (repeats.hints, repeats.left_out) == (other.hints, other.left_out)
    for number, (text, spans) in enumerate(more, start=50):
        args = {"within": spans, "whole": whole}
        assert repeats.add(f"[{number}]", text, **args) == other.add(f"[{number}]", text, **args)


@given(st.lists(results(json_texts), max_size=4), modes, modes)
def test_json_stays_json_of_the_same_structure(given_texts, exact, whole):
    found = sent(given_texts, exact=exact, quoted=True, whole=whole)
    full = restored(found)
    for (text, _), one, one_sent in zip(given_texts, full, found.values(), strict=True):
        assert one == text if exact else normal(one) == normal(text)
        if is_marked(text):
            continue
        was, now = (json.loads(each)["results"] for each in (text, one_sent))
        assert [(item["id"], item["score"]) for item in now] == [(item["id"], item["score"]) for item in was]
        for item, item_was in zip(now, was, strict=True):
            assert item["text"] == item_was["text"] or hints(item["text"])
            if "\ud800" not in item_was["text"]:
                item["text"].encode()  # no pair of escapes is cut apart


@given(st.lists(st.one_of(results(json_texts), either), max_size=4))
def test_a_text_with_a_mark_of_ours_is_sent_in_full(given_texts):
    for (text, spans), found in zip(given_texts, sent(given_texts).values(), strict=True):
        if spans is not None and is_marked(text):
            assert found in (text, shield(text))


@pytest.mark.parametrize("change", SAME)
@pytest.mark.parametrize("passage", [TABLE, CODE, SENTENCES, SOLID, "\n".join(LINES)])
@pytest.mark.parametrize("frame", ["<doc>{}</doc>", "<doc>\n{}\n</doc>", '<doc index="2">{}  </doc>\n', "{}"])
def test_a_passage_is_found_wherever_it_stands(change, passage, frame):
    passage = passage.rstrip()
    before, after = frame.split("{}")
    text = before + change(passage) + after
    span = (len(before), len(text) - len(after))
    for first in ((passage, None), (passage + "\n", None), (f"a <b>{passage}</b>", [(5, 5 + len(passage))])):
        for whole in (False, True):
            repeats = Repeats()
            repeats.add("[1]", first[0], replace=False, within=first[1], whole=whole)
            found = repeats.add("[2]", text, within=[span], whole=whole)
            assert len(hints(found)) == 1
            assert found.startswith(before + "[same text as in [1] at ")
            assert found.endswith("]" + after)


@pytest.mark.parametrize("ascii_only", [False, True])
@pytest.mark.parametrize("passage", [TABLE, CODE, SENTENCES, EMOJI, "文字列は不変です。" * 70])
def test_a_string_that_comes_again_is_one_hint(passage, ascii_only):
    first, again = (f'[{number}, {json.dumps(passage, ensure_ascii=ascii_only)}, "{number}"]' for number in (1, 2))
    spans = [(5, len(again) - 7)]
    for whole in (False, True):
        repeats = Repeats()
        repeats.add("[1]", first, replace=False, within=spans, quoted=True, whole=whole)
        found = json.loads(repeats.add("[2]", again, within=spans, quoted=True, whole=whole))
        assert found[::2] == [2, "2"]
        assert re.fullmatch(r'\[same text as in \[1\] at 5: \d+ characters from "[^"]+"\] ?', found[1])


def test_parts_of_a_string_are_left_out():
    one, two = (json.dumps([text]) for text in (SENTENCES, "Something else. " * 40 + SENTENCES[200:1000] + EMOJI))
    found = sent([(one, [(2, len(one) - 2)]), (two, [(2, len(two) - 2)])], exact=True, quoted=True)["[2]"]
    assert len(hints(found)) >= 1
    assert restored({"[1]": one, "[2]": found})[1] == two
    (text,) = json.loads(found)
    assert text.startswith("Something else. ")


def test_as_a_whole_only_what_is_all_of_something_is_left_out():
    repeats = Repeats()
    for number, (text, spans, replaced) in enumerate(
        [
            (TABLE, None, False),
            (TABLE + CODE, None, False),
            (f"<a>{TABLE}</a>", [(3, 3 + len(TABLE))], True),
            (f"\n\n{CODE}", None, False),
            (CODE, None, True),
            (f"{SENTENCES} {SENTENCES}", [(0, len(SENTENCES))], False),
            (SENTENCES, None, True),
            ("short", None, False),
            ("short", None, False),
        ],
        start=1,
    ):
        found = repeats.add(f"[{number}]", text, within=spans, whole=True)
        assert bool(hints(found)) == replaced
    assert repeats.hints == 3


def test_what_is_sent_as_it_is_can_be_repeated_as_a_whole():
    repeats = Repeats()
    assert repeats.add("[1]", f"<a>{CODE}</a>", replace=False, within=[(3, 3 + len(CODE))], whole=True)
    assert len(hints(repeats.add("[2]", CODE, whole=True))) == 1


@pytest.mark.parametrize("spans", [[(2, 1)], [(0, 3), (2, 4)], [(3, 4), (0, 1)], [(0, 99)], [(-1, 2)]])
def test_spans_are_in_order_and_apart(spans):
    repeats = Repeats()
    with pytest.raises(InputError, match="in order"):
        repeats.add("[1]", "12345", within=spans)
    assert repeats.characters == 0


@pytest.mark.parametrize("whole", [False, True])
def test_blanks_at_the_end_of_a_line_are_not_put_where_a_text_goes_on(whole):
    repeats, originals = Repeats(), Originals()
    text = f"<a>{LINES[0]}\n{LINES[1]}</a>"
    found = repeats.add("[1]", f"{LINES[0]}\n{LINES[1]} \t\n", whole=whole)
    originals.add("[1]", found)
    found = repeats.add("[2]", text, within=[(3, len(text) - 4)], whole=whole)
    assert len(hints(found)) == 1
    assert originals.add("[2]", found) == text


def test_what_is_pointed_at_ends_where_a_part_ends():
    """The same lines go on behind it, but not behind the same line end."""
    passage, rest = "\n".join(LINES[:2]), f"\n{LINES[2]}\n" * 2
    repeats, originals = Repeats(), Originals()
    text = f"<a>{passage}{rest}"
    originals.add("[1]", repeats.add("[1]", text, within=[(3, 3 + len(passage))]))
    again = f"{passage}\n{rest}"
    found = repeats.add("[2]", again)
    assert LINES[0] not in found
    assert LINES[2] not in found
    assert originals.add("[2]", found) == again


@pytest.mark.parametrize("whole", [False, True])
def test_no_hint_stands_behind_a_backslash(whole):
    repeats, originals = Repeats(), Originals()
    originals.add("[1]", repeats.add("[1]", TABLE, whole=whole))
    text = f"a\\{TABLE}"
    found = repeats.add("[2]", text, within=[(2, len(text))], whole=whole)
    assert "\\[" not in found
    assert originals.add("[2]", found) == text


def test_nothing_points_at_a_whole_that_was_taken_back():
    repeats = Repeats()
    mark = repeats.mark
    repeats.add("[1]", TABLE, whole=True)
    repeats.back_to(mark)
    assert repeats.add("[2]", TABLE, whole=True) == TABLE
    assert len(hints(repeats.add("[3]", TABLE, whole=True))) == 1
