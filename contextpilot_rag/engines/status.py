"""EngineStatus: what an operator wants to know of one engine; and the counts of several indexes as one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from ..types import IndexStats
from .engine import Kind, Level


@dataclass(frozen=True, slots=True)
class EngineStatus:
    """How one engine stands, and what is believed of its cache.

    Where an external router chooses, one tree stands for all engines, and what goes to each is not known: each of them
    shows the sizes and the counts of all together.

    Args:
        name: as in its `Engine`.
        url: its address.
        alive: whether it answers, as far as is known.
        level: how its cache is followed.
        why: why it is not alive, or not followed by its events; empty: nothing is wrong.
        kind: which software it is.
        capacity_tokens: what its cache holds; None: not known.
        block_size: tokens of one KV block; None: not known.
        tree_blocks: retriever blocks that are believed cached.
        tree_tokens: their tokens.
        kv_blocks: KV blocks that it told of and that are there.
        outstanding_tokens: tokens that it has to prefill, of requests that were not reported on yet.
        waiting: requests that wait there, as it said last; None: it did not.
        requests: that were sent there.
        observed: of those, how many were reported on.
        reported_cached_tokens: what it reported as cached.
        expected_cached_tokens: what was expected, of the requests where something was.
        events: cache events that it told.
        lost: how often its events were lost, so that all that was known of its cache was dropped.
        last_event: seconds since the last one; None: there was none.
        covered: answered prompts that were found among its KV blocks, so that events about them move the tree.
        uncovered: those that were not; where that is most of them, ``why`` says the reason. Later turns of a
            conversation count as neither.
        reported_of_expected: of the cached tokens that it reported, those of requests where something was expected.
    """

    name: str
    url: str
    alive: bool
    level: Level
    why: str
    kind: Kind
    capacity_tokens: int | None
    block_size: int | None
    tree_blocks: int
    tree_tokens: int
    kv_blocks: int
    outstanding_tokens: int
    waiting: int | None
    requests: int
    observed: int
    reported_cached_tokens: int
    expected_cached_tokens: int
    events: int
    lost: int
    last_event: float | None
    covered: int = 0
    uncovered: int = 0
    reported_of_expected: int = 0

    @property
    def calibration(self) -> float | None:
        """Cached tokens that were reported, over those that were expected of the same requests; None: none were.

        1 is exact. More than 1: more was found than was known when the request was aligned, as of requests that were
        aligned at the same time and share a prefix, or of questions that begin alike.
        """
        if not self.expected_cached_tokens:
            return None
        return self.reported_of_expected / self.expected_cached_tokens


def of_pool(status: EngineStatus, stats: IndexStats) -> EngineStatus:
    """With the counts of all engines, where it is not known what goes to each."""
    return replace(
        status,
        requests=stats.requests,
        observed=stats.observed,
        reported_cached_tokens=stats.reported_cached_tokens,
        expected_cached_tokens=stats.predicted_of_reported,
        reported_of_expected=stats.reported_of_expected,
    )


def added_up(counts: Sequence[IndexStats]) -> IndexStats:
    """The counts of several indexes, number by number.

    >>> both = added_up([IndexStats(requests=1, rules={"off": 1}), IndexStats(requests=2, rules={"off": 1, "tail": 1})])
    >>> both.requests, both.rules
    (3, {'off': 2, 'tail': 1})
    """
    total: dict[str, Any] = {}
    for one in fields(IndexStats):
        values = [getattr(count, one.name) for count in counts]
        total[one.name] = dict(sum(map(Counter, values), Counter())) if one.name == "rules" else sum(values)
    return IndexStats(**total)
