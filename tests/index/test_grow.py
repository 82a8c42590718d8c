"""From leaves to a forest: exactly, at once or in pieces, in time or not; and shapes that could take for ever."""

from __future__ import annotations

import random
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contextpilot_rag import BlockRef, Namespace, OrderBudget, Request
from contextpilot_rag.index import grow as module
from contextpilot_rag.index.forest import SetForest
from contextpilot_rag.index.grow import Attempts, grow
from contextpilot_rag.index.merge import Worth
from contextpilot_rag.index.plan import plan_batch
from contextpilot_rag.index.tree import PrefixTree
from contextpilot_rag.index.watch import Watch
from tests.index.batches import THROUGHPUT, After, served
from tests.index.forests import WEIGHTS, check_forest, leaves_below, sets, some_sets

PLAIN = Worth(0, [])
many_sets = st.lists(sets, max_size=20)


def grown(leaves, weights, worth=PLAIN, watch=None, piece=4_096):
    forest = SetForest(leaves, weights)
    with patch.object(module, "MOST_LEAVES", 1):
        in_time = grow(forest, worth, watch or Watch(), piece)
    check_forest(forest)
    return forest, in_time


@settings(max_examples=40)
@given(many_sets, st.integers(1, 9), st.sampled_from([0.0, 0.1, 0.5]), st.integers(0, 60))
def test_pieces_of_any_size_and_any_time_make_a_whole_forest(leaves, piece, min_gain, steps):
    worth = Worth(min_gain, [sum(WEIGHTS[block] for block in blocks) for blocks in leaves])
    forest, in_time = grown(leaves, WEIGHTS, worth, piece=piece)
    hasty, _ = grown(leaves, WEIGHTS, worth, Watch(After(steps)), piece)
    assert in_time
    assert forest.blocks[: len(leaves)] == hasty.blocks[: len(leaves)] == leaves
    for node in forest.inner():
        touched = sum(worth.prompt_tokens[leaf] for leaf in leaves_below(forest, node))
        assert not min_gain or forest.tokens[node] >= min_gain * touched * (1 - 1e-9)


@settings(max_examples=30)
@given(many_sets, st.integers(1, 9))
def test_all_that_share_nothing_else_are_joined_in_the_end(leaves, piece):
    """One block in all of them: one tree, however small the pieces are."""
    forest, _ = grown([frozenset({0, 10 + number}) for number in range(len(leaves))], [5] * 40, piece=max(2, piece))
    assert len(forest.roots()) == min(1, len(leaves))


@pytest.mark.parametrize("min_gain", [0.0, 0.02])
def test_thousands_in_pieces_save_nearly_as_much(min_gain):
    leaves, weights = some_sets(seed=6, count=3_000, blocks=1_000, size=8)
    leaves = list(dict.fromkeys(leaves))
    worth = Worth(min_gain, [sum(weights[block] for block in blocks) for blocks in leaves])
    at_once, _ = grown(leaves, weights, worth)
    with (
        patch.object(module, "by_direction", wraps=module.by_direction) as by_direction,
        patch.object(module, "by_popularity", wraps=module.by_popularity) as by_popularity,
    ):
        in_pieces, _ = grown(leaves, weights, worth, piece=512)
    assert by_direction.called
    assert by_popularity.called
    assert in_pieces.saved() >= 0.9 * at_once.saved()


def test_what_was_done_is_reported():
    told = []
    leaves, weights = some_sets(seed=7, count=60, blocks=30, size=5)
    watch = Watch(report=lambda *said: told.append(said))
    grow(SetForest(leaves, weights), PLAIN, watch)
    assert [what for what, done, _ in told if done == 0] == ["merging", "refining"]
    assert all(0 <= done <= total for _, done, total in told)
    for what in ("merging", "refining"):
        steps = [done for said, done, _ in told if said == what]
        assert steps == sorted(steps)


def test_further_attempts_never_make_it_worse_and_in_the_end_better():
    leaves, weights = some_sets(seed=8, count=80, blocks=30, size=6)
    forest, _ = grown(leaves, weights)
    attempts = Attempts(forest, PLAIN)
    assert attempts.useful
    found = [forest.saved()]
    for _ in range(10):
        attempts.once(Watch())
        check_forest(attempts.best)
        assert attempts.best.blocks[: len(leaves)] == leaves
        found.append(attempts.best.saved())
    assert found == sorted(found)
    assert found[-1] > found[0]


@settings(max_examples=50)
@given(many_sets, st.integers(0, 40), st.integers(1, 4))
def test_an_attempt_that_ends_too_early_does_no_harm(leaves, steps, times):
    forest, _ = grown(leaves, WEIGHTS)
    before, attempts, watch = forest.saved(), Attempts(forest, PLAIN), Watch(After(steps))
    for _ in range(times):
        attempts.once(watch)
    check_forest(attempts.best)
    assert attempts.best.saved() >= before


def test_no_attempts_where_there_is_nothing_to_find():
    few = SetForest([frozenset({0})] * 8, [1])
    many = SetForest([frozenset({0, number}) for number in range(9)], [1] * 9)
    assert not Attempts(few, PLAIN).useful
    assert Attempts(many, PLAIN).useful
    assert not Attempts(many, Worth(0.1, [1] * 9)).useful
    assert not Attempts(many, PLAIN, piece=8).useful


NUMBERS = random.Random(0)
HUNDRED = [BlockRef(number, 100) for number in range(600)]
SHAPES = {
    "one block in all": [(BlockRef(("own", number), 100), BlockRef("all", 100)) for number in range(2_000)],
    "supersets": [tuple(NUMBERS.sample(HUNDRED[:size], size)) for size in range(1, 601)],
    "identical": [tuple(NUMBERS.sample(HUNDRED[:10], 10)) for _ in range(2_000)],
    "disjoint": [tuple(BlockRef((number, place), 100) for place in range(5)) for number in range(2_000)],
    "long": [tuple(NUMBERS.sample(HUNDRED[:300], 200)) for _ in range(300)],
}
FOUND = {"one block in all": 0.499, "supersets": 0.99, "identical": 0.999, "disjoint": 0.0, "long": 0.45}


@pytest.mark.parametrize("piece", [100, 4_096])
@pytest.mark.parametrize("shape", SHAPES)
def test_hostile_shapes(shape, piece):
    plan = plan_batch([Request(blocks, budget=THROUGHPUT) for blocks in SHAPES[shape]], piece=piece)
    assert len(plan) == len(SHAPES[shape])
    assert plan.hit_ratio >= FOUND[shape] * (1 if piece > 100 else 0.75)


@pytest.mark.parametrize("shape", ["one block in all", "long", "disjoint"])
def test_hostile_shapes_with_a_cache_and_limits(shape):
    tree = PrefixTree()
    for blocks in SHAPES[shape][::20]:
        tree.insert(blocks)
    budgets = [OrderBudget("balanced"), OrderBudget("throughput", protect_top=1), OrderBudget("balanced", 0.0, 0, 20)]
    requests = [
        Request(blocks, Namespace(f"{place % 3}"), budgets[place % 3]) for place, blocks in enumerate(SHAPES[shape])
    ]
    plan = plan_batch(requests, lambda _: tree)
    engine = {Namespace(name): tree for name in "012"}
    assert plan.predicted_cached_tokens == sum(tokens for _, tokens in served(plan, engine))
