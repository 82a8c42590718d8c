"""A recorded trace through any way of ordering: what would I save, before I change anything?

The cache that the orders go through knows nothing of how they were made: a prefix cache over whole blocks that evicts
the least recently used tails beyond its capacity.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from .errors import SettingsError
from .index import tail as tails
from .index.local import LocalIndex
from .index.tree import PrefixTree
from .index.window import Window
from .settings import Settings
from .trace import TraceRequest
from .types import OrderBudget, Request

_BEST = 3  # how many of the best blocks the displacement is about
Order = Sequence[int]


class Policy(Protocol):
    """A way of ordering, one request at a time."""

    def order(self, request: TraceRequest) -> Order:
        """The ranks of the request's blocks in prompt order; the request counts as sent."""
        ...

    def cached_tokens(self, request: TraceRequest) -> int:
        """How much of the request would be cached now: what a window of waiting requests goes by."""
        ...


@dataclass(frozen=True, slots=True)
class Result:
    """What a policy did to a trace. Tokens are of blocks.

    Args:
        policy: its name.
        requests: how many.
        tokens: sent.
        cached_tokens: found in the cache.
        changed: requests whose order is not the retriever's.
        displacement: mean over requests of how many places the three best blocks moved, each.
        microseconds: mean time to order a request.
        schedule: the requests in the order of sending, with their orders.
    """

    policy: str
    requests: int
    tokens: int
    cached_tokens: int
    changed: int
    displacement: float
    microseconds: float
    schedule: tuple[tuple[TraceRequest, Order], ...]

    @property
    def hit_ratio(self) -> float:
        """Tokens served from the cache over tokens sent."""
        return self.cached_tokens / self.tokens if self.tokens else 0.0

    def saving_over(self, other: Result) -> float:
        """Share of the prefill, and so about of the time to first token, that this policy saves over another."""
        left = 1 - other.hit_ratio
        return (self.hit_ratio - other.hit_ratio) / left if left > 0 else 0.0


class Baseline:
    """A policy that looks at the request alone, or at counts. Its picture of the cache is for windows only."""

    def __init__(self, sort: Callable[[TraceRequest], Order], capacity_tokens: int | None) -> None:
        self._sort = sort
        self._cache = PrefixTree(capacity_tokens)

    def order(self, request: TraceRequest) -> Order:
        """By the rule it was made with."""
        order = self._sort(request)
        self._cache.insert([request.blocks[rank] for rank in order])
        return order

    def cached_tokens(self, request: TraceRequest) -> int:
        """In the retriever's order: a baseline does not know its order before it is asked."""
        return self._cache.cached_tokens(request.blocks)[1]


class Indexed:
    """A policy of the context index."""

    def __init__(self, budget: OrderBudget, capacity_tokens: int | None, tail: str = "adaptive") -> None:
        self._index = LocalIndex(capacity_tokens, tail=tail)
        self._budget = budget

    def order(self, request: TraceRequest) -> Order:
        """What the index answers."""
        return self._index.align(Request(request.blocks, budget=self._budget)).order

    def cached_tokens(self, request: TraceRequest) -> int:
        """What the index predicts."""
        return self._index.predict(Request(request.blocks, budget=self._budget))


def _as_retrieved(request: TraceRequest) -> Order:
    return range(len(request.blocks))


def _sorted_by_id(request: TraceRequest) -> Order:
    return sorted(range(len(request.blocks)), key=lambda rank: str(request.blocks[rank].key))


def _most_popular_first() -> Callable[[TraceRequest], Order]:
    seen: Counter[object] = Counter()

    def sort(request: TraceRequest) -> Order:
        order = sorted(range(len(request.blocks)), key=lambda rank: -seen[request.blocks[rank].key])
        seen.update(block.key for block in request.blocks)
        return order

    return sort


POLICIES: dict[str, Callable[[int | None], Policy]] = {
    "retrieved": lambda capacity: Baseline(_as_retrieved, capacity),
    "sorted": lambda capacity: Baseline(_sorted_by_id, capacity),
    "popular": lambda capacity: Baseline(_most_popular_first(), capacity),
    "balanced": lambda capacity: Indexed(OrderBudget("balanced"), capacity),
    "throughput": lambda capacity: Indexed(OrderBudget("throughput"), capacity),
}
"""The trivial orders, and the presets."""


def _with_tail(tail: str) -> Callable[[int | None], Policy]:
    return lambda capacity: Indexed(OrderBudget("throughput"), capacity, tail)


SINGLE_TAILS: dict[str, Callable[[int | None], Policy]] = {
    "adaptive": _with_tail("adaptive"),
    **{f"tail-{name.replace('_', '-')}": _with_tail(name) for name in tails.POLICIES},
}
"""What "throughput" chooses from: the heaviest prefix with one tail policy held fast. "adaptive" is its own name."""


def replay(
    trace: Sequence[TraceRequest],
    policy: str,
    capacity_tokens: int | None = None,
    window: int = 1,
    *,
    min_gain: float | None = None,
) -> Result:
    """Send a trace through a policy and a cache.

    Args:
        trace: the requests in order of arrival.
        policy: a name from `POLICIES` or `SINGLE_TAILS`.
        capacity_tokens: the cache's size; None: it never evicts.
        window: how many requests wait at a time; the one with the longest cached prefix goes first. 1: none waits.
        min_gain: of "balanced"; None: the default.

    Raises:
        SettingsError: no such policy, a window or capacity below 1, or a share that is none.

    >>> from contextpilot_rag.types import BlockRef
    >>> a, b, c = (BlockRef(key, 100) for key in "abc")
    >>> trace = [TraceRequest("1", (a, b)), TraceRequest("2", (c, b, a))]
    >>> replay(trace, "retrieved").hit_ratio, replay(trace, "balanced").hit_ratio
    (0.0, 0.4)
    """
    policies = POLICIES | SINGLE_TAILS
    if policy not in policies:
        raise SettingsError(f"unknown policy {policy!r}; there are {', '.join(policies)}")
    if window < 1 or (capacity_tokens is not None and capacity_tokens < 1):
        raise SettingsError(f"window and capacity must be at least 1, not {window} and {capacity_tokens}")
    chosen = policies[policy](capacity_tokens)
    if policy == "balanced" and min_gain is not None:
        chosen = Indexed(Settings(min_gain=min_gain).budget, capacity_tokens)
    cache = PrefixTree(capacity_tokens)
    schedule: list[tuple[TraceRequest, Order]] = []
    cached = changed = moved = places = 0
    seconds = 0.0
    for request in _arrivals(trace, chosen, window):
        started = time.perf_counter()
        order = chosen.order(request)
        seconds += time.perf_counter() - started
        sent = [request.blocks[rank] for rank in order]
        cached += cache.cached_tokens(sent)[1]
        cache.insert(sent)
        schedule.append((request, order))
        changed += any(rank != place for place, rank in enumerate(order))
        for place, rank in enumerate(order):
            if rank < _BEST:
                moved += abs(rank - place)
                places += 1
    return Result(
        policy=policy,
        requests=len(schedule),
        tokens=sum(request.tokens for request in trace),
        cached_tokens=cached,
        changed=changed,
        displacement=moved / places if places else 0.0,
        microseconds=1e6 * seconds / len(schedule) if schedule else 0.0,
        schedule=tuple(schedule),
    )


def _arrivals(trace: Sequence[TraceRequest], policy: Policy, size: int) -> Iterator[TraceRequest]:
    """The order of sending: of the waiting ones, the longest cached prefix first."""
    if size == 1:
        yield from trace
        return
    window: Window[TraceRequest] = Window(size)
    for request in trace:
        window.add(request)
        if window.full:
            yield window.pop(policy.cached_tokens)
    while len(window):
        yield window.pop(policy.cached_tokens)
