"""What orders save on an engine that keeps only the last prompt of each slot, as llama.cpp does without --cache-ram.

A request goes to the slot that shares the longest prefix with it, if that is more than a tenth of the prompt, else to
the slot used longest ago: llama-server's rule. Prompts are counted in whole blocks, without answers and templates.
Several processes each have an index of their own, and requests go to them in turn.

    python benchmarks/slots.py                                           # recorded traces; writes benchmarks/README.md
    python benchmarks/slots.py TRACE.jsonl --tokens block_tokens.json    # yours; prints

Without a trace it needs the recorded ones, in ../shared/traces.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from report import provenance, table, write_section

from contextpilot_rag.replay import POLICIES, TraceRequest
from contextpilot_rag.trace import read_tokens, read_trace
from contextpilot_rag.types import BlockRef

TRACES = Path(__file__).resolve().parents[2] / "shared" / "traces"
NAMES = (
    "mtrag/trace_bm25_top15.jsonl",
    "mtrag/trace_human_contexts.jsonl",
    "multihoprag_stubs/trace_bm25_top15.jsonl",
)
ABOUT = """## A cache that is only the last prompt of each slot

Cached tokens, of whole blocks, on an engine that keeps the last prompt of each slot and nothing else, as llama.cpp does
without `--cache-ram`; simulated. *Processes*: so many send in turn, each with an index of its own."""
SIMILAR = 0.1
ORDERS = {"retrieved": "retrieved", "fixed": "sorted", "balanced": "balanced", "throughput": "throughput"}


def shared(one: Sequence[BlockRef], other: Sequence[BlockRef]) -> int:
    """Tokens of two prompts' common prefix."""
    pairs = takewhile(lambda pair: pair[0].key == pair[1].key, zip(one, other, strict=False))
    return sum(block.tokens for block, _ in pairs)


def found(trace: Sequence[TraceRequest], policy: str, slots: int, processes: int) -> float:
    """The share of all tokens that the slots have."""
    orders = [POLICIES[policy](None) for _ in range(processes)]
    last: list[list[BlockRef]] = [[] for _ in range(slots)]  # the slot used longest ago first
    cached = total = 0
    for number, request in enumerate(trace):
        prompt = [request.blocks[rank] for rank in orders[number % processes].order(request)]
        tokens = sum(block.tokens for block in prompt)
        slot = max(last, key=lambda kept: shared(kept, prompt))
        if shared(slot, prompt) <= SIMILAR * tokens:
            slot = last[0]
        cached += shared(slot, prompt)
        total += tokens
        last = [*(kept for kept in last if kept is not slot), prompt]
    return cached / total if total else 0.0


def rows(trace: Sequence[TraceRequest]) -> list[list[str]]:
    """For so many slots and processes, what each order finds."""
    return [
        [str(slots), str(processes), *(f"{found(trace, policy, slots, processes):.1%}" for policy in ORDERS.values())]
        for slots in (1, 4, 16)
        for processes in (1, 8)
    ]


def main() -> None:
    """Print a table for Markdown, or write one of the recorded traces."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace", type=Path, nargs="?")
    parser.add_argument("--tokens", type=Path)
    options = parser.parse_args()
    headings = ["slots", "processes", *ORDERS]
    if options.trace is not None:
        trace = read_trace(options.trace, read_tokens(options.tokens) if options.tokens else None)
        print(table(headings, rows(trace)))
        return
    recorded = []
    for name in NAMES:
        file = TRACES / name
        trace = read_trace(file, read_tokens(file.with_name("block_tokens.json")))
        recorded += [[name.removesuffix(".jsonl"), *row] for row in rows(trace)]
    write_section("slots", f"{ABOUT}\n\nFrom {provenance()}\n\n{table(['trace', *headings], recorded)}")


if __name__ == "__main__":
    main()
