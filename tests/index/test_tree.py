from __future__ import annotations

import gc
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from contextpilot_rag import BlockRef
from contextpilot_rag.index.believed import Prefix
from contextpilot_rag.index.node import Node
from contextpilot_rag.index.placement import PlacementRule
from contextpilot_rag.index.tree import PrefixTree
from tests.index.invariants import check
from tests.index.models import NaiveCache
from tests.strategies import requests

A, B, C, D = (BlockRef(key, tokens) for key, tokens in (("a", 100), ("b", 50), ("c", 70), ("d", 10)))


def test_an_empty_tree_has_no_prefix():
    assert PrefixTree().heaviest_prefix([A, B]) == Prefix((), 0)


def test_finds_the_heaviest_path_not_the_longest_or_the_first():
    tree = PrefixTree()
    tree.insert([B, C, D])  # 130 tokens in three blocks
    tree.insert([A, B])  # 150 in two
    assert tree.heaviest_prefix([D, C, B, A]) == Prefix((3, 2), 150)


def test_of_equal_weights_the_order_closest_to_the_retrievers_wins():
    tree = PrefixTree()
    x, y = BlockRef("x", 10), BlockRef("y", 10)
    tree.insert([y])
    tree.insert([x])
    assert tree.heaviest_prefix([x, y]).ranks == (0,)
    assert tree.heaviest_prefix([y, x]).ranks == (0,)


def test_a_part_of_a_run_counts():
    tree = PrefixTree()
    tree.insert([A, B, C])
    assert tree.heaviest_prefix([D, B, A]) == Prefix((2, 1), 150)


def test_a_foreign_block_ends_the_prefix():
    tree = PrefixTree()
    tree.insert([A, D, B])
    assert tree.heaviest_prefix([A, B]) == Prefix((0,), 100)


def test_cached_tokens_follows_the_order_given():
    tree = PrefixTree()
    tree.insert([A, B, C])
    assert tree.cached_tokens([A, B, D]) == (2, 150)
    assert tree.cached_tokens([B, A]) == (0, 0)


def test_evicts_the_tail_of_what_was_used_longest_ago():
    tree = PrefixTree(capacity_tokens=220)
    tree.insert([A, B])
    tree.insert([C, D])  # 230: ten too many
    assert sorted(tree.paths()) == [["a"], ["c", "d"]]
    check(tree)


def test_a_shared_start_outlives_its_older_tail():
    tree = PrefixTree(capacity_tokens=230)
    tree.insert([A, B])
    tree.insert([A, C, D])
    assert sorted(tree.paths()) == [["a", "b"], ["a", "c", "d"]]
    tree.insert([A, D])
    assert tree.cached_tokens([A, B])[1] == 100
    check(tree)


def test_what_was_just_inserted_stays_even_if_it_is_larger_than_the_cache():
    tree = PrefixTree(capacity_tokens=60)
    tree.insert([D])
    tree.insert([A, B])
    assert list(tree.paths()) == [["a", "b"]]


def test_touching_keeps_a_path_alive():
    tree = PrefixTree(capacity_tokens=220)
    tree.insert([A])
    tree.insert([B, C])
    tree.touch([A])
    tree.insert([D])
    assert tree.cached_tokens([A])[1] == 100
    assert tree.cached_tokens([B, C]) == (1, 50)
    check(tree)


def test_touching_a_part_of_a_run_leaves_the_rest_old():
    tree = PrefixTree(capacity_tokens=250)
    tree.insert([A, B])
    tree.insert([C])
    tree.touch([A])
    tree.insert([BlockRef("e", 40)])
    assert tree.cached_tokens([A, B]) == (1, 100)
    assert tree.cached_tokens([C]) == (1, 70)
    check(tree)


def test_memory_is_bounded_in_blocks():
    tree = PrefixTree(max_blocks=100)
    for number in range(1_000):
        tree.insert([BlockRef((number, place), 1) for place in range(10)])
        assert tree.blocks <= 100
    check(tree)


def test_clear_forgets_everything():
    tree = PrefixTree()
    tree.insert([A, B])
    tree.clear()
    assert (tree.tokens, tree.blocks, list(tree.paths())) == (0, 0, [])
    assert tree.heaviest_prefix([A, B]) == Prefix()
    check(tree)


def test_pruning_cuts_a_run_and_all_behind_it():
    tree = PrefixTree()
    tree.insert([A, B, C])
    tree.insert([A, B, D])
    tree.insert([D, C])
    assert tree.prune("ab") == 3
    assert sorted(tree.paths()) == [["a"], ["d", "c"]]
    check(tree)
    assert tree.prune("a") == 1
    assert list(tree.paths()) == [["d", "c"]]
    check(tree)


def test_pruning_what_is_not_there_whole_changes_nothing():
    tree = PrefixTree()
    tree.insert([A, B])
    assert [tree.prune(path) for path in ("", "b", "ba", "abc", "ac")] == [0] * 5
    assert list(tree.paths()) == [["a", "b"]]


def alive():
    return sum(type(one) is Node for one in gc.get_objects())


def test_pruned_nodes_are_freed_without_the_collector():
    tree = PrefixTree()
    for end in range(1, 50):
        tree.insert([BlockRef(number, 1) for number in range(end)])
        tree.insert([BlockRef(number, 1) for number in range(end)] + [A])
    gc.disable()
    try:
        before, nodes = alive(), len(tree.nodes())
        assert tree.prune([0]) == 49 + 49
        assert before - alive() == nodes
    finally:
        gc.enable()


def test_thousands_of_children_at_one_node():
    tree = PrefixTree()
    for number in range(5_000):
        tree.insert([A, BlockRef(number, 1)])
    assert tree.heaviest_prefix([BlockRef(4_321, 1), A]) == Prefix((1, 0), 101)
    check(tree)


def test_contexts_nested_in_one_another():
    tree = PrefixTree()
    chain = [BlockRef(number, 1) for number in range(1_000)]
    for end in range(1, len(chain) + 1):
        tree.insert(chain[:end])
    assert tree.heaviest_prefix(chain[::-1]).tokens == 1_000
    check(tree)


def test_ten_thousand_blocks_in_one_request():
    tree = PrefixTree()
    many = [BlockRef(number, 2) for number in range(10_000)]
    tree.insert(many)
    shuffled = random.Random(0).sample(many, len(many))
    prefix = tree.heaviest_prefix(shuffled)
    assert [shuffled[rank] for rank in prefix.ranks] == many


def test_the_search_is_bounded_and_returns_the_best_so_far():
    tree = PrefixTree()
    blocks = [BlockRef(number, 1) for number in range(12)]
    numbers = random.Random(0)
    for _ in range(3_000):
        tree.insert(numbers.sample(blocks, 12))
    exact = tree.heaviest_prefix(blocks)
    bounded = tree.heaviest_prefix(blocks, max_visited=5)
    assert exact.tokens == 12
    assert bounded.tokens == tree.cached_tokens([blocks[rank] for rank in bounded.ranks])[1]


@pytest.mark.parametrize(
    ("placement", "expected"),
    [
        (PlacementRule(protect_top=1), ()),  # c must stay first, and no cached path begins with it
        (PlacementRule(max_displacement=1), (1, 0)),
        (PlacementRule(max_displacement=0), ()),
        (PlacementRule(max_displacement=2), (1, 2, 0)),
    ],
)
def test_placement_rules_limit_the_prefix(placement, expected):
    tree = PrefixTree()
    tree.insert([A, B, C])
    tree.insert([A, C])
    assert tree.heaviest_prefix([C, A, B], placement).ranks == expected


def test_tells_when_each_part_of_a_path_was_used_last():
    tree = PrefixTree()
    tree.insert([A, B, C])
    tree.insert([A, D])
    tree.touch([A, B])
    assert tree.uses([A, B, C]) == [(1, 3), (2, 3), (3, 1)]
    assert tree.uses([A, D, B]) == [(1, 3), (2, 2)]
    assert tree.uses([A, B, D]) == [(1, 3), (2, 3)]
    assert tree.uses([C]) == []


def test_what_is_no_block_takes_room_and_goes_by_the_same_clock():
    tree = PrefixTree(capacity_tokens=300)
    tree.insert([A], beside=80)
    tree.insert([B], beside=20)
    tree.insert([C])  # 320: of what came with a, 20 go, before a
    assert (tree.tokens, tree.beside) == (220, 80)
    tree.touch([A])
    tree.insert([BlockRef("e", 120)])  # 420: the rest of it goes, b with what came with it, but ten tokens
    assert sorted(tree.paths()) == [["a"], ["c"], ["e"]]
    assert tree.tokens + tree.beside == 300
    check(tree)


def test_what_is_no_block_costs_bounded_memory():
    tree = PrefixTree()
    for number in range(30_000):
        tree.insert([BlockRef(number % 7, 1)], beside=3)
    assert tree.beside == 90_000
    assert len(tree._beside) < 10_000


@given(st.lists(requests, max_size=15), st.integers(0, 20), st.integers(0, 20))
def test_adds_up_what_was_used_between_two_counts(inserted, since, until):
    tree, last = PrefixTree(), {}
    for number, sequence in enumerate(inserted, start=1):
        tree.insert(sequence, beside=2)
        last.update({tuple(block.key for block in sequence[:end]): number for end in range(1, len(sequence) + 1)})
    weight = {key: block.tokens for sequence in inserted for block in sequence for key in [block.key]}
    wanted = sum(weight[start[-1]] for start, at in last.items() if since < at < until)
    others = 2 * sum(since < number < until for number in range(1, len(inserted) + 1))
    if all(block.tokens == weight[block.key] for sequence in inserted for block in sequence):
        assert tree.used_between(since, until) == wanted + others


def test_adds_up_from_the_nearer_end_or_by_the_pace():
    tree = PrefixTree()
    for number in range(5_000):
        tree.insert([BlockRef(number, 10)])
    assert tree.used_between(4_600, 5_001) == 4_000
    assert tree.used_between(400, 5_001) == 46_000
    assert tree.used_between(400, 4_901) == 45_000
    assert tree.used_between(2_500, 5_001) == pytest.approx(25_000, rel=0.01)


@given(st.lists(requests, max_size=12), requests, st.integers(1, 200))
def test_agrees_with_a_naive_cache(inserted, wanted, capacity):
    tree, naive = PrefixTree(capacity), NaiveCache(capacity)
    for sequence in inserted:
        tree.insert(sequence)
        naive.insert(sequence)
        check(tree)
    assert tree.tokens == sum(naive.weight.values())
    assert tree.cached_tokens(wanted)[1] == naive.cached(wanted)


def last_use(tree, start):
    return tree.uses([BlockRef(key, 1) for key in start])[-1][1]


def starts(tree):
    """Every start of a path, each once."""
    return {tuple(path[:end]) for path in tree.paths() for end in range(1, len(path) + 1)}


class TreeMachine(RuleBasedStateMachine):
    """Any mixture of operations leaves a sound tree that holds no more than it may."""

    def __init__(self) -> None:
        super().__init__()
        self.tree = PrefixTree(capacity_tokens=250, max_blocks=20)
        self.largest = 0

    @rule(sequence=requests)
    def insert(self, sequence):
        self.tree.insert(sequence)
        own = sum(block.tokens for block in sequence)
        assert self.tree.cached_tokens(sequence) == (len(sequence), own)
        assert self.tree.tokens <= max(250, own)
        assert self.tree.blocks <= max(20, len(sequence))

    @rule(sequence=requests)
    def touch(self, sequence):
        before = self.tree.tokens, sorted(map(str, self.tree.paths()))
        self.tree.touch(sequence)
        assert (self.tree.tokens, sorted(map(str, self.tree.paths()))) == before

    @rule(sequence=requests)
    def search(self, sequence):
        prefix = self.tree.heaviest_prefix(sequence)
        path = [sequence[rank] for rank in prefix.ranks]
        assert self.tree.cached_tokens(path) == (len(path), prefix.tokens)
        assert prefix.tokens >= self.tree.cached_tokens(sequence)[1]

    @rule(sequence=requests)
    def prune(self, sequence):
        keys = [block.key for block in sequence]
        there = self.tree.cached_tokens(sequence)[0] == len(keys) > 0
        wanted = starts(self.tree)
        gone = {start for start in wanted if there and list(start[: len(keys)]) == keys}
        assert self.tree.prune(keys) == len(gone)
        assert starts(self.tree) == wanted - gone
        if keys:
            assert self.tree.cached_tokens(sequence)[0] < len(keys)

    @rule(ago=st.integers(0, 40))
    def forget(self, ago):
        until = self.tree.clock - ago
        kept = {start for start in starts(self.tree) if last_use(self.tree, start) > until}
        before = self.tree.blocks
        assert self.tree.forget_until(until) == before - self.tree.blocks
        assert starts(self.tree) == kept

    @rule(capacity=st.integers(1, 400) | st.none())
    def resize(self, capacity):
        self.tree.resize(capacity)
        assert capacity is None or self.tree.tokens + self.tree.beside <= capacity
        self.tree.resize(250)

    @rule(sequence=requests, beside=st.integers(1, 60))
    def insert_more(self, sequence, beside):
        self.tree.insert(sequence, beside)
        own = sum(block.tokens for block in sequence)
        assert self.tree.cached_tokens(sequence)[0] == len(sequence)
        assert self.tree.tokens + self.tree.beside <= max(250, own + beside)

    @rule()
    def clear(self):
        self.tree.clear()

    @invariant()
    def is_sound(self):
        check(self.tree)


TestTreeMachine = TreeMachine.TestCase
TestTreeMachine.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


@given(st.lists(st.tuples(requests, st.sampled_from(["insert", "forget", "resize"]), st.integers(0, 60)), max_size=12))
def test_in_steps_the_same_is_dropped(calls):
    at_once, steps = PrefixTree(300), PrefixTree(300, pace=1)
    for sequence, call, number in calls:
        for tree in (at_once, steps):
            if call == "insert":
                tree.insert(sequence, number)
            elif call == "forget":
                tree.forget_until(tree.clock - number)
            else:
                tree.resize(10 * number)
            while tree.settle():
                pass
        assert sorted(map(str, steps.paths())) == sorted(map(str, at_once.paths()))
        assert (steps.tokens, steps.blocks, steps.beside) == (at_once.tokens, at_once.blocks, at_once.beside)


def test_a_step_is_no_longer_than_it_may_be():
    tree = PrefixTree(pace=10)
    for number in range(100):
        tree.insert([BlockRef((number, place), 10) for place in range(4)])
    tree.resize(100)
    assert 400 - 10 - 4 <= tree.blocks <= 390
    tree.insert([BlockRef(("more", place), 10) for place in range(30)])
    assert 390 - 10 - 4 - 4 <= tree.blocks <= 390 - 10 + 4, "as many as come, and a step"
    while tree.settle():
        pass
    assert tree.tokens <= 300
    assert tree.forget_until(tree.clock) == 30, "what was used in one piece goes in one"
