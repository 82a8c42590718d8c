"""A simulated fleet: engines with paged prefix caches and queues, in simulated time. For tests, and for benchmarks."""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean, quantiles
from typing import Any

from contextpilot_rag.engines.chain import chain, content
from contextpilot_rag.engines.covering import Covering
from contextpilot_rag.engines.engine import Engine
from contextpilot_rag.engines.fleet import Fleet
from contextpilot_rag.engines.kv import Event
from contextpilot_rag.index.local import LocalIndex
from contextpilot_rag.testing import PagedPrefixCache
from contextpilot_rag.types import Alignment, BlockRef, OrderBudget, Request, Usage

BLOCK_SIZE = 16
HEAD, QUESTION = 60, 25


class Prompts:
    """Token ids of prompts: the same for the same block, and others for each question."""

    def __init__(self) -> None:
        self._blocks: dict[object, list[int]] = {}
        self._head = [random.Random("head").randrange(1 << 20) for _ in range(HEAD)]
        self._question = itertools.count(1 << 30)

    def tokens(self, alignment: Alignment) -> tuple[list[int], tuple[int, ...]]:
        """Of the prompt, and where its blocks end."""
        found, ends = list(self._head), [HEAD]
        for rank in alignment.order:
            block = alignment.request.blocks[rank]
            if block.key not in self._blocks:
                numbers = random.Random(str(block.key))
                self._blocks[block.key] = [numbers.randrange(1 << 20) for _ in range(block.tokens)]
            found += self._blocks[block.key]
            ends.append(len(found))
        return found + [next(self._question)] * QUESTION, tuple(ends)


@dataclass
class Machine:
    """One engine: first come, first served; computes so many tokens a second."""

    capacity: int
    rate: float
    cache: PagedPrefixCache = field(init=False)
    free_at: float = 0.0
    prompt: int = 0
    cached: int = 0
    requests: int = 0

    def __post_init__(self) -> None:
        self.told: list[Event] = []
        self.cache = PagedPrefixCache(
            BLOCK_SIZE, self.capacity // BLOCK_SIZE, lambda events, salt: self.told.extend(events)
        )

    @property
    def prefilled(self) -> int:
        return self.prompt - self.cached

    def serve(self, tokens: list[int], now: float) -> tuple[int, float]:
        """Cached tokens, and when the first token comes; its cache's events are in `told`."""
        self.told.clear()
        cached = self.cache.serve(tokens)
        self.free_at = max(self.free_at, now) + (len(tokens) - cached) / self.rate
        self.prompt += len(tokens)
        self.cached += cached
        self.requests += 1
        return cached, self.free_at


@dataclass
class Outcome:
    """What became of a run."""

    machines: list[Machine]
    waits: list[float]
    served: list[tuple[int, int, int]]  # for each request: which machine, prompt tokens, cached

    @property
    def hit_ratio(self) -> float:
        return sum(one.cached for one in self.machines) / sum(one.prompt for one in self.machines)

    @property
    def spread(self) -> float:
        """The largest share of what was computed, over the mean."""
        work = [one.prefilled for one in self.machines]
        return max(work) / fmean(work)

    @property
    def ttft(self) -> tuple[float, float]:
        """Mean and 95th percentile, in seconds."""
        return fmean(self.waits), quantiles(self.waits, n=20)[18]

    def part(self, start: int, end: int, machines: Sequence[int]) -> tuple[float, list[int]]:
        """Of requests from start to end: the hit ratio on some machines, and what each machine computed."""
        prompt = cached = 0
        work = [0] * len(self.machines)
        for place, tokens, hit in self.served[start:end]:
            work[place] += tokens - hit
            if place in machines:
                prompt, cached = prompt + tokens, cached + hit
        return cached / max(1, prompt), work


def topics(
    count: int, topics: int = 200, zipf: float = 1.0, hot: float = 0.0, seed: int = 0, budget: str = "balanced"
) -> Iterator[Request]:
    """Requests about topics of Zipf's distribution; each draws most of its topic's blocks, and some that all know.

    Args:
        count: of requests.
        topics: how many there are.
        zipf: its exponent.
        hot: share of requests that are all about one topic.
        seed: of all that is drawn.
        budget: the order of each request's blocks.
    """
    numbers = random.Random(seed)
    length: dict[str, int] = {}
    weights = list(itertools.accumulate(1 / rank**zipf for rank in range(1, topics + 1)))
    for _ in range(count):
        topic = 0 if numbers.random() < hot else numbers.choices(range(topics), cum_weights=weights)[0]
        own = [f"{topic}/{number}" for number in range(12)]
        common = [f"common/{number}" for number in range(40)]
        drawn = sorted(own, key=lambda key: int(key.split("/")[1]) + numbers.gauss(0, 3))[:8]
        drawn.insert(numbers.randrange(9), numbers.choice(common))
        for key in drawn:
            length.setdefault(key, random.Random(key).randrange(80, 240))
        yield Request(tuple(BlockRef(key, length[key]) for key in drawn), budget=OrderBudget(budget))


@dataclass(frozen=True)
class Answer:
    """The first token is there."""

    place: int
    alignment: Alignment
    usage: Usage
    tokens: list[int]
    ends: tuple[int, ...]
    events: tuple[Event, ...]

    def covering(self) -> Covering:
        contents = [
            content(self.tokens[start : start + BLOCK_SIZE])
            for start in range(0, len(self.tokens) - BLOCK_SIZE + 1, BLOCK_SIZE)
        ]
        return Covering(chain(self.tokens, BLOCK_SIZE), tuple(contents), self.ends, len(self.tokens), BLOCK_SIZE)


class Router:
    """Who says where a request goes, and in which order."""

    def send(self, request: Request) -> tuple[int, Alignment]:
        raise NotImplementedError

    def answered(self, answer: Answer) -> None:
        """It is told."""


class OfFleet(Router):
    """A fleet; where it names no engine, one is drawn, as by a balancer that knows nothing.

    Args:
        fleet: chooses.
        names: of its engines, in the order of the machines.
        follow: it is told of cache events, and what the prompts' tokens are.
    """

    def __init__(self, fleet: Fleet, names: Sequence[str], *, follow: bool = False) -> None:
        self.fleet, self.names, self._numbers, self._follow = fleet, list(names), random.Random(0), follow
        for name in self.names if follow else ():
            fleet.level(name, "events")

    def send(self, request):
        alignment = self.fleet.align(request)
        if alignment.engine is None:
            return self._numbers.randrange(len(self.names)), alignment
        return self.names.index(alignment.engine), alignment

    def answered(self, answer):
        self.fleet.observe(answer.alignment, answer.usage)
        if self._follow:
            self.fleet.events(self.names[answer.place], 0, answer.events)
            self.fleet.cover(answer.alignment, None, answer.covering(), answer.usage.cached_tokens)


class Blind(Router):
    """A balancer that looks at no cache: it draws ("random") or takes turns; each engine's order is its own index's."""

    def __init__(self, way: str, indexes: Sequence[Any], seed: int = 0) -> None:
        self.way, self.indexes, self._numbers, self._turn = way, indexes, random.Random(seed), itertools.count()

    def send(self, request):
        count = len(self.indexes)
        place = self._numbers.randrange(count) if self.way == "random" else next(self._turn) % count
        return place, self.indexes[place].align(request)

    def answered(self, answer):
        self.indexes[answer.place].observe(answer.alignment, answer.usage)


class AsRetrieved(Router):
    """Drawn, and the order as retrieved."""

    def __init__(self, count: int, seed: int = 0) -> None:
        self._count, self._numbers = count, random.Random(seed)

    def send(self, request):
        return self._numbers.randrange(self._count), Alignment(request, tuple(range(len(request.blocks))))


class Clock:
    """Simulated seconds."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def fleet_of(count: int, capacity: int | None, clock: Callable[[], float], **options: Any) -> tuple[Fleet, list[str]]:
    """A fleet, each engine with so many tokens of cache, which it knows; None: it does not."""
    engines = [Engine(f"http://e{number}:8000", capacity_tokens=capacity) for number in range(count)]
    fleet = Fleet(engines, lambda engine: index_of(capacity, engine, count), clock=clock, **options)
    return fleet, [engine.name for engine in engines]


def index_of(capacity: int | None, engine: Engine | None, count: int) -> LocalIndex:
    """As a pilot makes it: of several that somebody else chooses from, one report says little of the others."""
    if engine is not None or count == 1:
        return LocalIndex(capacity)
    return LocalIndex(None if capacity is None else capacity * count, single=False)


def run(
    router: Router,
    machines: list[Machine],
    requests: Sequence[Request],
    clock: Clock,
    per_second: float,
    seed: int = 0,
    at: dict[int, Callable[[], None]] | None = None,
) -> Outcome:
    """Requests that arrive by themselves, so many a second; `at` so many of them something else happens."""
    numbers, prompts = random.Random(seed), Prompts()
    answers: list[tuple[float, int, Answer]] = []
    outcome = Outcome(machines, [], [])
    for number, request in enumerate(requests):
        clock.now += numbers.expovariate(per_second)
        now = clock.now
        while answers and answers[0][0] <= now:
            clock.now, _, answer = heapq.heappop(answers)
            router.answered(answer)
        clock.now = now
        if at and number in at:
            at[number]()
        place, alignment = router.send(request)
        assert sorted(alignment.order) == list(range(len(request.blocks)))
        tokens, ends = prompts.tokens(alignment)
        cached, done = machines[place].serve(tokens, now)
        outcome.waits.append(done - now)
        outcome.served.append((place, len(tokens), cached))
        usage, events = Usage(len(tokens), cached), tuple(machines[place].told)
        heapq.heappush(answers, (done, number, Answer(place, replace(alignment), usage, tokens, ends, events)))
    return outcome
