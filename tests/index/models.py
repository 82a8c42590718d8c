"""Slow and obviously right: what the tree and the aligner are compared with."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from itertools import permutations

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
