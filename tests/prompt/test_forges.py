from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from contextpilot_rag.prompt.escape import escape, forges
from contextpilot_rag.prompt.hints import RESERVED_PHRASES

letters = sorted({*"".join(RESERVED_PHRASES)})
unseen = st.sampled_from(["", " ", "\u200b", "\t", "\u0301"])
spelled = st.sampled_from(RESERVED_PHRASES).flatmap(
    lambda phrase: st.lists(unseen, min_size=len(phrase), max_size=len(phrase)).map(
        lambda between: "".join(a + b for a, b in zip(phrase, between, strict=True))
    )
)
pieces = st.one_of(
    spelled, spelled.map(str.upper), st.sampled_from(["\n", "\r\n", " ", "\\", "a", "\u2028", "\ud800", "é"])
)


@given(st.lists(pieces, max_size=6).map("".join))
def test_a_text_forges_a_hint_where_escaping_would_change_it(text):
    assert forges(text) == (escape(text) != text)


@given(st.text([*letters, *"\n x"], max_size=60))
def test_so_it_is_with_letters_of_hints(text):
    assert forges(text) == (escape(text) != text)
