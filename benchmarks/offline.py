"""Planning whole batches: us, the simple ways and the published peer, in one run.

    python benchmarks/offline.py [--part ratios|costs|sizes|ceiling]

Writes its tables into benchmarks/README.md. Needs the recorded traces (../shared/traces) and, for the peer, a package
index.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from itertools import accumulate
from pathlib import Path
from statistics import fmean

sys.path.insert(0, str(Path(__file__).resolve().parent))

import baselines
import peer
from report import provenance, table, write_section

from contextpilot_rag.batch import Plan
from contextpilot_rag.index.ceiling import ceiling_tokens
from contextpilot_rag.index.exact import best_forest
from contextpilot_rag.index.forest import SetForest
from contextpilot_rag.index.merge import Worth, merge
from contextpilot_rag.index.plan import plan_batch
from contextpilot_rag.index.refine import refine
from contextpilot_rag.index.tree import PrefixTree
from contextpilot_rag.index.watch import Watch
from contextpilot_rag.trace import TraceRequest, read_tokens, read_trace
from contextpilot_rag.types import Alignment, BlockRef, OrderBudget, Request

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
SIZES = (2_000, 5_000, 10_000, 20_000, 50_000, 100_000)
BASELINES: dict[str, Callable[[Sequence[TraceRequest]], baselines.Schedule]] = {
    "retrieved": baselines.as_retrieved,
    "popularity": baselines.by_popularity,
    "group recursion": baselines.group_recursion,
}


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=("ratios", "costs", "sizes", "ceiling"), help="only this one (default: all)")
    parser.add_argument("--child", nargs=3, metavar=("WHO", "REQUESTS", "BLOCKS"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(cost_of(options.child[0], int(options.child[1]), int(options.child[2]))))
        return
    for name, heading, measure in (
        ("ratios", "## Offline: a whole batch", ratios),
        ("costs", "### What it costs beside others", costs),
        ("sizes", "### How it grows", sizes),
        ("ceiling", "### How near the best it is", ceiling),
    ):
        if options.part in {None, name}:
            write_section(f"offline {name}", f"{heading}\n\nFrom {provenance()}\n\n{measure()}")


def ratios() -> str:
    """Hit ratios on the recorded traces."""
    rows, gains, floors = [], [], []
    for name in NAMES:
        trace = _read(name)
        found = {way: hit_ratio(order(trace)) for way, order in BASELINES.items()}
        contexts = [[str(block.key) for block in request.blocks] for request in trace]
        sending, orders, peer_seconds, _ = peer.order_offline(contexts)
        theirs = hit_ratio([(trace[position], order) for position, order in zip(sending, orders, strict=True)])
        balanced, _ = _plan(trace, "balanced")
        plan, seconds = _plan(trace, "throughput", ceiling=True)
        ours = hit_ratio(_schedule(plan, trace))
        small = hit_ratio(_schedule(plan, trace), 4 * max(request.tokens for request in trace))
        gains.append(ours / theirs)
        floors.append(small / ours)
        rows.append(
            [_short(name), len(trace), *(f"{ratio:.3f}" for ratio in found.values()), f"{theirs:.3f}",
             f"{balanced.hit_ratio:.3f} / {balanced.displacement:.2f}", f"{ours:.4f} / {plan.displacement:.2f}",
             f"{small:.4f}", f"{plan.ceiling:.3f}", f"{ours / theirs:.3f}", f"{seconds:.1f}", f"{peer_seconds:.1f}"]
        )  # fmt: skip
    headings = ["trace", "requests", *BASELINES, "peer", "balanced / moved", "throughput / moved", "at 4 prompts",
                "ceiling", "throughput / peer", "our s", "peer s"]  # fmt: skip
    mean = math.exp(fmean(map(math.log, gains)))
    return (
        f"Peer: contextpilot {peer.VERSION}, its `reorder` of a batch. Hit ratio over whole blocks, cache without a "
        "limit; *at 4 prompts*: the same with a cache of four of the longest prompts; *moved*: places that each "
        "of the three best blocks moved on average; *ceiling*: the spanning-tree bound; popularity: blocks by tokens "
        "times requests, all sorted; group recursion: after Liu et al. (MLSys 2025). Our seconds include the ceiling."
        "\n\n"
        f"{table(headings, rows)}\n\nthroughput / peer: geometric mean {mean:.3f}, smallest {min(gains):.4f}. "
        f"With a cache of four prompts: at least {min(floors):.4f} of the ratio without a limit."
    )


def costs() -> str:
    """Time and memory beside the others, each in a process of its own."""
    found = {
        who: _child(who, 2_000, 600) for who in ("throughput", "balanced", "popularity", "group recursion", "peer")
    }
    ours = found["throughput"]["seconds"]
    rows = [
        [
            who,
            f"{cost['ratio']:.4f}",
            f"{cost['seconds']:.2f}",
            f"{cost['seconds'] / ours:.1f}",
            f"{cost['megabytes']:.0f}",
        ]
        for who, cost in found.items()
    ]
    headings = ["who", "hit ratio", "seconds", "times ours", "peak memory of its process, MB"]
    return (
        "2,000 contexts of 15 blocks, drawn by Zipf 1.0 from 600 blocks of 100 tokens, seed 0; only planning is "
        f"timed.\n\n{table(headings, rows)}"
    )


def sizes() -> str:
    """How time and memory grow."""
    found = {size: _child("throughput", size, 20_000) for size in SIZES}
    rows = [
        [f"{size:,}", f"{cost['ratio']:.4f}", f"{cost['popularity']:.4f}", f"{cost['seconds']:.1f}",
         f"{1e3 * cost['seconds'] / size:.2f}", f"{cost['megabytes']:.0f}"]
        for size, cost in found.items()
    ]  # fmt: skip
    growth = math.log(found[SIZES[-1]]["seconds"] / found[SIZES[0]]["seconds"]) / math.log(SIZES[-1] / SIZES[0])
    headings = ["contexts", "hit ratio", "by popularity", "seconds", "ms a context", "peak memory of its process, MB"]
    return (
        "Contexts of 15 blocks, drawn by Zipf 1.0 from 20,000 blocks of 100 tokens, seed 0; `throughput`, each size "
        "in a process of its own.\n\n"
        f"{table(headings, rows)}\n\nFrom {SIZES[0]:,} to {SIZES[-1]:,} contexts the time grows with an exponent of "
        f"{growth:.2f}."
    )


def ceiling() -> str:
    """How far from the optimum and how loose the ceiling: small batches exactly, whole traces with more time."""
    numbers, rows = random.Random(0), []
    for name in NAMES:
        trace = _read(name)
        weights: dict[object, int] = {block.key: block.tokens for request in trace for block in request.blocks}
        number = {key: place for place, key in enumerate(weights)}
        tokens = list(weights.values())
        sets = [frozenset(number[block.key] for block in request.blocks) for request in trace]
        totals = [0.0, 0.0, 0.0]
        for _ in range(40):
            seed = numbers.choice(sets)
            near = sorted(sets, key=lambda blocks, seed=seed: -sum(tokens[block] for block in blocks & seed))[:24]
            few = list(dict.fromkeys(numbers.sample(near, min(8, len(near)))))
            best, found, worth = SetForest(few, tokens), SetForest(few, tokens), Worth(0, [])
            best_forest(best, worth)
            merge(found, range(len(few)), worth)
            refine(found, found.standing(), worth)
            for place, saved in enumerate((best.saved(), found.saved(), ceiling_tokens(few, tokens))):
                totals[place] += saved
        longer = [_plan(trace, "throughput", seconds)[0].hit_ratio for seconds in (None, 10)]
        rows.append(
            [_short(name), f"{totals[1] / totals[0]:.3f}", f"{totals[2] / totals[0]:.3f}"]
            + [f"{ratio:.4f}" for ratio in longer]
        )
    headings = ["trace", "search / optimum", "ceiling / optimum", "no limit of time", "10 s"]
    return (
        "Left: 40 batches of up to 8 neighbouring requests, where the optimum is known: what merging and re-insertion "
        "save, and what the ceiling allows, over what the best plan saves. Right: whole traces, and what more time "
        f"(`--budget`) finds.\n\n{table(headings, rows)}"
    )


def cost_of(who: str, requests: int, blocks: int) -> dict[str, float]:
    """One way of planning a made batch: seconds, hit ratio, peak memory of this process."""
    trace = made(requests, blocks)
    popularity = 0.0
    if who == "peer":
        contexts = [[str(block.key) for block in request.blocks] for request in trace]
        sending, orders, seconds, megabytes = peer.order_offline(contexts)
        schedule = [(trace[position], order) for position, order in zip(sending, orders, strict=True)]
        return {"ratio": hit_ratio(schedule), "seconds": seconds, "megabytes": megabytes}
    if who in BASELINES:
        started = time.perf_counter()
        schedule = BASELINES[who](trace)
        seconds = time.perf_counter() - started
        megabytes = _peak()
    else:
        plan, seconds = _plan(trace, who)
        megabytes = _peak()
        schedule = _schedule(plan, trace)
        popularity = hit_ratio(baselines.by_popularity(trace))
    return {"ratio": hit_ratio(schedule), "popularity": popularity, "seconds": seconds, "megabytes": megabytes}


def made(requests: int, blocks: int, length: int = 15) -> list[TraceRequest]:
    """Contexts of distinct blocks, drawn by Zipf 1.0 one after another, seed 0."""
    numbers = random.Random(0)
    shares = list(accumulate(1 / rank for rank in range(1, blocks + 1)))
    refs = [BlockRef(f"b{number}", 100) for number in range(blocks)]
    trace = []
    for number in range(requests):
        drawn: dict[int, None] = {}
        while len(drawn) < length:
            for block in numbers.choices(range(blocks), cum_weights=shares, k=length):
                if len(drawn) < length:
                    drawn.setdefault(block)
        trace.append(TraceRequest(f"q{number}", tuple(refs[block] for block in drawn)))
    return trace


def hit_ratio(schedule: baselines.Schedule, capacity: int | None = None) -> float:
    """Tokens served from a prefix cache over tokens sent; checks that each order is one of its request's blocks."""
    cache, cached, sent = PrefixTree(capacity, 10**9), 0, 0
    for request, order in schedule:
        block = {str(ref.key): ref for ref in request.blocks}
        sequence = [block[key] for key in order]
        if len(order) != len(block) or len(set(order)) != len(order):
            raise ValueError(f"no order of the blocks of {request.qid}")
        cached += cache.cached_tokens(sequence)[1]
        cache.insert(sequence)
        sent += request.tokens
    return cached / sent


def _plan(
    trace: Sequence[TraceRequest], order: str, seconds: float | None = None, ceiling: bool = False
) -> tuple[Plan[Alignment], float]:
    requests = [Request(request.blocks, budget=OrderBudget(order), key=request.qid) for request in trace]
    started = time.perf_counter()
    late = None if seconds is None else lambda: time.perf_counter() - started >= seconds
    plan = plan_batch(requests, watch=Watch(late), ceiling=ceiling)
    return plan, time.perf_counter() - started


def _schedule(plan: Plan[Alignment], trace: Sequence[TraceRequest]) -> baselines.Schedule:
    requests = {request.qid: request for request in trace}
    return [(requests[str(one.request.key)], [str(one.request.blocks[rank].key) for rank in one.order]) for one in plan]


def _child(who: str, requests: int, blocks: int) -> dict[str, float]:
    command = [sys.executable, __file__, "--child", who, str(requests), str(blocks)]
    found: dict[str, float] = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    return found


def _read(name: str) -> list[TraceRequest]:
    path = TRACES / name
    if not path.exists():
        sys.exit(f"the recorded traces are not at {TRACES}")
    return read_trace(path, read_tokens(path.parent / "block_tokens.json"))


def _short(name: str) -> str:
    return name.replace("/trace_", " ").removesuffix(".gz").removesuffix(".jsonl")


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)


if __name__ == "__main__":
    main()
