"""Slow and obviously right: what the tree and the aligner are compared with."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from itertools import permutations, product
from typing import Any

from contextpilot_rag import BlockRef, OrderBudget
from contextpilot_rag.index.placement import PlacementRule


class NaiveCache:
    """Block sequences with the time of their last use; every start of a sequence is an entry of its own."""

    def __init__(self, capacity: int | None = None) -> None:
        self.capacity = capacity
        self.clock = 0
        self.used: dict[tuple[Hashable, ...], int] = {}
        self.weight: dict[tuple[Hashable, ...], int] = {}

    def insert(self, sequence: Sequence[BlockRef]) -> None:
        self.clock += 1
        for end in range(1, len(sequence) + 1):
            start = tuple(block.key for block in sequence[:end])
            self.used[start] = self.clock
            self.weight[start] = sequence[end - 1].tokens
        while self.capacity is not None and sum(self.weight.values()) > self.capacity:
            oldest = min(self.used, key=lambda start: (self.used[start], -len(start)))
            if self.used[oldest] == self.clock:
                break
            # the deepest below the oldest goes first
            victim = max((start for start in self.used if start[: len(oldest)] == oldest), key=len)
            del self.used[victim], self.weight[victim]

    def cached(self, sequence: Sequence[BlockRef]) -> int:
        tokens = 0
        for end in range(1, len(sequence) + 1):
            if tuple(block.key for block in sequence[:end]) not in self.used:
                break
            tokens += sequence[end - 1].tokens
        return tokens


def within(order: Sequence[int], budget: OrderBudget | PlacementRule) -> bool:
    """Does an order keep the limits of a budget?"""
    if any(order[place] != place for place in range(min(budget.protect_top, len(order)))):
        return False
    limit = budget.max_displacement
    return limit is None or all(abs(rank - place) <= limit for place, rank in enumerate(order))


def best_gain(request: Sequence[BlockRef], cache: NaiveCache, budget: OrderBudget) -> int:
    """The most tokens that any order within the budget, of the form "prefix, then the rest as retrieved", finds."""
    best = 0
    for length in range(len(request) + 1):
        for prefix in permutations(range(len(request)), length):
            order = [*prefix, *(rank for rank in range(len(request)) if rank not in prefix)]
            if within(order, budget):
                best = max(best, cache.cached([request[rank] for rank in order]))
    return best


def conditional_tail(
    past: Sequence[Sequence[BlockRef]],
    request: Sequence[BlockRef],
    prefix: Sequence[int],
    rest: Sequence[int],
    prior: float,
    share: float,
) -> list[int]:
    """What `tail.Conditional` should answer, by looking through all past requests for each block."""
    contents = [{block.key for block in context} for context in past]
    placed, order, waiting = {request[rank].key for rank in prefix}, [], list(rest)
    while waiting:
        alike = [content for content in contents if placed <= content]

        def expected(rank: int) -> float:
            count = sum(request[rank].key in content for content in alike)  # noqa: B023
            nearness = 1 - rank / len(request)
            return (count + (prior + share * len(alike)) * nearness) * request[rank].tokens  # noqa: B023

        best = max(waiting, key=lambda rank: (expected(rank), -rank))
        order.append(best)
        waiting.remove(best)
        placed.add(request[best].key)
    return order


def longest_common_prefix(one: Sequence[object], other: Sequence[object]) -> int:
    length = 0
    while length < min(len(one), len(other)) and one[length] == other[length]:
        length += 1
    return length


def most_saved_in_any_order(contexts: Sequence[Sequence[BlockRef]], cached: Sequence[Sequence[BlockRef]] = ()) -> int:
    """The most tokens that any order of each context finds, sent in any order: all of them are tried.

    What is not found is computed, and stands in the cache from then on, once for each start of a sequence.
    """
    known = NaiveCache()
    for sequence in cached:
        known.insert(sequence)
    best = 0
    for orders in product(*(list(permutations(context)) for context in contexts)):
        starts = {order[:end]: order[end - 1].tokens for order in orders for end in range(1, len(order) + 1)}
        new = sum(tokens for start, tokens in starts.items() if tuple(block.key for block in start) not in known.used)
        best = max(best, sum(block.tokens for order in orders for block in order) - new)
    return best


Shape = Any
"""A binary tree: the number of a leaf, or a pair of trees."""


def all_forests(leaves: int) -> Iterator[list[Shape]]:
    """Every way to stand so many leaves in binary trees."""
    if leaves == 0:
        yield []
        return
    for forest in all_forests(leaves - 1):
        yield [*forest, leaves - 1]
        for place, tree in enumerate(forest):
            for grown in _grafted(tree, leaves - 1):
                yield [*forest[:place], grown, *forest[place + 1 :]]


def _grafted(tree: Shape, leaf: int) -> Iterator[Shape]:
    yield tree, leaf
    if isinstance(tree, tuple):
        left, right = tree
        yield from ((grown, right) for grown in _grafted(left, leaf))
        yield from ((left, grown) for grown in _grafted(right, leaf))


def most_saved_by_forests(
    sets: Sequence[frozenset[int]],
    weights: Sequence[int],
    min_gain: float = 0,
    prompt_tokens: Sequence[int] = (),
    cached: Callable[[frozenset[int]], int] = lambda _: 0,
) -> int:
    """The most tokens that a forest of binary trees saves, each join enough of all prompts below it."""

    def saved(tree: Shape) -> tuple[float, frozenset[int], int]:
        if not isinstance(tree, tuple):
            return 0, sets[tree], prompt_tokens[tree] if prompt_tokens else 0
        (one, left, below), (two, right, below_too) = map(saved, tree)
        gain = sum(weights[block] for block in left & right)
        enough = gain > 0 and gain >= min_gain * (below + below_too) * (1 - 1e-9)
        return (one + two + gain if enough else float("-inf")), left & right, below + below_too

    best = 0.0
    for forest in all_forests(len(sets)):
        found = [saved(tree) for tree in forest]
        best = max(best, sum(tokens + cached(shared) for tokens, shared, _ in found))
    return int(best)
