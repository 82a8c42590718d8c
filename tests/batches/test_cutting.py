"""Cuts: each request in one shard, equal work, and at most one prompt lost for each."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from contextpilot_rag.batches.cutting import GroupWork, Piece, cut

requests = st.tuples(st.integers(1, 30), st.integers(0, 30)).map(lambda pair: (pair[0], min(pair)))


@st.composite
def groups(draw):
    drawn = draw(st.lists(st.lists(requests, min_size=1, max_size=12), max_size=8))
    # the first of a group shares with nobody before it
    each = [[(tokens, cached if place else 0) for place, (tokens, cached) in enumerate(group)] for group in drawn]
    return [GroupWork(np.array([t for t, _ in group]), np.array([c for _, c in group])) for group in each]


@given(groups(), st.integers(1, 6), st.floats(0, 0.5))
def test_each_request_is_in_one_shard_and_work_is_equal_up_to_the_slack_and_one_prompt(work, shards, slack):
    sizes = [len(group.tokens) for group in work]
    computed = [int((group.tokens - group.cached).sum()) for group in work]
    found = cut(sizes, computed, shards, work.__getitem__, slack)
    assert len(found) == shards
    sent = [(piece.group, place) for shard in found for piece in shard for place in range(piece.start, piece.stop)]
    assert sent == [(group, place) for group, size in enumerate(sizes) for place in range(size)]
    for shard in found:
        tokens = sum(
            int((work[piece.group].tokens - work[piece.group].cached)[piece.start : piece.stop].sum())
            for piece in shard
        )
        equal = sum(computed) / shards
        assert abs(tokens - equal) <= 2 * (slack * equal + 30) + 1e-6 * equal


def test_a_cut_is_where_least_is_shared_within_the_slack():
    group = GroupWork(np.array([10] * 8), np.array([0, 9, 9, 9, 8, 2, 9, 9]))
    assert cut([8], [25], 2, lambda _: group, slack=0.5) == [[Piece(0, 0, 5)], [Piece(0, 5, 8)]]
    assert cut([8], [25], 2, lambda _: group, slack=0) == [[Piece(0, 0, 4)], [Piece(0, 4, 8)]]


def test_between_groups_nothing_has_to_be_looked_into():
    assert cut([3, 3], [50, 50], 2, lambda _: None) == [[Piece(0, 0, 3)], [Piece(1, 0, 3)]]


def test_there_may_be_more_shards_than_requests():
    one = GroupWork(np.array([5]), np.array([0]))
    assert sum(map(len, cut([1], [5], 3, lambda _: one))) == 1
    assert cut([], [], 2, lambda _: one) == [[], []]
