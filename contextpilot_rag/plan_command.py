"""``contextpilot-rag plan``: a recorded trace, or any batch, as a schedule to send."""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .batch import Plan
from .errors import SettingsError
from .index.tree import PrefixTree
from .index.watch import Report, Watch
from .settings import Settings
from .trace import TraceRequest, read_tokens, read_trace, write_schedule
from .types import Alignment, Request

if TYPE_CHECKING:
    import tqdm


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command's arguments."""
    parser.description = (
        "Plans a batch whose requests are all known: an order for each, and the order of sending. The trace is JSON "
        "lines of {qid, context_ids}, best first (.gz is fine); the schedule has them in the order of sending."
    )
    parser.add_argument("trace", type=Path, metavar="TRACE.jsonl")
    parser.add_argument("--tokens", type=Path, metavar="FILE", help="JSON object of block lengths; without: all equal")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the schedule; with --ray a folder of schedules")
    parser.add_argument(
        "--order",
        choices=("retrieved", "balanced", "throughput", "fixed"),
        default="balanced",
        help="how much of the retriever's order may be given up; retrieved: only the order of sending changes; "
        "fixed: sorted by id (default: %(default)s)",
    )
    parser.add_argument(
        "--min-gain",
        type=float,
        metavar="SHARE",
        help=f"balanced: what a change must save (default: {Settings().min_gain:g})",
    )
    parser.add_argument("--budget", type=float, metavar="SECONDS", help="use so much time and give the best plan found")
    parser.add_argument("--progress", action="store_true", help="show how far it is")
    parser.add_argument("--ceiling", action="store_true", help="also say what no plan can pass (slow above 20,000)")
    parser.add_argument("--capacity", type=int, metavar="TOKENS", help="also say what a cache of this size would find")
    parser.add_argument(
        "--ray", metavar="ADDRESS", help="plan on a Ray cluster, a trace of any length: local, auto or HOST:PORT"
    )
    parser.add_argument(
        "--shards", type=int, metavar="N", help="with --ray: how many engines; a schedule for each (default: 1)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")


def run(options: argparse.Namespace) -> str:
    """Run the command; returns what it prints.

    Raises:
        InputError: a file or a number that cannot be used; the message says which.
    """
    from .index.plan import plan_batch

    if options.budget is not None and not 0 <= options.budget < math.inf:
        raise SettingsError(f"--budget must be a number of seconds, 0 or more, not {options.budget}")
    if options.capacity is not None and options.capacity < 1:
        raise SettingsError(f"--capacity must be at least 1, not {options.capacity}")
    given = {} if options.min_gain is None else {"min_gain": options.min_gain}
    budget = Settings(order=options.order, **given).budget
    if options.ray is None and options.shards is not None:
        raise SettingsError("--shards needs --ray")
    if options.ray is not None:
        from .batches.command import run_on_ray

        with _bar(options.progress) as report:
            return run_on_ray(options, given, report)
    lengths = None if options.tokens is None else read_tokens(options.tokens)
    trace = {request.qid: request for request in read_trace(options.trace, lengths)}
    started = time.monotonic()
    with _bar(options.progress) as report:
        late = None if options.budget is None else lambda: time.monotonic() - started >= options.budget
        requests = [Request(request.blocks, budget=budget, key=request.qid) for request in trace.values()]
        plan = plan_batch(requests, watch=Watch(late, report), ceiling=options.ceiling)
    seconds = time.monotonic() - started
    schedule = [(trace[str(alignment.request.key)], alignment.order) for alignment in plan]
    if options.out is not None:
        write_schedule(options.out, schedule)
    found = None if options.capacity is None else _found(schedule, options.capacity) / max(1, plan.tokens)
    return _as_json(plan, options, seconds, found) if options.json else _as_text(plan, options, seconds, found)


def _found(schedule: list[tuple[TraceRequest, tuple[int, ...]]], capacity: int) -> int:
    """Tokens that a cache of this size finds."""
    cache, found = PrefixTree(capacity), 0
    for request, order in schedule:
        sent = [request.blocks[rank] for rank in order]
        found += cache.cached_tokens(sent)[1]
        cache.insert(sent)
    return found


def _as_json(plan: Plan[Alignment], options: argparse.Namespace, seconds: float, found: float | None) -> str:
    values: dict[str, Any] = {
        "requests": len(plan),
        "tokens": plan.tokens,
        "order": options.order,
        "hit_ratio": round(plan.hit_ratio, 4),
        "hit_ratio_as_retrieved": round(plan.retrieved_cached_tokens / max(1, plan.tokens), 4),
        "changed": plan.changed,
        "displacement": round(plan.displacement, 3),
        "complete": plan.complete,
        "seconds": round(seconds, 3),
    }
    if plan.ceiling is not None:
        values["ceiling"] = round(plan.ceiling, 4)
    if found is not None:
        values["hit_ratio_at_capacity"] = round(found, 4)
    return json.dumps(values, indent=1)


def _as_text(plan: Plan[Alignment], options: argparse.Namespace, seconds: float, found: float | None) -> str:
    lines = [plan.explain()]
    if found is not None:
        lines.append(f"a cache of {options.capacity:,} tokens would find {100 * found:.1f} %")
    if options.tokens is None:
        lines.append("all blocks weigh the same (no --tokens)")
    written = "" if options.out is None else f"; written to {options.out}"
    lines.append(f"planned in {seconds:.1f} s{written}")
    return "\n".join(lines)


@contextmanager
def _bar(wanted: bool) -> Iterator[Report | None]:
    """A progress bar for each kind of work, on the error stream."""
    if not wanted:
        yield None
        return
    from tqdm import tqdm

    bars: dict[str, tqdm.tqdm[Any]] = {}

    def report(what: str, done: int, total: int) -> None:
        if what not in bars:
            for bar in bars.values():
                bar.close()
            bars[what] = tqdm(total=total, desc=what, leave=False, dynamic_ncols=True)
        bar = bars[what]
        bar.update(done - bar.n)

    try:
        yield report
    finally:
        for bar in bars.values():
            bar.close()
