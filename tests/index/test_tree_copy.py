"""A copy of a prefix tree: the same, and its own."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from contextpilot_rag import BlockRef
from contextpilot_rag.index.tree import PrefixTree
from tests.index.invariants import check
from tests.strategies import requests

A, B, C = (BlockRef(key, 100) for key in "abc")
some = settings(max_examples=40)
# What happens to a tree: sequences that are sent, and others that are only used again.
histories = st.lists(st.tuples(st.sampled_from(["insert", "insert", "touch"]), requests), max_size=12)
capacities = st.one_of(st.none(), st.integers(1, 200))


def grown(history, capacity=None):
    tree = PrefixTree(capacity)
    happen(tree, history)
    return tree


def happen(tree, history):
    for what, sequence in history:
        getattr(tree, what)(sequence)


def state(tree):
    nodes = [(node.blocks, node.weights, node.used_at) for node in tree._by_use]
    return nodes, list(tree.paths()), tree.tokens, tree.blocks


@some
@given(histories, capacities)
def test_holds_the_same_sequences_used_in_the_same_order(history, capacity):
    tree = grown(history, capacity)
    copied = tree.copy()
    check(copied)
    assert state(copied) == state(tree)
    assert copied.capacity_tokens is None


@some
@given(histories, capacities, histories)
def test_forgets_the_same_in_the_same_order(history, capacity, later):
    tree = grown(history, capacity)
    copied = tree.copy(capacity)
    for step in later:
        happen(tree, [step])
        happen(copied, [step])
        check(copied)
        assert state(copied) == state(tree)


@some
@given(histories, histories, requests)
def test_neither_sees_what_happens_to_the_other(history, later, wanted):
    tree, untouched = grown(history), grown(history)
    copied = tree.copy(50, 5)
    happen(copied, later)
    assert state(tree) == state(untouched)
    second = tree.copy()
    happen(tree, later)
    assert state(second) == state(untouched)
    assert second.heaviest_prefix(wanted) == untouched.heaviest_prefix(wanted)


def test_has_limits_of_its_own():
    tree = PrefixTree(capacity_tokens=300)
    tree.insert([A, B])
    copied = tree.copy(capacity_tokens=200)
    assert (tree.capacity_tokens, copied.capacity_tokens) == (300, 200)
    copied.insert([C])
    assert sorted(copied.paths()) == [["a"], ["c"]]
    tree.insert([C])
    assert sorted(tree.paths()) == [["a", "b"], ["c"]]


def test_an_empty_tree_and_a_deep_one():
    assert list(PrefixTree().copy().paths()) == []
    tree = PrefixTree()
    chain = [BlockRef(number, 1) for number in range(1_000)]
    for end in range(1, len(chain), 4):
        tree.insert(chain[:end])
    copied = tree.copy()
    check(copied)
    assert state(copied) == state(tree)
