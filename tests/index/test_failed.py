"""What becomes of a tree when requests are not computed."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from contextpilot_rag import BlockRef, LocalIndex, Namespace, Request, Usage
from contextpilot_rag.index.tree import PrefixTree
from tests.index.conformance import A, B, C

DOC = [BlockRef(number, 10 + number) for number in range(5)]


def paths(index):
    return sorted(index.tree(Namespace()).paths())


def ordered(alignment):
    return [alignment.request.blocks[rank] for rank in alignment.order]


steps = st.lists(
    st.tuples(st.lists(st.sampled_from(DOC), min_size=1, max_size=4, unique=True), st.integers(0, 9), st.booleans()),
    max_size=25,
)


@given(steps)
def test_what_was_answered_stays_whatever_fails(script):
    index, waiting, answered = LocalIndex(), [], []
    for blocks, place, fails in script:
        waiting.append(index.align(Request(tuple(blocks))))
        alignment = waiting.pop(place % len(waiting))
        if fails:
            index.failed(alignment)
        else:
            index.observe(alignment, Usage())
            answered.append(ordered(alignment))
        tree = index.tree(Namespace()) or PrefixTree()
        for sequence in answered:
            believed = sequence[: tree.cached_tokens(sequence)[0]]
            if sequence is answered[-1] and not fails:
                longest = len(believed)  # what it shared with one that failed before is gone since
                answered[-1] = sequence[:longest]
            else:
                assert believed == sequence


@given(steps)
def test_where_each_fails_at_once_nothing_is_believed(script):
    index = LocalIndex()
    for blocks, _, _ in script:
        index.failed(index.align(Request(tuple(blocks))))
    assert not script or index.stats().tree_blocks == 0


def test_what_another_was_sent_with_since_stays():
    index = LocalIndex()
    slow = index.align(Request((A, B)))
    other = index.align(Request((A, B, C)))
    index.failed(slow)  # the other one computes it
    assert paths(index) == [["a", "b", "c"]]
    index.failed(other)
    assert paths(index) == [["a", "b"]]


def test_of_what_it_shares_with_a_later_one_only_the_rest_goes():
    index = LocalIndex()
    slow = index.align(Request((A, B, C)))
    index.observe(index.align(Request((A,))), Usage())
    index.failed(slow)
    assert paths(index) == [["a"]]
    index.failed(slow)
    assert paths(index) == [["a"]]


def test_what_was_not_aligned_here_changes_nothing():
    index, other = LocalIndex(), LocalIndex()
    index.failed(other.align(Request((A, B))))
    index.align(Request((A, B)))
    index.failed(replace(index.align(Request((A, B))), belief=None))
    assert paths(index) == [["a", "b"]]


def test_an_answer_that_reports_nothing_is_one_and_is_not_counted():
    index = LocalIndex()
    first = index.align(Request((A, B)))
    index.answered(first)
    again = index.align(Request((A, B)))
    assert first.belief is not None
    assert again.belief is not None
    assert again.belief.since is not None  # else its outcome would say nothing
    assert index.stats().observed == index.stats().cached_not_reported == 0
    index.answered(LocalIndex().align(Request((C,), Namespace("nobody"))))


def test_what_comes_of_another_trees_time_says_nothing():
    index, elsewhere = LocalIndex(single=True), LocalIndex()
    for other in (index, elsewhere):
        for _ in range(30):
            other.observe(other.align(Request((A, B))), Usage(230, 200))
    late, stray = index.align(Request((A, B))), elsewhere.align(Request((A, B)))
    index.forget()
    index.observe(index.align(Request((B, C))), Usage(230, 0))
    for alignment in (late, stray):
        index.observe(alignment, Usage(230, 0))  # cold, by the count of a tree that is not this one
        index.failed(alignment)
    assert paths(index) == [["b", "c"]]
