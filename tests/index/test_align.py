from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextpilot_rag import BlockRef, OrderBudget, Request, Rule
from contextpilot_rag.index.align import align
from contextpilot_rag.index.history import History
from contextpilot_rag.index.shadow import FixedTail
from contextpilot_rag.index.tail import POLICIES
from contextpilot_rag.index.tree import PrefixTree
from tests.index.models import NaiveCache, best_gain, within
from tests.strategies import requests

A, B, C, D = (BlockRef(key, 100) for key in "abcd")

budgets = st.builds(
    OrderBudget,
    order=st.sampled_from(["balanced", "throughput"]),
    min_gain=st.sampled_from([0.0, 0.1, 0.5, 1.0]),
    protect_top=st.integers(0, 3),
    max_displacement=st.one_of(st.none(), st.integers(0, 4)),
)


tails = st.sampled_from(sorted(POLICIES))
THROUGHPUT = OrderBudget("throughput")


def tree_of(*sequences):
    tree = PrefixTree()
    for sequence in sequences:
        tree.insert(sequence)
    return tree


def tail_of(name, *sequences):
    tail = FixedTail(POLICIES[name], History())
    for sequence in sequences:
        tail.learn(sequence)
    return tail


def test_the_cached_prefix_comes_first_and_the_rest_as_retrieved():
    alignment = align(Request((D, C, B, A)), tree_of([A, B]))
    assert alignment.order == (3, 2, 0, 1)
    assert (alignment.cached_blocks, alignment.predicted_cached_tokens) == (2, 200)
    assert alignment.rule is Rule.PREFIX
    assert alignment.changed
    assert alignment.reason == "the first 2 blocks are believed cached: 200 tokens (50% of the blocks) gained"


def test_with_nothing_cached_the_retrievers_order_stands():
    alignment = align(Request((D, C)), tree_of([A, B]))
    assert alignment.order == (0, 1)
    assert alignment.rule is Rule.NOTHING_GAINED
    assert not alignment.changed


def test_throughput_puts_the_tail_into_the_order_of_its_policy():
    alignment = align(Request((D, C, A, B), budget=THROUGHPUT), tree_of([A]), tail_of("popular", [B], [B], [C]))
    assert alignment.order == (2, 3, 1, 0)
    assert (alignment.cached_blocks, alignment.predicted_cached_tokens, alignment.rule) == (1, 100, Rule.PREFIX)


def test_a_tail_changed_without_a_gain_now_says_so():
    alignment = align(Request((A, D, B), budget=THROUGHPUT), tree_of([A]), tail_of("popular", [B]))
    assert (alignment.order, alignment.rule) == ((0, 2, 1), Rule.TAIL)
    assert alignment.predicted_cached_tokens == alignment.retrieved_cached_tokens == 100
    assert alignment.reason == "nothing more is cached, but requests like the recent ones can share more of this order"


def test_throughput_takes_gains_below_min_gain():
    request, tree = (D, C, B, A), tree_of([A])
    assert align(Request(request, budget=OrderBudget(min_gain=0.5)), tree).rule is Rule.BELOW_MIN_GAIN
    assert align(Request(request, budget=OrderBudget("throughput", min_gain=0.5)), tree).order == (3, 0, 1, 2)


def test_throughput_with_nothing_learned_and_nothing_cached_changes_nothing():
    alignment = align(Request((B, A), budget=THROUGHPUT), PrefixTree(), tail_of("conditional"))
    assert (alignment.order, alignment.rule) == ((0, 1), Rule.NOTHING_GAINED)


def test_the_retrievers_own_prefix_is_counted_and_kept():
    alignment = align(Request((A, B, C)), tree_of([A, B]))
    assert alignment.order == (0, 1, 2)
    assert alignment.rule is Rule.NOTHING_GAINED
    assert alignment.predicted_cached_tokens == alignment.retrieved_cached_tokens == 200


def test_the_gain_is_over_what_the_retrievers_order_would_find():
    # Retrieved order finds a; the other path finds b and c: 100 more, a third of the prompt.
    tree = tree_of([A], [B, C])
    request = (A, C, B)
    assert align(Request(request, budget=OrderBudget(min_gain=0.33)), tree).order == (2, 1, 0)
    refused = align(Request(request, budget=OrderBudget(min_gain=0.34)), tree)
    assert (refused.order, refused.rule, refused.predicted_cached_tokens) == ((0, 1, 2), Rule.BELOW_MIN_GAIN, 100)


@pytest.mark.parametrize("share", [7, 55, 10, 100])
def test_exactly_the_gain_asked_for_is_enough(share):
    """Though 0.07 * 100 is more than 7 in floats."""
    cached, rest = BlockRef("c", share), BlockRef("r", max(1, 100 - share))
    request = (rest, cached) if share < 100 else (cached,)
    alignment = align(Request(request, budget=OrderBudget(min_gain=share / 100)), tree_of([cached]))
    assert alignment.predicted_cached_tokens == share


def test_off_keeps_the_order_and_still_predicts():
    alignment = align(Request((B, A), budget=OrderBudget(order="retrieved")), tree_of([A, B], [B]))
    assert (alignment.order, alignment.rule, alignment.predicted_cached_tokens) == ((0, 1), Rule.OFF, 100)


def test_a_protected_best_block_keeps_its_place():
    tree = tree_of([A, B, C])
    assert align(Request((C, A, B), budget=OrderBudget(protect_top=1)), tree).order == (0, 1, 2)
    assert align(Request((A, C, B), budget=OrderBudget(protect_top=1)), tree).order == (0, 2, 1)


def test_says_when_it_was_the_budget_that_forbade():
    tree = tree_of([A, B, C])
    refused = align(Request((C, B, A), budget=OrderBudget(protect_top=1)), tree)
    assert (refused.order, refused.rule) == ((0, 1, 2), Rule.OVER_BUDGET)
    assert "protect_top" in refused.reason


@pytest.mark.parametrize("blocks", [(), (A,)])
def test_nothing_and_one_block(blocks):
    alignment = align(Request(blocks), tree_of([A]))
    assert alignment.order == tuple(range(len(blocks)))
    assert not alignment.changed
    assert alignment.reason


@given(st.lists(requests, max_size=10), requests, budgets, tails)
def test_the_order_is_a_permutation_within_its_budget(inserted, wanted, budget, tail):
    alignment = align(Request(wanted, budget=budget), tree_of(*inserted), tail_of(tail, *inserted))
    assert sorted(alignment.order) == list(range(len(wanted)))
    assert within(alignment.order, budget)


@given(st.lists(requests, max_size=10), requests, budgets, tails)
def test_the_prediction_is_what_the_order_finds(inserted, wanted, budget, tail):
    tree = tree_of(*inserted)
    alignment = align(Request(wanted, budget=budget), tree, tail_of(tail, *inserted))
    sent = [wanted[rank] for rank in alignment.order]
    assert tree.cached_tokens(sent) == (alignment.cached_blocks, alignment.predicted_cached_tokens)
    assert tree.cached_tokens(wanted)[1] == alignment.retrieved_cached_tokens


@given(st.lists(requests, max_size=10), requests, budgets)
def test_changes_only_for_at_least_the_gain_asked_for(inserted, wanted, budget):
    alignment = align(Request(wanted, budget=budget), tree_of(*inserted))
    gain = alignment.predicted_cached_tokens - alignment.retrieved_cached_tokens
    if alignment.changed:
        assert alignment.rule is Rule.PREFIX
        assert gain > 0
        enough = budget.min_gain * alignment.request.tokens * (1 - 1e-9)
        assert budget.order == "throughput" or gain >= enough


@given(
    st.lists(requests.map(lambda blocks: blocks[:4]), max_size=6),
    requests.map(lambda blocks: blocks[:5]),
    st.integers(0, 2),
    st.one_of(st.none(), st.integers(0, 3)),
    st.sampled_from(["balanced", "throughput"]),
)
def test_no_order_within_the_budget_finds_more(inserted, wanted, protect_top, max_displacement, order):
    budget = OrderBudget(order, min_gain=0.0, protect_top=protect_top, max_displacement=max_displacement)
    naive = NaiveCache()
    for sequence in inserted:
        naive.insert(sequence)
    alignment = align(Request(wanted, budget=budget), tree_of(*inserted), tail_of("blended", *inserted))
    assert alignment.predicted_cached_tokens == best_gain(wanted, naive, budget)


@pytest.mark.parametrize("budget", [OrderBudget("balanced", min_gain=0), OrderBudget("throughput")])
def test_a_gain_of_less_than_a_kv_block_is_none(budget):
    a, b, small = BlockRef("a", 100), BlockRef("b", 100), BlockRef("small", 5)
    tree = PrefixTree()
    tree.insert([a, small])
    request = Request((a, b, small), budget=budget)
    assert align(request, tree, least=16).order == (0, 1, 2)
    assert align(request, tree, least=16).rule is Rule.NOTHING_GAINED
    assert align(request, tree, least=5).order == (0, 2, 1)
