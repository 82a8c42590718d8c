"""Several engines: who says where a request goes, and what that costs. In simulated time, so it takes a minute.

    python benchmarks/fleet.py

Writes its section of benchmarks/README.md. Needs nothing but this repository.
"""

from __future__ import annotations

import itertools
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import fmean, median

sys.path[:0] = [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parents[1])]

from report import provenance, table, write_section

from contextpilot_rag.index.local import LocalIndex
from contextpilot_rag.types import BlockRef, Request, Usage
from tests.engines.simulated import AsRetrieved, Blind, Clock, Machine, OfFleet, Outcome, Router, fleet_of, run, topics

ENGINES, CAPACITY, RATE = 4, 60_000, 8_000.0
REQUESTS = 3_000
SCENES = (  # name, Zipf's exponent, share of one hot topic, requests a second
    ("Zipf 1.0, half idle", 1.0, 0.0, 6),
    ("Zipf 1.0", 1.0, 0.0, 12),
    ("Zipf 1.0, heavy load", 1.0, 0.0, 30),
    ("Zipf 0.7", 0.7, 0.0, 12),
    ("Zipf 0.7, heavy load", 0.7, 0.0, 22),
    ("80 % about one topic", 1.0, 0.8, 12),
    ("80 % about one topic, heavy load", 1.0, 0.8, 60),
)
COUNTS = (1, 4, 16)


def main() -> None:
    """Measure and write."""
    parts = [
        "## Several engines",
        f"From {provenance()} Time and engines are simulated.",
        choosing(),
        dying(),
        costs(),
    ]
    write_section("fleet", "\n\n".join(parts))


def choosing() -> str:
    """Hit ratios, spread and waiting for each way to choose."""
    rows = []
    for name, zipf, hot, per_second in SCENES:
        requests = list(topics(REQUESTS, zipf=zipf, hot=hot))
        for way, make in _ways().items():
            clock = Clock()
            router, machines = make(clock)
            rows.append([name, way, *_shown(run(router, machines, requests, clock, per_second))])
            print(*rows[-1], flush=True)
    prompt = fmean(request.tokens for request in topics(REQUESTS))
    return (
        f"Four engines, each with a cache of {CAPACITY:,} tokens in KV blocks of 16, computing {RATE:,.0f} tokens a "
        f"second, first come, first served. {REQUESTS:,} requests arrive by themselves (Poisson), with {prompt:,.0f} "
        "tokens of blocks on average, about 200 topics of 12 blocks. Every way but the first puts the blocks in order "
        "(`balanced`), with the engines' capacity known and one tree an engine; they differ in who chooses the engine. "
        "*External, one tree*: the engine is drawn, and the order comes from one tree for all. *One engine*: with four "
        "times the cache and the speed, which no choice can beat. Hit ratio: cached tokens of all prompt tokens, as "
        "the engines' caches count. Spread: what the busiest engine computed, over the mean. TTFT: until the prompt is "
        "computed.\n\n" + table(["traffic", "who chooses", "hit ratio", "spread", "TTFT mean, s", "p95, s"], rows)
    )


def dying() -> str:
    """One of four engines dies and comes back cold."""
    requests = list(topics(REQUESTS))
    back = 1_300

    def simulate(*, disturbed: bool) -> Outcome:
        clock = Clock()
        fleet, names = fleet_of(ENGINES, CAPACITY, clock)
        machines = _machines()

        def die() -> None:
            machines[0].cache.clear()
            fleet.alive(names[0], False, "killed")

        at: dict[int, Callable[[], None]] = {1_000: die, back: lambda: fleet.alive(names[0], True)}
        return run(OfFleet(fleet, names), machines, requests, clock, 12, at=at if disturbed else None)

    rows = []
    plain, broken = simulate(disturbed=False), simulate(disturbed=True)
    for start, end in itertools.pairwise((700, 1_000, back, back + 100, back + 300, back + 700, REQUESTS)):
        row: list[object] = [f"{start:,} to {end:,}"]
        for outcome in (plain, broken):
            others, work = outcome.part(start, end, (1, 2, 3))
            own = outcome.part(start, end, (0,))[0]
            row += [f"{others:.3f}", f"{own:.3f}" if work[0] else "", f"{work[0] / sum(work):.2f}"]
        rows.append(row)
    return (
        f"The same traffic (Zipf 1.0, 12 a second) where the first engine dies after 1,000 requests, is back, with an "
        f"empty cache, after {back:,}, and is warmed gradually: hit ratio of the other three and of the first, and the "
        "first one's share of what was computed.\n\n"
        + table(["requests", "undisturbed: others", "first", "its share", "dies: others", "first", "its share"], rows)
    )


def costs() -> str:
    """What `align` costs with more engines, all in one run."""
    keys, shares = range(50_000), list(itertools.accumulate(1 / rank for rank in range(1, 50_001)))
    blocks, numbers = [BlockRef(key, 100 + key % 50) for key in keys], random.Random(0)

    def drawn() -> Request:
        some = list(dict.fromkeys(numbers.choices(keys, cum_weights=shares, k=24)))[:15]
        return Request(tuple(blocks[key] for key in some))

    alone = LocalIndex(200_000)
    fleets = {count: fleet_of(count, 200_000, time.monotonic)[0] for count in COUNTS}
    spent: dict[object, list[float]] = {"alone": [], **{count: [] for count in COUNTS}}
    for step in range(3_000):
        request = drawn()
        for name, index in [("alone", alone), *fleets.items()]:
            for _ in range(name if isinstance(name, int) else 1):  # so that each engine has as much in its tree
                started = time.perf_counter()
                alignment = index.align(request)
                spent[name].append(time.perf_counter() - started)
                index.observe(alignment, Usage())
                request = drawn() if isinstance(name, int) and name > 1 else request
        if step == 1_500:
            for times in spent.values():
                times.clear()
    one = median(spent["alone"])
    rows = [
        ["LocalIndex" if name == "alone" else f"{name} engine{'s' * (name != 1)}", f"{1e3 * median(times):.3f}",
         f"{median(times) / one:.1f}"]
        for name, times in spent.items()
    ]  # fmt: skip
    return (
        "What `align` costs in process: 15 blocks of 50,000 (Zipf 1.0) a request, trees of 200,000 tokens that are "
        "full. Each tree is searched, but those of engines that cannot win in any case.\n\n"
        + table(["", "median, ms", "over LocalIndex"], rows)
    )


def _ways() -> dict[str, Callable[[Clock], tuple[Router, list[Machine]]]]:
    def blind(way: str) -> Callable[[Clock], tuple[Router, list[Machine]]]:
        return lambda _: (Blind(way, [LocalIndex(CAPACITY) for _ in range(ENGINES)]), _machines())

    def one(clock: Clock) -> tuple[Router, list[Machine]]:
        return OfFleet(*fleet_of(1, ENGINES * CAPACITY, clock)), [Machine(ENGINES * CAPACITY, ENGINES * RATE)]

    return {
        "drawn, as retrieved": lambda _: (AsRetrieved(ENGINES), _machines()),
        "external, one tree": lambda clock: (
            OfFleet(*fleet_of(ENGINES, CAPACITY, clock, routing="external")),
            _machines(),
        ),
        "drawn": blind("random"),
        "in turn": blind("turns"),
        "**the pilot**": lambda clock: (OfFleet(*fleet_of(ENGINES, CAPACITY, clock)), _machines()),
        "one engine": one,
    }


def _machines() -> list[Machine]:
    return [Machine(CAPACITY, RATE) for _ in range(ENGINES)]


def _shown(outcome: Outcome) -> list[str]:
    mean, late = outcome.ttft
    return [f"{outcome.hit_ratio:.3f}", f"{outcome.spread:.2f}", f"{mean:.2f}", f"{late:.2f}"]


if __name__ == "__main__":
    main()
