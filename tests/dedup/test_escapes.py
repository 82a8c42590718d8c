"""Raw JSON strings are cut between escapes."""

from __future__ import annotations

import json
import re
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from contextpilot_rag.dedup.escapes import between_escapes, plain_words
from tests.dedup.material import EMOJI, texts

raws = st.one_of(
    st.builds(
        lambda text, ascii_only: json.dumps(text, ensure_ascii=ascii_only)[1:-1],
        st.one_of(texts, st.just(EMOJI), st.text('\\"\n\0é\U0001f600a ', max_size=40)),
        st.booleans(),
    ),
    st.text('\\u"a0d8cn', max_size=60),
)


def cut(text, places):
    bounds = [0, *sorted({place % (len(text) + 1) for place in places} - {0, len(text)}), len(text)]
    return [text[begin:end] for begin, end in pairwise(bounds) if end > begin]


@given(raws, st.lists(st.integers(0, 10_000), max_size=30))
def test_no_escape_is_cut_and_nothing_is_lost(raw, places):
    pieces = cut(raw, places)
    found = between_escapes(pieces)
    assert "".join(found) == raw
    ends = {0}
    for escape in re.finditer(r"\\u[0-9a-fA-F]{4}|\\.|[^\\]|\\$", raw, re.DOTALL):
        ends.add(escape.end())
    at = 0
    for piece in found:
        assert piece
        at += len(piece)
        assert at in ends
        earlier_half = re.search(r"\\u[dD][89abAB]..$", raw[:at])
        assert not (earlier_half and re.match(r"\\u[dD][c-fC-F]", raw[at:])), "a pair is cut"


@given(raws, st.lists(st.integers(0, 10_000), max_size=30))
def test_a_cut_between_escapes_stays(raw, places):
    pieces = between_escapes(cut(raw, places))
    assert between_escapes(pieces) == pieces


def test_long_strings_of_odd_shapes():
    for shape in ("\\" * 200_000, "\\u00e9" * 40_000, "\\ud83d\\ude00" * 20_000, "\\ud83d" * 40_000, "\\u12" * 40_000):
        pieces = [shape[at : at + 100] for at in range(0, len(shape), 100)]
        assert "".join(between_escapes(pieces)) == shape
        assert len(plain_words(shape, 48)) <= 48
