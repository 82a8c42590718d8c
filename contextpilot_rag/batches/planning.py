"""One group, planned."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..index.plan import plan_batch
from .contexts import Contexts, Ints, Numbers, offsets
from .payload import Payload, taken


@dataclass(frozen=True, slots=True)
class Totals:
    """What a plan is worth, in tokens.

    Args:
        requests: how many.
        tokens: of all their blocks.
        cached: of these, predicted to be found cached.
        retrieved: what would be found if all were sent as retrieved, and nothing were evicted.
        changed: requests whose order is not the retriever's.
    """

    requests: int = 0
    tokens: int = 0
    cached: int = 0
    retrieved: int = 0
    changed: int = 0

    def __add__(self, other: Totals) -> Totals:
        return Totals(
            self.requests + other.requests,
            self.tokens + other.tokens,
            self.cached + other.cached,
            self.retrieved + other.retrieved,
            self.changed + other.changed,
        )


@dataclass(frozen=True, slots=True)
class PlannedGroup:
    """A group's contexts in the order of sending.

    Args:
        rows: what the caller gave for each.
        ranks: for each context after the other the ranks of its blocks, in prompt order.
        ends: where each context begins among these, and where the last one ends.
        tokens: of each.
        cached_blocks: how many leading blocks of each are predicted to be cached.
        cached: their tokens.
        sources: for each the first that computes this prefix; -1: none.
        totals: all of it.
    """

    rows: Payload
    ranks: Numbers
    ends: Ints
    tokens: Ints
    cached_blocks: Numbers
    cached: Ints
    sources: Ints
    totals: Totals

    def __len__(self) -> int:
        return len(self.tokens)


def plan_group(contexts: Contexts, rows: Payload) -> PlannedGroup:
    """Plan some contexts that fit into one planner.

    Args:
        contexts: in any order.
        rows: what the caller gave for each of them.
    """
    plan = plan_batch(contexts.requests())
    sent = np.array([alignment.request.key for alignment in plan], np.int64)
    orders = [alignment.order for alignment in plan]
    tokens = np.array([alignment.request.tokens for alignment in plan], np.int64)
    cached = np.array([alignment.predicted_cached_tokens for alignment in plan], np.int64)
    return PlannedGroup(
        taken(rows, sent),
        np.fromiter((rank for order in orders for rank in order), np.int32, int(contexts.ends[-1])),
        offsets(np.array([len(order) for order in orders], np.int64)),
        tokens,
        np.array([alignment.cached_blocks for alignment in plan], np.int32),
        cached,
        np.array(plan.sources, np.int64),
        Totals(len(plan), int(tokens.sum()), int(cached.sum()), plan.retrieved_cached_tokens, plan.changed),
    )
