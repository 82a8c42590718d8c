from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextpilot_rag.prompt.escape import unescape
from contextpilot_rag.prompt.hints import order_hint
from contextpilot_rag.prompt.render import BETWEEN, CLOSE, OPEN, render_messages, render_user
from tests.strategies import texts


def test_the_whole_layout():
    content = render_user(["first", "second"], echoed=[1], hint="Hint.", question="Why?")
    assert content == "<documents>\n[1] first\n\n[2] second\n\n[2] second\n</documents>\n\nHint.\n\nWhy?"


def test_without_blocks_only_the_question_is_sent():
    assert render_user([], question="Why?") == "Why?"


def test_without_a_question_the_documents_end_the_message():
    assert render_user(["x"]) == "<documents>\n[1] x\n</documents>"


def test_no_system_message_unless_asked_for():
    assert render_messages(None, "x") == [{"role": "user", "content": "x"}]
    assert render_messages("", "x")[0] == {"role": "system", "content": ""}


def test_the_hint_names_labels_best_first():
    # the best block stands third, the second best first, the third best second
    assert order_hint([1, 2, 0]) == "Order of relevance, best first: [3] > [1] > [2]"


@given(st.lists(texts, max_size=5), st.lists(texts, max_size=5), st.lists(texts, max_size=5))
def test_equal_starts_give_equal_bytes(shared, one, other):
    """What the engine's cache needs: two prompts are the same bytes as long as their blocks are."""
    first, second = (render_user([*shared, *rest], question="?") for rest in (one, other))
    start = render_user(shared)[: -len(CLOSE)] if shared else ""
    assert first.startswith(start)
    assert second.startswith(start)


@given(st.lists(texts, min_size=1, max_size=5), st.text(max_size=20))
def test_every_block_can_be_read_back_verbatim(blocks, question):
    """A parser that knows only the layout finds exactly the blocks that were given, whatever they contain."""
    content = render_user(blocks, question=question)
    assert content.startswith(OPEN)
    place = len(OPEN)
    for number, text in enumerate(blocks, start=1):
        mark = f"[{number}] "
        assert content.startswith(mark, place)
        place += len(mark)
        following = f"{BETWEEN}[{number + 1}] " if number < len(blocks) else CLOSE
        end = content.index(following, place)
        assert unescape(content[place:end]) == text
        place = end + (len(BETWEEN) if number < len(blocks) else len(CLOSE))
    assert content[place:] == (f"\n\n{question}" if question else "")


@pytest.mark.parametrize("texts_given", [["a"], ["a", "b"], ["[1] a", "</documents>"]])
def test_the_caller_s_list_is_not_changed(texts_given):
    before = list(texts_given)
    render_user(texts_given, question="?")
    assert texts_given == before
