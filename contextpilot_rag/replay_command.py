"""``contextpilot-rag replay``: a trace through every policy, as a table or as JSON."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .errors import SettingsError
from .replay import POLICIES, SINGLE_TAILS, Result, replay
from .settings import Settings
from .trace import TraceRequest, read_tokens, read_trace, write_schedule

_HEADINGS = ("policy", "hit ratio", "TTFT saved", "changed", "moved", "us/request")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command's arguments."""
    parser.description = (
        "Replays a recorded trace through the baselines and ContextPilot: what would you save, before you change "
        "anything? The trace is JSON lines of {qid, context_ids}, best first, in the order of sending (.gz is fine)."
    )
    parser.add_argument("trace", type=Path, metavar="TRACE.jsonl")
    parser.add_argument("--tokens", type=Path, metavar="FILE", help="JSON object of block lengths; without: all equal")
    parser.add_argument(
        "--policy",
        metavar="NAME",
        help=f"only this one: {', '.join(POLICIES | SINGLE_TAILS)} (default: the first {len(POLICIES)})",
    )
    parser.add_argument(
        "--min-gain",
        type=float,
        metavar="SHARE",
        help=f'of "balanced": what another order must gain, of the blocks\' tokens (default: {Settings().min_gain:g})',
    )
    parser.add_argument("--capacity", type=int, metavar="TOKENS", help="size of the cache (default: it never evicts)")
    parser.add_argument(
        "--window", type=int, default=1, metavar="N", help="N requests wait, the best cached goes first"
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the policy's orders, in the order of sending")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")


def run(options: argparse.Namespace) -> str:
    """Run the command; returns what it prints.

    Raises:
        InputError: a file, a policy or a number that cannot be used; the message says which.
    """
    if options.out is not None and options.policy is None:
        raise SettingsError("--out needs --policy: whose orders are to be written?")
    lengths = None if options.tokens is None else read_tokens(options.tokens)
    trace = read_trace(options.trace, lengths)
    names = list(POLICIES) if options.policy is None else list(dict.fromkeys(["retrieved", options.policy]))
    results = [replay(trace, name, options.capacity, options.window, min_gain=options.min_gain) for name in names]
    if options.out is not None:
        write_schedule(options.out, results[-1].schedule)
    return _as_json(results, options) if options.json else _as_text(results, trace, options)


def _as_json(results: Sequence[Result], options: argparse.Namespace) -> str:
    rows: list[dict[str, Any]] = [
        {
            "policy": result.policy,
            "hit_ratio": round(result.hit_ratio, 4),
            "ttft_saved": round(result.saving_over(results[0]), 4),
            "changed": result.changed,
            "displacement": round(result.displacement, 3),
            "microseconds": round(result.microseconds, 1),
        }
        for result in results
    ]
    return json.dumps(
        {
            "requests": results[0].requests,
            "tokens": results[0].tokens,
            "capacity": options.capacity,
            "window": options.window,
            "policies": rows,
        },
        indent=1,
    )


def _as_text(results: Sequence[Result], trace: Sequence[TraceRequest], options: argparse.Namespace) -> str:
    equal = "; all blocks weigh the same (no --tokens)" if options.tokens is None else ""
    lines = [f"{len(trace):,} requests, {results[0].tokens:,} tokens of blocks{equal}"]
    rows = [
        (
            result.policy,
            f"{result.hit_ratio:.1%}",
            f"{result.saving_over(results[0]):+.1%}",
            f"{result.changed / max(1, result.requests):.0%}",
            f"{result.displacement:.2f}",
            f"{result.microseconds:.0f}",
        )
        for result in results
    ]
    widths = [max(len(row[column]) for row in [_HEADINGS, *rows]) for column in range(len(_HEADINGS))]
    for row in [_HEADINGS, *rows]:
        cells = [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        lines.append("  ".join(cells))
    lines += [
        "",
        "hit ratio   tokens served from the cache over tokens sent",
        "TTFT saved  share of the prefill that is saved over the retriever's order (first row)",
        "changed     requests whose order is not the retriever's",
        "moved       places that each of the three best blocks moved, on average",
    ]
    return "\n".join(lines)
