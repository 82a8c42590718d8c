from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from contextpilot_rag.index.forest import NONE, SetForest
from tests.index.forests import WEIGHTS, check_forest, forests, leaves_below, sets


def test_at_first_every_leaf_is_a_root():
    forest = SetForest([frozenset({0, 1}), frozenset(), frozenset({1})], [10, 5])
    check_forest(forest)
    assert (forest.roots(), forest.inner(), forest.saved(), forest.tokens) == ([0, 1, 2], [], 0, [15, 0, 5])


def test_a_join_holds_and_saves_what_both_share():
    forest = SetForest([frozenset({0, 1}), frozenset({0, 2}), frozenset({0, 1, 2})], [10, 5, 3])
    first = forest.join(0, 2)
    second = forest.join(first, 1)
    check_forest(forest)
    assert (forest.blocks[first], forest.blocks[second], forest.saved()) == ({0, 1}, {0}, 25)
    assert list(forest.ancestors(0)) == [first, second]


def test_a_join_inside_a_tree_takes_the_place_of_the_first():
    forest = SetForest([frozenset({0, 1})] * 3, [1, 1])
    top = forest.join(0, 1)
    inside = forest.join(0, 2)
    check_forest(forest)
    assert (forest.parent[inside], forest.left[top], forest.roots()) == (top, inside, [top])


def test_a_node_that_leaves_takes_its_parent_away_and_the_place_is_used_again():
    forest = SetForest([frozenset({0}), frozenset({0}), frozenset({0})], [1])
    first = forest.join(0, 1)
    forest.join(first, 2)
    assert forest.detach(0) == 1
    check_forest(forest)
    assert (forest.free, forest.parent[0]) == ([first], NONE)
    assert forest.join(1, 0) == first
    check_forest(forest)


@settings(max_examples=40)
@given(forests(), st.integers(0, 2**16))
def test_joins_and_detachments_keep_the_forest_whole(forest, seed):
    """The caller updates the nodes above."""
    numbers = random.Random(seed)
    for _ in range(8):
        nodes = [node for node in forest.standing() if forest.parent[node] != NONE]
        if not nodes:
            return
        node = numbers.choice(nodes)
        above = list(forest.ancestors(node))
        forest.detach(node)
        _update(forest, above[1:])
        check_forest(forest)
        inside = set(forest.nodes_below(node))
        targets = [target for target in forest.standing() if target not in inside]
        joined = forest.join(numbers.choice(targets), node)
        _update(forest, list(forest.ancestors(joined)))
        check_forest(forest)


def _update(forest, nodes):
    for node in nodes:
        forest.blocks[node] = forest.blocks[forest.left[node]] & forest.blocks[forest.right[node]]
        forest.tokens[node] = forest.weigh(forest.blocks[node])


@settings(max_examples=40)
@given(forests())
def test_walks_see_every_node_once_and_children_first(forest):
    check_forest(forest)
    walk = forest.children_first()
    assert sorted(walk) == forest.inner()
    place = {node: number for number, node in enumerate(walk)}
    for node in walk:
        assert all(place[child] < place[node] for child in (forest.left[node], forest.right[node]) if child in place)
    counts = forest.leaf_counts()
    assert sorted(node for root in forest.roots() for node in forest.nodes_below(root)) == forest.standing()
    assert sorted(leaf for root in forest.roots() for leaf in leaves_below(forest, root)) == list(range(forest.leaves))
    for node in forest.standing():
        assert counts[node] == len(leaves_below(forest, node))


@settings(max_examples=40)
@given(forests())
def test_a_node_holds_what_all_leaves_below_have_in_common(forest):
    for node in forest.standing():
        assert forest.blocks[node] == frozenset.intersection(
            *[forest.blocks[leaf] for leaf in leaves_below(forest, node)]
        )
    assert forest.saved() == sum(forest.weigh(forest.blocks[node]) for node in forest.inner())


@settings(max_examples=40)
@given(st.lists(sets, min_size=1, max_size=6))
def test_other_weights_for_the_same_blocks(leaves):
    forest = SetForest(leaves, [1] * len(WEIGHTS))
    while len(roots := forest.roots()) > 1:
        forest.join(roots[0], roots[1])
    forest.reweigh(WEIGHTS)
    check_forest(forest)


def test_a_tree_of_a_hundred_thousand_leaves_in_one_chain_does_not_recurse():
    forest = SetForest([frozenset({0})] * 100_000, [1])
    root = 0
    for leaf in range(1, 100_000):
        root = forest.join(root, leaf)
    assert len(forest.children_first()) == forest.saved() == 99_999
    assert forest.leaf_counts()[root] == 100_000
    assert len(forest.nodes_below(root)) == 199_999
