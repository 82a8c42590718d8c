from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from contextpilot_rag.index.forest import NONE, SetForest
from contextpilot_rag.index.merge import Worth, merge
from contextpilot_rag.index.refine import refine
from tests.index.batches import After
from tests.index.forests import WEIGHTS, check_forest, forests, grown_at_random, leaves_below, sets, some_sets

PLAIN = Worth(0, [])
some = settings(max_examples=40)


def heaviest(held):
    return lambda blocks: max((sum(WEIGHTS[block] for block in blocks & one) for one in held), default=0)


def saved(forest, worth):
    return forest.saved() + sum(worth.cached(forest.blocks[root]) for root in forest.roots())


# Something cached in half of the cases, and in half of those it is worth as much as what can be shared.
worths = st.one_of(
    st.just(PLAIN),
    st.lists(sets, min_size=1, max_size=3).map(lambda held: Worth(0, [], heaviest(held))),
)
thresholds = st.sampled_from([0.0, 0.0015, 0.1])


@some
@given(forests(), worths, thresholds)
def test_never_saves_less_and_leaves_a_whole_forest(forest, worth, enough):
    leaves, before = forest.blocks[: forest.leaves], saved(forest, worth)
    refine(forest, forest.standing(), worth, enough)
    check_forest(forest)
    assert saved(forest, worth) >= before
    assert forest.blocks[: forest.leaves] == leaves


@some
@given(forests(least=4, trees=True), worths, st.data())
def test_a_subtree_is_refined_and_nothing_else_moves(forest, worth, data):
    top = data.draw(st.sampled_from([node for node in forest.inner() if forest.parent[node] != NONE]))
    inside, before = forest.nodes_below(top), saved(forest, worth)
    leaves, parents = leaves_below(forest, top), list(forest.parent)
    where = forest.parent[top]
    refine(forest, inside, worth, 0)
    check_forest(forest)
    assert saved(forest, worth) >= before
    for node in forest.standing():
        if node not in inside and forest.parent[node] not in inside:
            assert forest.parent[node] == parents[node]
    (now,) = [node for node in inside if forest.parent[node] == where]
    assert leaves_below(forest, now) == leaves


@some
@given(forests(least=4), forests(least=4), st.integers(0, 2**16))
def test_one_tree_among_others(forest, other, seed):
    """Trees that are not named stay as they are."""
    together = SetForest(forest.blocks[: forest.leaves] + other.blocks[: other.leaves], WEIGHTS)
    numbers = random.Random(seed)
    while len(roots := [root for root in together.roots() if root < forest.leaves or root >= together.leaves]) > 1:
        together.join(*numbers.sample(roots, 2))
    (top,) = roots
    before, rest = together.saved(), [root for root in together.roots() if root != top]
    refine(together, together.nodes_below(top), PLAIN, 0)
    check_forest(together)
    assert together.saved() >= before
    assert all(together.parent[root] == NONE for root in rest)


@some
@given(forests(least=3, most=7, leaves=sets.filter(bool)), worths)
def test_a_forest_refined_to_the_end_has_no_better_place_for_a_leaf(forest, worth):
    """Against trying all places of all leaves, on copies."""
    for _ in range(30):
        before = saved(forest, worth)
        refine(forest, forest.standing(), worth, 0)
        if saved(forest, worth) == before:
            break
    else:
        raise AssertionError("does not end")
    for leaf in range(forest.leaves):
        for target in [NONE, *forest.standing()]:
            moved = _moved(forest, leaf, target)
            assert moved is None or saved(moved, worth) <= before


def _moved(forest, leaf, target):
    """The forest with a leaf next to a target, or alone; None if there is nothing to move."""
    moved = SetForest(forest.blocks, WEIGHTS)
    moved.leaves = forest.leaves
    moved.parent, moved.left, moved.right = list(forest.parent), list(forest.left), list(forest.right)
    moved.free = list(forest.free)
    if target in (leaf, forest.parent[leaf]) and target != NONE:
        return None
    if moved.parent[leaf] != NONE:
        moved.detach(leaf)
    if target != NONE:
        moved.join(target, leaf)
    for node in moved.children_first():
        moved.blocks[node] = moved.blocks[moved.left[node]] & moved.blocks[moved.right[node]]
        moved.tokens[node] = moved.weigh(moved.blocks[node])
    check_forest(moved)
    return moved


def test_repairs_what_merging_decided_too_early():
    """The best pair is the first two; but the first goes better with the last, and the second with the third."""
    leaves = [frozenset({0, 1, 2}), frozenset({0, 1, 3}), frozenset({0, 3, 4}), frozenset({2, 5})]
    forest = SetForest(leaves, [1, 9, 9, 8, 50, 50])
    merge(forest, range(4), PLAIN)
    assert (forest.blocks[4], forest.saved()) == ({0, 1}, 11)
    refine(forest, forest.standing(), PLAIN)
    check_forest(forest)
    assert forest.saved() == 18
    assert {frozenset(leaves_below(forest, root)) for root in forest.roots()} == {frozenset({0, 3}), frozenset({1, 2})}


def test_takes_what_finds_more_in_the_cache_out_of_its_tree():
    leaves = [frozenset({0, 1}), frozenset({0, 6}), frozenset({0, 2})]
    forest = SetForest(leaves, WEIGHTS)
    forest.join(forest.join(0, 1), 2)
    refine(forest, forest.standing(), Worth(0, [], heaviest([frozenset({6})])))
    check_forest(forest)
    assert sorted(leaves_below(forest, root) for root in forest.roots()) == [[0, 2], [1]]


def test_a_place_that_saves_less_than_nothing_is_left():
    """In a subtree, where no node can be left alone: the first leaf keeps the others from sharing what they could."""
    leaves = [frozenset({0}), frozenset({0, 1}), frozenset({1, 2}), frozenset({1, 2, 3}), frozenset({3})]
    forest = SetForest(leaves, [1, 10, 10, 10])
    top = forest.join(forest.join(forest.join(0, 1), 2), 3)
    forest.join(top, 4)
    refine(forest, forest.nodes_below(top), PLAIN, 0)
    check_forest(forest)
    assert forest.saved() == 30


@some
@given(forests(least=3), worths, st.integers(0, 12))
def test_stops_when_it_is_late(forest, worth, steps):
    before = saved(forest, worth)
    refine(forest, forest.standing(), worth, 0, After(steps))
    check_forest(forest)
    assert saved(forest, worth) >= before


def test_late_at_once_changes_nothing():
    leaves, weights = some_sets(seed=3, count=30, blocks=20, size=5)
    forest = grown_at_random(leaves, weights, seed=0)
    parents = list(forest.parent)
    refine(forest, forest.standing(), PLAIN, 0, lambda: True)
    assert forest.parent == parents


def test_hundreds_of_leaves_in_a_forest_that_nobody_would_choose():
    leaves, weights = some_sets(seed=4, count=250, blocks=60, size=7)
    forest = grown_at_random(leaves, weights, seed=0)
    before = forest.saved()
    refine(forest, forest.standing(), PLAIN, 0)
    check_forest(forest)
    assert forest.saved() > 5 * before
