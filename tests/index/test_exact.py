"""The best of a handful, against all forests, all orders, and what merging finds."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contextpilot_rag import Namespace
from contextpilot_rag.index.exact import MOST_LEAVES, best_forest
from contextpilot_rag.index.forest import SetForest
from contextpilot_rag.index.merge import Worth, merge
from contextpilot_rag.index.refine import refine
from tests.index.batches import batch, planned, refs, tree_of
from tests.index.forests import WEIGHTS, check_forest, leaves_below, sets, some_sets
from tests.index.models import all_forests, most_saved_by_forests, most_saved_in_any_order

few_sets = st.lists(sets, max_size=5)


def heaviest(held):
    return lambda blocks: max((sum(WEIGHTS[block] for block in blocks & one) for one in held), default=0)


def saved(forest, worth):
    return forest.saved() + sum(worth.cached(forest.blocks[root]) for root in forest.roots())


def test_all_forests_of_four_leaves():
    forests = [repr(forest) for forest in all_forests(4)]
    assert len(forests) == len(set(forests)) == 37


@settings(max_examples=40)
@given(few_sets, st.lists(sets, max_size=3))
def test_nothing_saves_more_than_the_best_forest(leaves, held):
    forest, worth = SetForest(leaves, WEIGHTS), Worth(0, [], heaviest(held))
    best_forest(forest, worth)
    check_forest(forest)
    assert saved(forest, worth) == most_saved_by_forests(leaves, WEIGHTS, cached=heaviest(held))


@settings(max_examples=40)
@given(few_sets, st.sampled_from([0.05, 0.1, 0.3, 0.5, 1.0]))
def test_nothing_saves_more_where_every_join_has_to_be_enough(leaves, min_gain):
    prompts = [sum(WEIGHTS[block] for block in blocks) + 3 for blocks in leaves]
    forest = SetForest(leaves, WEIGHTS)
    best_forest(forest, Worth(min_gain, prompts))
    check_forest(forest)
    assert forest.saved() == most_saved_by_forests(leaves, WEIGHTS, min_gain, prompts)
    for node in forest.inner():
        assert forest.tokens[node] >= min_gain * sum(prompts[leaf] for leaf in leaves_below(forest, node)) * (1 - 1e-9)


@pytest.mark.parametrize("seed", range(3))
def test_nothing_saves_more_for_six(seed):
    leaves, weights = some_sets(seed, count=6, blocks=9, size=5)
    forest = SetForest(leaves, weights)
    best_forest(forest, Worth(0, []))
    assert forest.saved() == most_saved_by_forests(leaves, weights)


three_blocks = st.lists(st.integers(0, 4), unique=True, max_size=3).map(tuple)


@settings(max_examples=40)
@given(st.lists(three_blocks, max_size=3), st.lists(three_blocks, max_size=3))
def test_no_order_of_any_request_would_find_more(contexts, before):
    plan = planned(batch(contexts), {Namespace(): tree_of(before)})
    best = most_saved_in_any_order([refs(context) for context in contexts], [refs(context) for context in before])
    assert plan.predicted_cached_tokens == best


@settings(max_examples=15)
@given(st.lists(three_blocks, min_size=4, max_size=4))
def test_no_order_of_any_of_four_requests_would_find_more(contexts):
    best = most_saved_in_any_order([refs(context) for context in contexts])
    assert planned(batch(contexts)).predicted_cached_tokens == best


@settings(max_examples=40)
@given(st.lists(sets.map(tuple), min_size=6, max_size=MOST_LEAVES), st.randoms(use_true_random=False))
def test_a_plan_of_eight_is_the_best_forest_and_the_repeats(contexts, numbers):
    shuffled = [tuple(numbers.sample(context, len(context))) for context in contexts]
    different = list({frozenset(context) for context in contexts})
    forest = SetForest(different, WEIGHTS)
    best_forest(forest, Worth(0, []))
    everything = sum(WEIGHTS[block] for context in contexts for block in context)
    repeats = everything - sum(map(forest.weigh, different))
    assert planned(batch(shuffled)).predicted_cached_tokens == forest.saved() + repeats


@settings(max_examples=40)
@given(st.lists(sets, max_size=6), st.lists(sets, max_size=3), st.sampled_from([0.0, 0.0, 0.1, 0.3]))
def test_merging_and_refining_never_find_more(leaves, held, min_gain):
    worth = Worth(min_gain, [sum(WEIGHTS[block] for block in blocks) for blocks in leaves], heaviest(held))
    exact, forest = SetForest(leaves, WEIGHTS), SetForest(leaves, WEIGHTS)
    best_forest(exact, worth)
    merge(forest, range(len(leaves)), worth)
    assert saved(forest, worth) <= saved(exact, worth)
    if not min_gain:
        refine(forest, forest.standing(), worth, 0)
        assert saved(forest, worth) <= saved(exact, worth)


def test_merging_and_refining_come_close():
    numbers = random.Random(0)
    found = {"merged": 0.0, "refined": 0.0}
    count = 100
    for seed in range(count):
        leaves, weights = some_sets(seed, numbers.randint(5, 7), numbers.randint(6, 16), numbers.randint(3, 7))
        exact, forest, worth = SetForest(leaves, weights), SetForest(leaves, weights), Worth(0, [])
        best_forest(exact, worth)
        merge(forest, range(len(leaves)), worth)
        found["merged"] += forest.saved() / exact.saved() / count
        refine(forest, forest.standing(), worth)
        found["refined"] += forest.saved() / exact.saved() / count
    assert found["merged"] >= 0.97
    assert found["refined"] >= 0.98
    assert found["refined"] >= found["merged"]
