from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse.csgraph import minimum_spanning_tree

from contextpilot_rag.index.ceiling import ceiling_tokens
from tests.index.forests import WEIGHTS, sets


def spanning_tree(sets, weights, cached):
    """The weight of a maximum spanning tree; what is cached is one more node."""
    size = len(sets)
    edges = np.zeros((size + 1, size + 1))
    for one in range(size):
        edges[one, size] = -cached[one]
        for other in range(one):
            edges[one, other] = -sum(weights[block] for block in sets[one] & sets[other])
    return -minimum_spanning_tree(edges).sum()


@settings(max_examples=40)
@given(st.lists(sets, max_size=10), st.data())
def test_is_the_weight_of_a_maximum_spanning_tree(leaves, data):
    cached = [data.draw(st.integers(0, sum(WEIGHTS[block] for block in blocks))) for blocks in leaves]
    assert ceiling_tokens(leaves, WEIGHTS) == spanning_tree(leaves, WEIGHTS, [0] * len(leaves))
    assert ceiling_tokens(leaves, WEIGHTS, cached) == spanning_tree(leaves, WEIGHTS, cached)


def test_edges():
    assert ceiling_tokens([], []) == 0
    assert ceiling_tokens([frozenset()], [3]) == 0
    assert ceiling_tokens([frozenset({0})], [3]) == 0
    assert ceiling_tokens([frozenset({0})], [3], [3]) == 3
    assert ceiling_tokens([frozenset({0})] * 4, [3]) == 9


def test_very_long_blocks_lose_nothing():
    assert ceiling_tokens([frozenset({0, 1}), frozenset({0}), frozenset({1})], [2**40, 1]) == 2**40 + 1
