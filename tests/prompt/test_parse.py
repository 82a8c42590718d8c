"""read_user: what was rendered is read back, whatever the blocks and the question hold."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextpilot_rag.dedup.chunks import Originals, Repeats
from contextpilot_rag.dedup.marks import reveal
from contextpilot_rag.dedup.units import normal
from contextpilot_rag.prompt.hints import order_hint
from contextpilot_rag.prompt.parse import ReadBlock, read_user
from contextpilot_rag.prompt.render import render_again, render_block, render_documents, render_user
from tests.dedup.material import hostile
from tests.dedup.material import texts as repeating
from tests.strategies import texts as escaped

anything = st.one_of(escaped, hostile, repeating, st.text())
labels = st.integers(1, 10**9 - 1)


def never(*_):
    raise AssertionError("there is no hint")


@given(st.lists(anything, min_size=1, max_size=5), anything)
def test_blocks_and_what_follows_are_read_back(texts, question):
    hint = order_hint(range(len(texts) - 1, -1, -1))
    blocks, rest = read_user(render_user(texts, (), hint, question), set())
    assert [block.label for block in blocks] == list(range(1, len(texts) + 1))
    assert [reveal(block.text, never) for block in blocks] == texts
    assert rest == f"\n\n{hint}" + (f"\n\n{question}" if question else "")


@given(st.lists(anything, min_size=1, max_size=5), anything)
def test_blocks_with_hints_are_read_back(texts, question):
    blocks, rest = read_user(render_user(texts, question=question, repeats=Repeats()), set())
    originals = Originals()
    for block, text in zip(blocks, texts, strict=True):
        assert normal(originals.add(f"[{block.label}]", block.text)) == normal(text)
    assert rest == (f"\n\n{question}" if question else "")


@given(st.lists(st.tuples(labels, anything, st.booleans()), min_size=1, max_size=5, unique_by=lambda block: block[0]))
def test_hints_are_told_from_blocks_by_the_labels_that_are_known(blocks):
    rendered = [(render_again if again else render_block)(label, text) for label, text, again in blocks]
    known = {label for label, _, again in blocks if again}
    found, rest = read_user(render_documents(rendered), known)
    assert rest == ""
    for block, (label, text, again) in zip(found, blocks, strict=True):
        assert block.label == label
        assert (again and block.text is None) or reveal(block.text, never) == text


@given(st.one_of(hostile, st.text()))
def test_a_question_alone_is_none_of_ours(question):
    if not question.startswith("<documents>\n"):
        assert read_user(render_user([], question=question), set()) is None


def test_what_is_known_is_not_changed():
    known = {2}
    assert read_user("<documents>\n[1] a\n\n[2] (given above)\n</documents>", known) == (
        [ReadBlock(1, "a"), ReadBlock(2, None)],
        "",
    )
    assert known == {2}


@pytest.mark.parametrize(
    "content",
    [
        None,
        7,
        [],
        b"<documents>\n[1] a\n</documents>",
        "",
        "Why?",
        " <documents>\n[1] a\n</documents>",
        "<documents>\n[1] a",
        "<documents>\n</documents>",
        "<documents>\nno label\n</documents>",
        "<documents>\n[1]no blank\n</documents>",
        "<documents>\n[0000000001] too many digits\n</documents>",
        "<documents>\n[\u0661] not our digits\n</documents>",
    ],
)
def test_none_of_ours(content):
    assert read_user(content, set()) is None
