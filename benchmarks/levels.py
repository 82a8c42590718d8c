"""What it is worth to know what the engine has cached: level by level, against a tree that is always right.

    python benchmarks/levels.py

Writes its table into benchmarks/README.md. Needs the recorded traces (../shared/traces).
"""

from __future__ import annotations

import random
import sys
from array import array
from collections.abc import Hashable, Sequence
from functools import cache
from pathlib import Path
from statistics import fmean

sys.path.insert(0, str(Path(__file__).resolve().parent))

from report import provenance, table, write_section

from contextpilot_rag.engines.kv import Event, Hash, Stored
from contextpilot_rag.index.local import LocalIndex
from contextpilot_rag.index.node import Node
from contextpilot_rag.testing.paged import PagedPrefixCache
from contextpilot_rag.trace import TraceRequest, read_tokens, read_trace
from contextpilot_rag.types import BlockRef, Namespace, OrderBudget, Request, Usage

TRACES = Path(__file__).resolve().parents[2] / "shared" / "traces"
NAMES = (
    "multihoprag_stubs/trace_bm25_top15.jsonl",
    "multihoprag_stubs/trace_minilm_top15.jsonl",
    "tatqa/trace_bm25_top15.jsonl.gz",
)
REQUESTS = 500
CACHES = (4, 8, 16)
KV_BLOCK, HEAD, QUESTION, ANSWER = 16, 60, 25, 30
LEVELS = ("unsynchronised", "model", "usage", "usage and model", "in step", "unsynchronised, two", "usage, two")

EXPLAINED = f"""\
Real hit ratio (cached over all prompt tokens) of the first {REQUESTS} requests, one after another, on a paged prefix
cache with KV blocks of {KV_BLOCK} tokens that drops what was used longest ago; prompts of {HEAD} tokens before the
blocks, and {QUESTION} after them; answers of {ANSWER}. *unsynchronised*: the index believes in all that was ever sent.
*model*: it knows the capacity. *usage*: it does not, and learns from reported cached tokens. *in step*: its tree is
pruned to the cache's true content after each request. *two*: each request goes to one of two such engines by chance,
and one tree stands for both.
"""


def main() -> None:
    """Measure and write."""
    if not TRACES.exists():
        sys.exit(f"the recorded traces are not at {TRACES}")
    rows = []
    kept: dict[str, dict[str, list[float]]] = {}
    for name in NAMES:
        trace = read_trace(TRACES / name, read_tokens((TRACES / name).parent / "block_tokens.json"))[:REQUESTS]
        prompts = [request.tokens + HEAD + QUESTION + ANSWER for request in trace]
        for size in CACHES:
            capacity = max(int(size * fmean(prompts)), max(prompts) + KV_BLOCK)
            for order in ("balanced", "throughput"):
                ratios = {level: Run(order, level, capacity).hit_ratio(trace) for level in LEVELS}
                retrieved = Run("retrieved", "unsynchronised", capacity).hit_ratio(trace)
                for level, ratio in ratios.items():
                    kept.setdefault(order, {}).setdefault(level, []).append(ratio)
                shown = [f"{ratio:.3f}" for ratio in (retrieved, *ratios.values())]
                rows.append([name.split(".")[0].replace("/trace_", " "), size, order, *shown])
    ways = []
    for order, of in kept.items():
        mean = {level: fmean(ratios) for level, ratios in of.items()}
        way = mean["in step"] - mean["unsynchronised"]
        shares = (
            f"{level} {(mean[level] - mean['unsynchronised']) / way:.0%}"
            for level in ("model", "usage", "usage and model")
        )
        ways.append(f"`{order}`: {', '.join(shares)}")
    headings = ["trace", "cache, in prompts", "order", "as retrieved", *LEVELS]
    write_section(
        "levels",
        "\n\n".join(
            [
                "## In step with the engine: what each level is worth",
                f"From {provenance()}",
                EXPLAINED.strip(),
                table(headings, rows),
                f"Of the way from unsynchronised to in step, on average: {'; '.join(ways)}.",
            ]
        ),
    )


class Run:
    """One way of knowing, and the engines behind it.

    Args:
        order: the preset.
        level: one of `LEVELS`.
        capacity: of each engine's cache, in tokens.
    """

    def __init__(self, order: str, level: str, capacity: int) -> None:
        self._budget = OrderBudget(order)
        self._known: list[Event] = []
        engines = 2 if level.endswith("two") else 1
        self._caches = [
            PagedPrefixCache(KV_BLOCK, capacity // KV_BLOCK, lambda events, _: self._known.extend(events))
            for _ in range(engines)
        ]
        self._chance = random.Random(0)
        self._reported = "usage" in level
        self._index = InStep() if level == "in step" else LocalIndex()
        if "model" in level:
            self._index.resize(capacity, KV_BLOCK)

    def hit_ratio(self, trace: Sequence[TraceRequest]) -> float:
        """Cached over all prompt tokens."""
        hit = sent = 0
        for number, request in enumerate(trace):
            alignment = self._index.align(Request(request.blocks, budget=self._budget))
            blocks = [request.blocks[rank] for rank in alignment.order]
            prompt = prompt_of(number, blocks)
            chosen = self._chance.choice(self._caches)
            self._known.clear()
            cached = chosen.serve(prompt, answer=tokens_of(f"answer {number}", ANSWER))
            hit += cached
            sent += len(prompt)
            self._index.observe(alignment, Usage(len(prompt), cached if self._reported else None, ANSWER))
            if isinstance(self._index, InStep):
                stored = next((event for event in self._known if isinstance(event, Stored)), None)
                self._index.follow(blocks, stored, cached // KV_BLOCK, chosen.hashes)
        return hit / sent


class InStep(LocalIndex):
    """An index whose tree is pruned to what the cache holds."""

    def __init__(self) -> None:
        super().__init__()
        self._numbers: dict[tuple[int, Hashable], int] = {}  # of each sequence of blocks, by the one before and a block
        self._last: list[Hash | None] = [None]  # of each, its last whole KV block

    def follow(self, blocks: Sequence[BlockRef], stored: Stored | None, first: int, there: frozenset[int]) -> None:
        """Prune what is not there.

        Args:
            blocks: that were sent, in prompt order.
            stored: the KV blocks that this stored.
            first: the number of the first of them in the prompt.
            there: all that the cache holds.
        """
        number, position = 0, HEAD
        for block in blocks:
            position += block.tokens
            place = position // KV_BLOCK - 1 - first
            if (number, block.key) not in self._numbers:
                self._numbers[number, block.key] = len(self._last)
                self._last.append(None)
            number = self._numbers[number, block.key]
            if stored is not None and 0 <= place < len(stored.hashes):
                self._last[number] = stored.hashes[place]
        tree = self.tree(Namespace())
        if tree is not None:
            for path in self._gone(tree.root, [], 0, there):
                self.prune(Namespace(), path)

    def _gone(self, node: Node, path: list[Hashable], number: int, there: frozenset[int]) -> list[list[Hashable]]:
        gone: list[list[Hashable]] = []
        for child in node.children.values():
            below, at = path, number
            for key in child.blocks:
                below, at = [*below, key], self._numbers[at, key]
                last = self._last[at]
                if last is not None and last not in there:
                    gone.append(below)
                    break
            else:
                gone += self._gone(child, below, at, there)
        return gone


@cache
def tokens_of(key: Hashable, length: int) -> array[int]:
    """Some token ids, always the same for a key."""
    numbers = random.Random(str(key))
    return array("Q", [numbers.randrange(2**17) for _ in range(length)])


def prompt_of(number: int, blocks: Sequence[BlockRef]) -> array[int]:
    """The token ids of a prompt."""
    prompt = array("Q", tokens_of("head", HEAD))
    for block in blocks:
        prompt += tokens_of(block.key, block.tokens)
    return prompt + tokens_of(f"question {number}", QUESTION)


if __name__ == "__main__":
    main()
