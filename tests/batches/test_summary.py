"""Summaries of heavy blocks: the bound of what they may be wrong by, however they were merged."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from contextpilot_rag.batches.summary import Summary

LENGTHS = {block: 1 + block * 7 % 13 for block in range(30)}
lots = st.lists(st.lists(st.integers(0, 29), max_size=30), min_size=1, max_size=8)


def summary_of(blocks, size):
    times = Counter(blocks)
    lengths = np.array([LENGTHS[block] for block in times], np.int64)
    weights = lengths * np.array(list(times.values()), np.int64)
    return Summary.of(np.array(list(times), np.uint64), weights, lengths, size)


@given(lots, st.integers(1, 12), st.randoms(use_true_random=False))
def test_no_weight_is_too_large_or_off_by_more_than_the_bound_in_whatever_order_they_are_merged(parts, size, random):
    summaries = [summary_of(part, size) for part in parts]
    while len(summaries) > 1:
        taken = random.randint(2, len(summaries))
        random.shuffle(summaries)
        summaries = [*summaries[taken:], Summary.merged(summaries[:taken], size)]
    found = summaries[0]
    exact = Counter(block for part in parts for block in part)
    weights = dict(zip(found.blocks.tolist(), found.weights.tolist(), strict=True))
    assert len(weights) <= size
    assert found.total == sum(LENGTHS[block] * times for block, times in exact.items())
    assert found.lost * (size + 1) <= found.total
    for block, times in exact.items():
        assert 0 <= LENGTHS[block] * times - weights.get(block, 0) <= found.lost
    for block, length in zip(found.blocks.tolist(), found.tokens.tolist(), strict=True):
        assert length == LENGTHS[block]


def test_the_heaviest_are_those_that_save_most_and_tell_contexts_apart():
    blocks, times = np.array([1, 2, 3, 4], np.uint64), np.array([4, 1, 3, 2])
    lengths = np.array([10, 1000, 10, 40])
    summary = Summary.of(blocks, lengths * times, lengths, 10)
    assert summary.heaviest(5).tolist() == [4, 1, 3]  # 2 is of one context alone
    assert summary.heaviest(4).tolist() == [4, 3]  # all of them hold 1
