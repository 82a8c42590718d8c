from __future__ import annotations

from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st

from contextpilot_rag.index.forest import NONE, SetForest
from contextpilot_rag.index.layout import lay_out
from tests.index.forests import WEIGHTS, forests, leaves_below

some = settings(max_examples=30)


@st.composite
def laid_out(draw, first=lambda _: (), popularity=None):
    """A forest over groups of requests, each request with its blocks as retrieved, and what came of it."""
    forest = draw(forests(most=8))
    retrieved, groups = [], []
    for blocks in forest.blocks[: forest.leaves]:
        group = draw(st.lists(st.permutations(sorted(blocks)).map(tuple), min_size=1, max_size=3))
        groups.append(list(range(len(retrieved), len(retrieved) + len(group))))
        retrieved += group
    return forest, groups, retrieved, *lay_out(forest, groups, retrieved, first, popularity)


def requests_below(forest, groups, node):
    return [request for leaf in leaves_below(forest, node) for request in groups[leaf]]


@some
@given(laid_out())
def test_all_requests_of_a_group_get_the_same_permutation(found):
    forest, groups, _, orders, _ = found
    for leaf, group in enumerate(groups):
        assert len({orders[request] for request in group}) == 1
        assert sorted(orders[group[0]]) == sorted(forest.blocks[leaf])


@some
@given(laid_out())
def test_requests_below_a_node_begin_with_its_blocks_in_one_order(found):
    forest, groups, _, orders, _ = found
    for node in forest.standing():
        size = len(forest.blocks[node])
        starts = {orders[request][:size] for request in requests_below(forest, groups, node)}
        assert len(starts) == 1
        assert frozenset(*starts) == forest.blocks[node]


@some
@given(laid_out())
def test_inside_an_edge_blocks_stand_by_mean_rank(found):
    forest, groups, retrieved, orders, _ = found
    for node in forest.standing():
        above = forest.parent[node]
        start = 0 if above == NONE else len(forest.blocks[above])
        below = requests_below(forest, groups, node)
        edge = orders[below[0]][start : len(forest.blocks[node])]
        means = [Fraction(sum(retrieved[request].index(block) for request in below), len(below)) for block in edge]
        assert means == sorted(means)


@some
@given(laid_out())
def test_a_requests_own_last_blocks_stay_as_retrieved(found):
    forest, groups, retrieved, orders, _ = found
    for leaf, (request, *more) in enumerate(groups):
        own = forest.blocks[leaf] - (frozenset() if forest.parent[leaf] == NONE else forest.blocks[forest.parent[leaf]])
        if not more:
            expected = tuple(block for block in retrieved[request] if block in own)
            assert orders[request][len(orders[request]) - len(own) :] == expected


@some
@given(laid_out())
def test_trees_are_told_apart_where_they_share_blocks(found):
    forest, groups, _, _, trees = found
    for one in range(forest.leaves):
        for other in range(one):
            (a, *_), (b, *_) = groups[one], groups[other]
            top_of_one, top_of_other = [one, *forest.ancestors(one)], [other, *forest.ancestors(other)]
            together = any(forest.blocks[node] for node in set(top_of_one) & set(top_of_other))
            assert (trees[a] == trees[b]) == together


@some
@given(laid_out(lambda blocks: sorted(blocks, reverse=True)[:2]))
def test_what_is_cached_comes_first(found):
    forest, groups, _, orders, trees = found
    for leaf, group in enumerate(groups):
        head = sorted(forest.blocks[trees[group[0]]], reverse=True)[:2]
        assert list(orders[group[0]][: len(head)]) == head
        assert sorted(orders[group[0]]) == sorted(forest.blocks[leaf])


@some
@given(laid_out(popularity=WEIGHTS))
def test_in_a_hurry_roots_go_by_popularity_and_the_rest_by_rank(found):
    forest, groups, _, orders, trees = found
    for leaf, group in enumerate(groups):
        root = forest.blocks[trees[group[0]]]
        order = orders[group[0]]
        assert list(order[: len(root)]) == sorted(root, key=lambda block: -WEIGHTS[block])
        assert sorted(order) == sorted(forest.blocks[leaf])


def test_a_group_counts_once_for_each_request():
    forest = SetForest([frozenset({0, 1, 2}), frozenset({0, 1, 3})], [1] * 4)
    forest.join(0, 1)
    orders, trees = lay_out(forest, [[0, 1], [2]], [(0, 1, 2), (0, 1, 2), (3, 1, 0)])
    assert orders == [(0, 1, 2), (0, 1, 2), (0, 1, 3)]
    assert trees == [2, 2, 2]


def test_a_chain_of_thousands_does_not_recurse():
    size = 3_000
    forest = SetForest([frozenset({0, leaf}) for leaf in range(1, size)], [1] * size)
    root = 0
    for leaf in range(1, size - 1):
        root = forest.join(root, leaf)
    orders, _ = lay_out(forest, [[leaf] for leaf in range(size - 1)], [(leaf, 0) for leaf in range(1, size)])
    assert orders == [(0, leaf) for leaf in range(1, size)]
