"""The fixed order: by key alone, in every process, within the budget."""

from __future__ import annotations

import itertools
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextpilot_rag import BlockRef, ContextPilot, Namespace, OrderBudget, Request, Rule
from contextpilot_rag.index.align import align
from contextpilot_rag.index.fixed import fixed_order
from contextpilot_rag.index.local import LocalIndex
from contextpilot_rag.index.plan import plan_batch
from contextpilot_rag.index.tree import PrefixTree
from tests.index.models import within
from tests.strategies import requests

A, B, C, D = (BlockRef(key, 100) for key in "abcd")
FIXED = OrderBudget("fixed")

budgets = st.builds(
    OrderBudget,
    order=st.just("fixed"),
    min_gain=st.sampled_from([0.0, 1.0]),
    protect_top=st.integers(0, 3),
    max_displacement=st.one_of(st.none(), st.integers(0, 4)),
)
mixed = st.lists(
    st.one_of(st.binary(max_size=3), st.text(max_size=3), st.integers(-9, 10**20), st.tuples(st.integers(0, 3))),
    unique=True,
    max_size=8,
)


def sent(alignment):
    return [alignment.request.blocks[rank].key for rank in alignment.order]


@given(st.lists(requests, max_size=10), requests, st.randoms())
def test_the_same_blocks_are_the_same_prompt_whatever_was_sent_before(inserted, wanted, random):
    index, other = LocalIndex(), list(wanted)
    for request in inserted:
        index.align(Request(request))
    random.shuffle(other)
    first, second = (align(Request(tuple(blocks), budget=FIXED), PrefixTree()) for blocks in (wanted, other))
    assert sent(first) == sent(second) == sent(index.align(Request(wanted, budget=FIXED)))


@given(requests, requests)
def test_shared_blocks_stand_in_the_same_order(one, other):
    first, second = (sent(align(Request(blocks, budget=FIXED), PrefixTree())) for blocks in (one, other))
    both = set(first) & set(second)
    assert [key for key in first if key in both] == [key for key in second if key in both]


@given(requests, budgets)
def test_a_budget_is_kept_and_no_block_lost(wanted, budget):
    alignment = align(Request(wanted, budget=budget), PrefixTree())
    assert sorted(alignment.order) == list(range(len(wanted)))
    assert within(alignment.order, budget)
    assert alignment.rule is Rule.FIXED


@given(st.lists(requests, max_size=10), requests, budgets)
def test_the_prediction_is_what_the_order_finds(inserted, wanted, budget):
    tree = PrefixTree()
    for request in inserted:
        tree.insert(request)
    alignment = align(Request(wanted, budget=budget), tree)
    found = tree.cached_tokens([wanted[rank] for rank in alignment.order])
    assert found == (alignment.cached_blocks, alignment.predicted_cached_tokens)
    assert tree.cached_tokens(wanted)[1] == alignment.retrieved_cached_tokens


@given(mixed, st.randoms())
def test_keys_of_all_kinds_have_one_order(keys, random):
    blocks = [BlockRef(key, 1) for key in keys]
    other = blocks.copy()
    random.shuffle(other)
    assert [blocks[rank] for rank in fixed_order(blocks)] == [other[rank] for rank in fixed_order(other)]


def test_min_gain_does_not_apply():
    alignment = align(Request((C, A, B), budget=OrderBudget("fixed", min_gain=1.0)), PrefixTree())
    assert (alignment.order, alignment.rule, alignment.changed) == ((1, 2, 0), Rule.FIXED, True)
    assert alignment.reason == "order='fixed': blocks stand in the order of their keys, whatever was asked before"


def test_no_tails_are_learned():
    index = LocalIndex()
    for blocks in itertools.permutations((A, B, C)):
        index.align(Request(blocks, Namespace("acme"), FIXED))
    assert [kind.__class__.__name__ for kind in index.dump() if "History" in kind.__class__.__name__] == []
    assert index.stats().rules == {"fixed": 6}
    assert index.predict(Request((C, B, A), Namespace("acme"), FIXED)) == 300


def test_a_pilot_says_the_order_of_relevance_as_ever():
    texts = [f"text {number}" for number in range(5)]
    prompts = [ContextPilot(order="fixed", order_hint=True).align(order, "Why?") for order in (texts, texts[::-1])]
    first, second = ([block.text for block in prompt.blocks] for prompt in prompts)
    assert first == second
    assert all((prompt.order_hint is not None) == prompt.changed for prompt in prompts)
    for prompt, order in zip(prompts, (texts, texts[::-1]), strict=True):
        best = int(prompt.order_hint.split(": ")[1].split(" > ")[0].strip("[]"))
        assert prompt.blocks[best - 1].text == order[0]


_PROCESS = """
from contextpilot_rag import ContextPilot
prompt = ContextPilot(order="fixed").align([f"text {number}" for number in range(20)], "Why?")
print(list(prompt.order))
"""


@pytest.mark.parametrize("seed", ["1", "2"])
def test_every_process_has_the_same_order(seed):
    here = list(ContextPilot(order="fixed").align([f"text {number}" for number in range(20)], "Why?").order)
    done = subprocess.run(
        [sys.executable, "-c", _PROCESS],
        env={"PYTHONHASHSEED": seed},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stdout.strip() == str(here)


@given(st.lists(requests, max_size=6), st.lists(requests, max_size=6), budgets)
def test_a_plan_has_the_same_orders(fixed, others, budget):
    """Also beside requests of other budgets, and where no order saves anything."""
    batch = [Request(blocks, budget=budget, key=("fixed", number)) for number, blocks in enumerate(fixed)]
    batch += [Request(blocks, key=("balanced", number)) for number, blocks in enumerate(others)]
    plan = plan_batch(batch)
    assert len(plan.alignments) == len(batch)
    for alignment in plan:
        if alignment.request.budget.order == "fixed":
            assert alignment.order == align(alignment.request, PrefixTree()).order
            assert alignment.rule is Rule.FIXED
        else:
            assert alignment.rule is not Rule.FIXED
