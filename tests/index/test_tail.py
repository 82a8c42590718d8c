from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextpilot_rag import BlockRef
from contextpilot_rag.index.history import History
from contextpilot_rag.index.placement import PlacementRule, fit, remaining
from contextpilot_rag.index.tail import CANDIDATES, CANDIDATES_OF_SMALL_CACHES, POLICIES, Conditional
from tests.index.models import conditional_tail, within
from tests.strategies import requests

A, B, C, D = (BlockRef(key, 100) for key in "abcd")


def history_of(*contexts, window=100):
    history = History(window)
    for context in contexts:
        history.add(block.key for block in context)
    return history


def split(data, size):
    prefix = data.draw(st.lists(st.sampled_from(range(size)), unique=True) if size else st.just([]))
    return prefix, remaining(size, prefix)


@pytest.mark.parametrize("name", POLICIES)
@given(past=st.lists(requests, max_size=12), wanted=requests, data=st.data())
def test_every_tail_is_a_permutation_of_what_was_given(name, past, wanted, data):
    prefix, rest = split(data, len(wanted))
    given_rest = list(rest)
    tail = POLICIES[name].arrange(wanted, prefix, rest, history_of(*past))
    assert sorted(tail) == given_rest
    assert rest == given_rest, "the caller's list stays as it was"


@given(
    st.lists(requests, max_size=12),
    requests,
    st.data(),
    st.sampled_from([(0.0, 0.0), (0.0, 0.1), (2.0, 0.2), (12.0, 0.3)]),
    st.sampled_from([3, 100]),
)
def test_conditional_agrees_with_counting_in_a_list(past, wanted, data, weights, window):
    prefix, rest = split(data, len(wanted))
    tail = Conditional(*weights).arrange(wanted, prefix, rest, history_of(*past, window=window))
    assert list(tail) == conditional_tail(past[-window:], wanted, prefix, rest, *weights)


@given(st.lists(requests, max_size=12), requests, st.data(), st.integers(0, 3), st.none() | st.integers(0, 4))
def test_any_tail_can_be_fitted_into_a_budget(past, wanted, data, protect_top, max_displacement):
    rule = PlacementRule(protect_top, max_displacement)
    prefix, placed = [], 0
    for rank in data.draw(st.permutations(range(len(wanted)))):
        if rule.allows(rank, len(prefix), placed):
            prefix.append(rank)
            placed |= 1 << rank
    prefix = prefix[: data.draw(st.integers(0, len(prefix)))]
    wish = data.draw(st.permutations(remaining(len(wanted), prefix)))
    order = fit(prefix, wish, rule)
    assert sorted(order) == list(range(len(wanted)))
    assert list(order[: len(prefix)]) == prefix
    assert within(order, rule)
    assert order == fit_one_after_another(prefix, wish, rule)


def fit_one_after_another(prefix, wish, rule):
    """At each place the first that may stand there, as one would say it."""
    order, placed, waiting = list(prefix), sum(1 << rank for rank in prefix), list(wish)
    while waiting:
        rank = next(rank for rank in waiting if rule.allows(rank, len(order), placed))
        waiting.remove(rank)
        order.append(rank)
        placed |= 1 << rank
    return tuple(order)


class CountingHistory(History):
    """Counts how often anybody compares a block's requests with others."""

    looked_at = 0

    def bits(self, block):
        class Bits(int):
            def __rand__(_, other):  # noqa: N805
                self.looked_at += 1
                return other & int(_)

        return Bits(super().bits(block))


@pytest.mark.parametrize("weights", [(0, 0), (2, 0.2)])
def test_of_a_long_rest_the_front_is_what_it_would_be_and_all_is_there(weights):
    """Each of these was asked for with every other: one step after another would look at 4.5 million blocks."""
    random = Random(5)
    blocks = [BlockRef(number, random.randrange(20, 200)) for number in range(3_000)]
    past = [random.sample(blocks, 2_990) for _ in range(40)]
    history = CountingHistory()
    for request in past:
        history.add(block.key for block in request)
    tail = Conditional(*weights).arrange(blocks, [], list(range(3_000)), history)
    assert history.looked_at < 30_000
    assert sorted(tail) == list(range(3_000))
    alike = [{block.key for block in request} for request in past]
    for rank in tail[:3]:

        def expected(rank, alike=alike):
            count = sum(rank in content for content in alike)
            return (count + (weights[0] + weights[1] * len(alike)) * (1 - rank / 3_000)) * blocks[rank].tokens

        assert expected(rank) == max(map(expected, set(range(3_000)) - set(tail[: tail.index(rank)])))
        alike = [content for content in alike if rank in content]


def test_a_shorter_one_is_sorted_step_by_step():
    random = Random(6)
    blocks = [BlockRef(number, random.randrange(20, 200)) for number in range(140)]
    past = [random.sample(blocks, random.randrange(20, 140)) for _ in range(30)]
    for weights in ((0, 0), (2, 0.2)):
        tail = Conditional(*weights).arrange(blocks, [], list(range(140)), history_of(*past))
        assert tail == conditional_tail(past, blocks, [], range(140), *weights)


def test_popular_counts_tokens_and_conditional_only_those_who_have_what_is_placed():
    heavy = BlockRef("heavy", 1_000)
    history = history_of((A, B), (A, B), (A, C), (C, D), (C, D), (C, D), (heavy,))
    blocks = (A, D, C, B, heavy)
    assert POLICIES["popular"].arrange(blocks, [0], [1, 2, 3, 4], history) == [4, 2, 1, 3]
    assert POLICIES["conditional"].arrange(blocks, [0], [1, 2, 3, 4], history) == [3, 1, 2, 4]


def test_where_nothing_is_known_only_the_prior_orders():
    blocks = (A, B, BlockRef("heavy", 1_000))
    assert POLICIES["conditional"].arrange(blocks, [], [0, 1, 2], History()) == [0, 1, 2]
    assert POLICIES["blended"].arrange(blocks, [], [0, 1, 2], History()) == [2, 0, 1]


def test_the_retrievers_order_is_the_first_candidate():
    assert CANDIDATES[0] == "retrieved"
    assert set(CANDIDATES) <= set(CANDIDATES_OF_SMALL_CACHES) <= set(POLICIES)
