"""What the service's benchmarks send: contexts of the recorded traces, and ever new ones like them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path

import msgspec

from contextpilot_rag.trace import read_tokens, read_trace
from contextpilot_rag.types import BlockRef

TRACES = Path(__file__).resolve().parents[2] / "shared" / "traces"
NAMES = (
    "tatqa/trace_bm25_top15.jsonl.gz",
    "tatqa/trace_minilm_top15.jsonl.gz",
    "locomo/trace_bm25_top15.jsonl",
    "locomo/trace_minilm_top15.jsonl",
    "multihoprag_stubs/trace_bm25_top15.jsonl",
    "multihoprag_stubs/trace_minilm_top15.jsonl",
)
KNOWN = 10_000
SIZE = 15
_REPLACED = 3  # blocks of a recorded context that a new one has from elsewhere
_SYNTHETIC_BLOCKS = 3_500  # about as many as the traces have

Blocks = list[BlockRef]


class Traffic:
    """Contexts of 15 blocks: 10,000 that are known, and new ones.

    The known are of three traces, mixed. A new one is a context of the same traces with three blocks of another one,
    so that it shares much with the known and is none of them. Without the traces: drawn by Zipf 1.0.
    """

    def __init__(self) -> None:
        self.source, groups = _recorded() if TRACES.exists() else _synthetic()
        self._groups = groups
        mixed = [context for group in groups for context in group]
        random.Random(0).shuffle(mixed)
        self.known = mixed[:KNOWN]

    def new(self, seed: int) -> Iterator[Blocks]:
        """New contexts, without an end, the same ones for the same seed."""
        numbers = random.Random(seed)
        sizes = [len(group) for group in self._groups]
        while True:
            group = numbers.choices(self._groups, sizes)[0]
            context, other = list(numbers.choice(group)), numbers.choice(group)
            there = {block.key for block in context}
            strange = [block for block in other if block.key not in there][:_REPLACED]
            for place, block in zip(numbers.sample(range(SIZE), len(strange)), strange, strict=True):
                context[place] = block
            yield context


def ours(context: Blocks, order: str = "balanced") -> dict[str, object]:
    """A request to our service."""
    body: dict[str, object] = {"blocks": [{"id": block.key, "tokens": block.tokens} for block in context]}
    return body if order == "balanced" else {**body, "budget": {"order": order}}


def theirs(context: Blocks) -> dict[str, object]:
    """A request to the peer's: the same ids, and no lengths, for which it does not ask."""
    return {"contexts": [[block.key for block in context]]}


def http(method: str, path: str, body: object = None, key: str = "") -> bytes:
    """A request as it goes over the wire."""
    content = b"" if body is None else msgspec.json.encode(body)
    lines = [f"{method} {path} HTTP/1.1", "host: 127.0.0.1"]
    lines += [f"authorization: Bearer {key}"] if key else []
    lines += ["content-type: application/json", f"content-length: {len(content)}"] if content else []
    return "\r\n".join([*lines, "", ""]).encode() + content


def _recorded() -> tuple[str, list[list[Blocks]]]:
    groups: dict[str, list[Blocks]] = {}
    for name in NAMES:
        path = TRACES / name
        for request in read_trace(path, read_tokens(path.parent / "block_tokens.json")):
            if len(request.blocks) == SIZE:
                trace = path.parent.name
                blocks = [BlockRef(f"{trace}/{block.key}", block.tokens) for block in request.blocks]
                groups.setdefault(trace, []).append(blocks)
    return f"of the traces {', '.join(groups)}, mixed", list(groups.values())


def _synthetic() -> tuple[str, list[list[Blocks]]]:
    numbers = random.Random(0)
    blocks = [BlockRef(f"synthetic/{number}", 100 + number % 50) for number in range(_SYNTHETIC_BLOCKS)]
    shares = list(accumulate(1 / rank for rank in range(1, _SYNTHETIC_BLOCKS + 1)))
    group: list[Blocks] = []
    while len(group) < KNOWN + KNOWN // 5:
        drawn = list(dict.fromkeys(numbers.choices(range(_SYNTHETIC_BLOCKS), cum_weights=shares, k=40)))
        if len(drawn) >= SIZE:
            group.append([blocks[number] for number in drawn[:SIZE]])
    return f"drawn by Zipf 1.0 from {_SYNTHETIC_BLOCKS:,} blocks", [group]
