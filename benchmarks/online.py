"""Online ordering on real traces: us, the trivial baselines and the published peer, in one run.

    python benchmarks/online.py [--part ratios|policies|costs]

Writes its tables into benchmarks/README.md. Needs the recorded traces (../shared/traces) and, for the peer, a package
index.
"""

from __future__ import annotations

import argparse
import gc
import math
import random
import resource
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from statistics import fmean, quantiles

sys.path.insert(0, str(Path(__file__).resolve().parent))

import peer
from report import provenance, table, write_section

from contextpilot_rag.index.local import LocalIndex
from contextpilot_rag.index.tree import PrefixTree
from contextpilot_rag.replay import POLICIES, SINGLE_TAILS, Result, replay
from contextpilot_rag.trace import TraceRequest, read_tokens, read_trace
from contextpilot_rag.types import BlockRef, OrderBudget, Request

TRACES = Path(__file__).resolve().parents[2] / "shared" / "traces"
NAMES = (
    "multihoprag_stubs/trace_bm25_top15.jsonl",
    "multihoprag_stubs/trace_minilm_top15.jsonl",
    "tatqa/trace_bm25_top15.jsonl.gz",
    "tatqa/trace_minilm_top15.jsonl.gz",
    "locomo/trace_bm25_top15.jsonl",
    "locomo/trace_minilm_top15.jsonl",
    "mtrag/trace_bm25_top15.jsonl",
    "mtrag/trace_bm25_prevcur_top15.jsonl",
    "mtrag/trace_elser_full_top10.jsonl",
    "mtrag/trace_human_contexts.jsonl",
)
COUNTS = (1_000, 5_000, 10_000, 20_000, 50_000)


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=("ratios", "policies", "costs"), help="only this one (default: all)")
    parser.add_argument("--cost-of", metavar="ORDER", help=argparse.SUPPRESS)  # a child process of ours
    options = parser.parse_args()
    if options.cost_of:
        for row in cost_curve(options.cost_of):
            print("\t".join(row), flush=True)
        return
    if options.part in {None, "ratios"}:
        ratios()
    if options.part in {None, "policies"}:
        write_section("online policies", f"### Which tail policy\n\nFrom {provenance()}\n\n{policies()}")
    if options.part in {None, "costs"}:
        write_section("online costs", f"### What it costs\n\nFrom {provenance()}\n\n{costs()}")


def ratios() -> None:
    """The tables of hit ratios."""
    traces = _traces()
    parts = [
        "## Online: one request at a time",
        f"From {provenance()} Peer: contextpilot {peer.VERSION}, its `reorder`.",
        hit_ratios(traces),
        small_caches(traces),
        order_cost(traces),
    ]
    write_section("online", "\n\n".join(parts))


def hit_ratios(traces: dict[str, list[TraceRequest]]) -> str:
    """Hit ratios without a limit on the cache, with the peer beside."""
    rows, gains = [], []
    for name, trace in traces.items():
        ours = {policy: replay(trace, policy) for policy in POLICIES}
        orders, failed, _ = peer.order_online([[str(block.key) for block in request.blocks] for request in trace])
        theirs = hit_ratio(trace, orders)
        best = ours["throughput"].hit_ratio
        gains.append(best / theirs)
        note = f" ({failed} calls failed)" if failed else ""
        rows.append(
            [_short(name), len(trace), *(f"{result.hit_ratio:.3f}" for result in ours.values()), f"{theirs:.3f}{note}",
             f"{best / theirs:.2f}", f"{ours['balanced'].hit_ratio / theirs:.2f}"]
        )  # fmt: skip
    mean = math.exp(fmean(map(math.log, gains)))
    headings = ["trace", "requests", *POLICIES, "peer", "throughput / peer", "balanced / peer"]
    return (
        "Hit ratio (tokens served from cache over tokens sent, whole blocks), cache without a limit. Where a call of "
        "the peer raises or returns another set of blocks, the request counts as sent as retrieved.\n\n"
        f"{table(headings, rows)}\n\nGeometric mean of throughput / peer: {mean:.2f}."
    )


def small_caches(traces: dict[str, list[TraceRequest]]) -> str:
    """Hit ratios with a cache of a tenth of the trace's distinct tokens, but at least four of the longest prompt."""
    rows = []
    for name, trace in traces.items():
        distinct = sum({block.key: block.tokens for request in trace for block in request.blocks}.values())
        prompt = max(request.tokens for request in trace)
        capacity = int(max(distinct / 10, 4 * prompt))
        results = [
            replay(trace, policy, capacity, window)
            for policy, window in (
                ("retrieved", 1),
                ("balanced", 1),
                ("throughput", 1),
                ("throughput", 16),
                ("throughput", 64),
            )
        ]
        rows.append([_short(name), f"{capacity / prompt:.1f}", *(f"{result.hit_ratio:.3f}" for result in results)])
    headings = [
        "trace",
        "cache, in longest prompts",
        "retrieved",
        "balanced",
        "throughput",
        "+ window of 16",
        "+ window of 64",
    ]
    return (
        "With a cache of a tenth of the trace's distinct tokens, but at least four of the longest prompt; one at a "
        f"time, and with waiting requests sent longest cached prefix first.\n\n{table(headings, rows)}"
    )


def order_cost(traces: dict[str, list[TraceRequest]]) -> str:
    """What each point of cache costs in order."""
    rows = []
    for name, trace in traces.items():
        results = [replay(trace, policy) for policy in ("retrieved", "balanced", "throughput")]
        rows.append([_short(name), *(_with_displacement(result) for result in results)])
    return "The presets: hit ratio, and how many places each of the three best blocks moved on average.\n\n" + table(
        ["trace", "retrieved", "balanced", "throughput"], rows
    )


def policies() -> str:
    """Adaptive beside each policy that it could have held fast, in trace order and shuffled."""
    singles = [name for name in SINGLE_TAILS if name != "adaptive"]
    rows, worst = [], 0.0
    for name, trace in _traces().items():
        for seed in (None, 0, 1):
            requests = list(trace)
            if seed is not None:
                random.Random(seed).shuffle(requests)
            found = {policy: replay(requests, policy).hit_ratio for policy in (*singles, "adaptive")}
            behind = found["adaptive"] / max(found[policy] for policy in singles) - 1
            worst = min(worst, behind)
            order = "as recorded" if seed is None else f"shuffled, seed {seed}"
            rows.append([_short(name), order, *(f"{ratio:.3f}" for ratio in found.values()), f"{behind:+.1%}"])
    headings = ["trace", "order", *singles, "adaptive", "adaptive against the best"]
    return (
        "Hit ratios of the heaviest prefix with one tail policy held fast, and of `adaptive`, which chooses; cache "
        "without a limit; shuffled by `random.Random(seed).shuffle`.\n\n"
        f"{table(headings, rows)}\n\nAt worst {worst:+.1%}."
    )


def costs() -> str:
    """Time and memory of `LocalIndex.align`, each preset in a process of its own."""
    rows = []
    for order in ("balanced", "throughput"):
        output = subprocess.run(
            [sys.executable, __file__, "--cost-of", order], capture_output=True, text=True, check=True
        ).stdout
        rows += [line.split("\t") for line in output.splitlines()]
    return (
        "Cost of `align` in process, 15 blocks of 50,000 (Zipf 1.0, seed 0) a request, every request another one: time "
        "of the last 1,000 calls after so many requests, and how much the process has grown.\n\n"
        + table(["preset", "requests", "mean, ms", "p99, ms", "grown by, MB"], rows)
    )


def cost_curve(order: str) -> Iterator[list[str]]:
    """Rows of (preset, requests, mean, p99, memory) for one preset."""
    numbers = random.Random(0)
    keys, shares = range(50_000), list(accumulate(1 / rank for rank in range(1, 50_001)))
    blocks = [BlockRef(key, 100 + key % 50) for key in keys]
    gc.collect()
    start = _resident()
    index, budget = LocalIndex(), OrderBudget(order)
    last: deque[float] = deque(maxlen=1_000)
    for number in range(1, COUNTS[-1] + 1):
        # Made one by one and not kept: an application's requests come and go, too.
        drawn = list(dict.fromkeys(numbers.choices(keys, cum_weights=shares, k=24)))[:15]
        request = Request(tuple(blocks[key] for key in drawn), budget=budget)
        started = time.perf_counter()
        index.align(request)
        last.append(1e3 * (time.perf_counter() - started))
        if number in COUNTS:
            grown = (_resident() - start) / 2**20
            yield [order, f"{number:,}", f"{fmean(last):.3f}", f"{quantiles(last, n=100)[98]:.3f}", f"{grown:.0f}"]


def hit_ratio(trace: Sequence[TraceRequest], orders: Sequence[Sequence[str]]) -> float:
    """The hit ratio of given orders, by the same cache as `replay` uses."""
    cache, cached, sent = PrefixTree(), 0, 0
    for request, order in zip(trace, orders, strict=True):
        block = {str(ref.key): ref for ref in request.blocks}
        sequence = [block[key] for key in order]
        cached += cache.cached_tokens(sequence)[1]
        cache.insert(sequence)
        sent += request.tokens
    return cached / sent


def _with_displacement(result: Result) -> str:
    return f"{result.hit_ratio:.3f} / {result.displacement:.2f}"


def _traces() -> dict[str, list[TraceRequest]]:
    if not TRACES.exists():
        sys.exit(f"the recorded traces are not at {TRACES}")
    return {name: _read(TRACES / name) for name in NAMES}


def _read(path: Path) -> list[TraceRequest]:
    return read_trace(path, read_tokens(path.parent / "block_tokens.json"))


def _short(name: str) -> str:
    return name.replace("/trace_", " ").removesuffix(".gz").removesuffix(".jsonl")


def _resident() -> int:
    """Bytes in memory now, or at most so far where /proc is not there."""
    statm = Path("/proc/self/statm")
    if statm.exists():
        return int(statm.read_text().split()[1]) * resource.getpagesize()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


if __name__ == "__main__":
    main()
