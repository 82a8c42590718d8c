"""Merging against the obvious way: look at all pairs before each join."""

from __future__ import annotations

from itertools import combinations
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contextpilot_rag.index import merge as module
from contextpilot_rag.index.forest import SetForest
from contextpilot_rag.index.merge import Worth, merge
from tests.index.batches import After
from tests.index.forests import WEIGHTS, check_forest, leaves_below, sets, some_sets

many_sets = st.lists(sets, max_size=14)
some = settings(max_examples=40)
shares = st.sampled_from([0.0, 0.0, 0.1, 0.25, 0.5, 1.0])


class Recorded(SetForest):
    """A forest that remembers which joins were made."""

    def __init__(self, leaves, weights):
        super().__init__(leaves, weights)
        self.joins = []

    def join(self, one, other):
        self.joins.append((one, other))
        return super().join(one, other)


@st.composite
def worths(draw, leaves):
    """For each forest another worth: a least gain, something cached, both or neither."""
    prompts = [sum(WEIGHTS[block] for block in blocks) * draw(st.integers(1, 3)) for blocks in leaves]
    held = draw(st.one_of(st.none(), st.lists(sets, min_size=1, max_size=3)))
    return Worth(draw(shares), prompts, None if held is None else heaviest(held))


def heaviest(held, weights=WEIGHTS):
    """Cached tokens of some blocks: all that they share with one of the sets that are held."""
    return lambda blocks: max(sum(weights[block] for block in blocks & one) for one in held)


def gain(forest, worth, one, other):
    """What a join saves; None if it is not worth it."""
    shared = forest.blocks[one] & forest.blocks[other]
    saved = sum(forest.weights[block] for block in shared) + worth.cached(shared)
    saved -= worth.cached(forest.blocks[one]) + worth.cached(forest.blocks[other])
    touched = sum(worth.prompt_tokens[leaf] for node in (one, other) for leaf in leaves_below(forest, node))
    return saved if saved > 0 and saved >= worth.min_gain * touched * (1 - 1e-9) else None


def best_gain(forest, worth):
    gains = [gain(forest, worth, one, other) for one, other in combinations(forest.roots(), 2)]
    return max((saved for saved in gains if saved is not None), default=None)


def check_greedy(leaves, weights, worth, joins):
    """Each of the joins was a best one when it was made. Returns what each saved, and the forest they lead to."""
    forest, gains = SetForest(leaves, weights), []
    for one, other in joins:
        gains.append(gain(forest, worth, one, other))
        assert gains[-1] == best_gain(forest, worth)
        forest.join(one, other)
    return gains, forest


@some
@given(st.data())
def test_each_join_is_a_best_one_and_none_is_left_out(data):
    leaves = data.draw(many_sets)
    worth = data.draw(worths(leaves))
    forest = Recorded(leaves, WEIGHTS)
    merge(forest, range(len(leaves)), worth)
    check_forest(forest)
    gains, again = check_greedy(leaves, WEIGHTS, worth, forest.joins)
    assert best_gain(again, worth) is None
    if worth._cached is None:
        assert gains == sorted(gains, reverse=True)
        assert forest.saved() == sum(gains)


@some
@given(st.data(), st.integers(2, 6))
def test_a_smaller_table_changes_nothing(data, size):
    leaves = data.draw(many_sets)
    worth = data.draw(worths(leaves))
    large, small = Recorded(leaves, WEIGHTS), Recorded(leaves, WEIGHTS)
    merge(large, range(len(leaves)), worth)
    with patch.object(module, "_WORTH_HALVING", size):
        merge(small, range(len(leaves)), worth)
    assert small.joins == large.joins


@pytest.mark.parametrize("min_gain", [0.0, 0.04])
def test_hundreds_of_trees(min_gain):
    leaves, weights = some_sets(seed=2, count=220, blocks=80, size=7)
    worth = Worth(min_gain, [sum(weights[block] for block in blocks) for blocks in leaves])
    forest = Recorded(leaves, weights)
    merge(forest, range(len(leaves)), worth)
    check_forest(forest)
    whole = Recorded(leaves, weights)
    with patch.object(module, "_WORTH_HALVING", 1_000):
        merge(whole, range(len(leaves)), worth)
    assert forest.joins == whole.joins
    # The first sixty joins; all of them would take minutes.
    check_greedy_by_rows(leaves, weights, worth, forest.joins[:60])


def check_greedy_by_rows(leaves, weights, worth, joins):
    forest = SetForest(leaves, weights)
    roots = set(range(len(leaves)))
    gains = {pair: gain(forest, worth, *pair) or 0 for pair in combinations(sorted(roots), 2)}
    for one, other in joins:
        assert gains[min(one, other), max(one, other)] == max(gains.values())
        gains = {pair: saved for pair, saved in gains.items() if one not in pair and other not in pair}
        roots -= {one, other}
        joined = forest.join(one, other)
        gains |= {(root, joined): gain(forest, worth, root, joined) or 0 for root in roots}
        roots.add(joined)


@some
@given(many_sets, shares)
def test_every_join_saves_min_gain_of_all_prompts_below_it(leaves, min_gain):
    prompts = [10 + sum(WEIGHTS[block] for block in blocks) for blocks in leaves]
    forest = SetForest(leaves, WEIGHTS)
    merge(forest, range(len(leaves)), Worth(min_gain, prompts))
    for node in forest.inner():
        assert forest.tokens[node] > 0
        assert forest.tokens[node] >= min_gain * sum(prompts[leaf] for leaf in leaves_below(forest, node)) * (1 - 1e-9)


@pytest.mark.parametrize("share", [7, 55, 10, 100])
def test_exactly_the_gain_asked_for_is_enough(share):
    """Though 0.07 * 100 is more than 7 in floats."""
    forest = SetForest([frozenset({0, 1}), frozenset({0, 2})], [share, 1, 1])
    merge(forest, [0, 1], Worth(share / 100, [50, 50]))
    assert len(forest.inner()) == 1


@some
@given(many_sets, st.integers(1, 14))
def test_stops_when_few_enough_trees_are_left(leaves, until):
    forest, whole = Recorded(leaves, WEIGHTS), Recorded(leaves, WEIGHTS)
    merge(forest, range(len(leaves)), Worth(0, []), until)
    merge(whole, range(len(leaves)), Worth(0, []))
    held = sum(bool(blocks) for blocks in leaves)
    assert forest.joins == whole.joins[: max(0, held - until)]


@some
@given(st.data(), st.integers(0, 10))
def test_stops_when_it_is_late(data, steps):
    leaves = data.draw(many_sets)
    worth = data.draw(worths(leaves))
    forest, whole = Recorded(leaves, WEIGHTS), Recorded(leaves, WEIGHTS)
    merge(forest, range(len(leaves)), worth, late=After(steps))
    merge(whole, range(len(leaves)), worth)
    check_forest(forest)
    assert len(forest.joins) <= steps
    assert forest.joins == whole.joins[: len(forest.joins)]


@some
@given(many_sets, st.data())
def test_joins_only_the_roots_it_was_given(leaves, data):
    chosen = data.draw(st.lists(st.integers(0, 13), unique=True).map(lambda some: [n for n in some if n < len(leaves)]))
    forest = SetForest(leaves, WEIGHTS)
    merge(forest, chosen, Worth(0, []))
    check_forest(forest)
    assert all(forest.left[root] == -1 for root in forest.roots() if root < len(leaves) and root not in chosen)
    assert {leaf for root in forest.inner() for leaf in leaves_below(forest, root)} <= set(chosen)


@some
@given(many_sets, many_sets)
def test_goes_on_where_an_earlier_merge_stopped(leaves, more):
    """In a forest that has free nodes and trees already."""
    forest = SetForest(leaves + more, WEIGHTS)
    merge(forest, range(len(leaves)), Worth(0, []))
    for root in forest.roots():
        if forest.left[root] != -1:
            forest.detach(forest.left[root])
    prompts = [sum(WEIGHTS[block] for block in blocks) for blocks in leaves + more]
    merge(forest, forest.roots(), Worth(0.05, prompts))
    check_forest(forest)


def test_what_is_cached_apart_is_not_given_up_for_less():
    """Two requests share block 0, but each finds more in the cache if it is sent on its own."""
    leaves = [frozenset({0, 2}), frozenset({0, 6})]
    forest = SetForest(leaves, WEIGHTS)
    merge(forest, [0, 1], Worth(0, [], heaviest([frozenset({2}), frozenset({6})])))
    assert not forest.inner()
    merge(forest, [0, 1], Worth(0, [], heaviest([frozenset({0})])))
    assert not forest.inner(), "block 0 is cached: whoever comes first finds it, too"
    merge(forest, [0, 1], Worth(0, [], heaviest([frozenset({1})])))
    assert forest.saved() == 7


def test_a_tree_that_lost_what_was_cached_for_it_may_gain_more_than_its_parts():
    leaves = [frozenset({0, 6, 9}), frozenset({0, 6, 8}), frozenset({0, 5})]
    worth = Worth(0, [1, 1, 1], heaviest([frozenset({9})]))
    forest = Recorded(leaves, WEIGHTS)
    merge(forest, range(3), worth)
    gains, _ = check_greedy(leaves, WEIGHTS, worth, forest.joins)
    assert gains == [107 - 30, 7]


@pytest.mark.parametrize(
    ("leaves", "held"),
    [
        ([{0, 2}, {1, 2}, {0, 1}], {1}),
        ([{0, 4}, {0, 1}, {0, 1, 2, 3, 4}, {0, 2, 3, 4}], {1}),
    ],
)
@pytest.mark.parametrize("min_gain", [0, 0.1])
def test_ends_where_nothing_that_is_left_is_worth_it(leaves, held, min_gain):
    """Rows without a gain, in a table whose first place is empty."""
    leaves, weights = [frozenset(blocks) for blocks in leaves], [20, 10, 20, 10, 5]
    prompts = [sum(weights[block] for block in blocks) for blocks in leaves]
    worth = Worth(min_gain, prompts, heaviest([frozenset(held)], weights))
    forest = SetForest(leaves, weights)
    merge(forest, range(len(leaves)), worth)
    check_forest(forest)
    assert best_gain(forest, worth) is None
