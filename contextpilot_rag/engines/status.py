"""EngineStatus: what an operator wants to know of one engine; and the counts of several indexes as one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

from ..types import IndexStats
from .engine import Kind, Level


@dataclass(frozen=True, slots=True)
class EngineStatus:
    """How one engine stands, and what is believed of its cache.

    Where an external router chooses, one tree stands for all engines: each of them shows the sizes of that one, and
    what goes to each is not known.

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
        reported_cached_tokens: what it reported as cached, of those requests where something was expected.
        expected_cached_tokens: what was expected for these.
        events: cache events that it told.
        lost: how often its events were lost, so that all that was known of its cache was dropped.
        last_event: seconds since the last one; None: there was none.
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

    @property
    def calibration(self) -> float | None:
        """Cached tokens that were reported, over those that were expected; 1 is exact. None: nothing is known yet."""
        if not self.expected_cached_tokens:
            return None
        return self.reported_cached_tokens / self.expected_cached_tokens


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
