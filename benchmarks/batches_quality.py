"""What several engines find together of what one would find, by an independent replay. See batches.py."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from report import table

from contextpilot_rag.batches.pipeline import Sizes, plan_in_shards
from contextpilot_rag.batches.reading import Reading, lots
from contextpilot_rag.batches.sharded import ShardedPlan
from contextpilot_rag.batches.workers import InThisProcess
from contextpilot_rag.trace import read_tokens, read_trace
from contextpilot_rag.types import OrderBudget

SHARED = Path(__file__).resolve().parents[2] / "shared"
REFEREE = SHARED / "eval" / "hit_ratio.py"
NAMES = ("tatqa/trace_bm25_top15.jsonl.gz", "tatqa/trace_minilm_top15.jsonl.gz",
         "multihoprag_stubs/trace_bm25_top15.jsonl", "multihoprag_stubs/trace_minilm_top15.jsonl")  # fmt: skip
ENGINES = 4
WAYS = (("one group", 10**6), ("groups of 1,500", 1_500), ("groups of 900", 900), ("groups of 450", 450))


def quality(keep: Path) -> str:
    """Hit ratios of one engine, and of four with a cache each."""
    if not SHARED.exists():
        sys.exit(f"the recorded traces are not at {SHARED}")
    path = keep / "quality.json"
    if not path.exists():
        path.write_text(json.dumps([_row(name) for name in NAMES]))
    headings = ["trace", "requests", "one engine"]
    for way, _ in WAYS:
        headings += [way, "of one"]
    return (
        f"Hit ratio of one engine that gets the whole plan, and of {ENGINES} engines with a cache each, every one "
        "of which gets a shard: tokens served from the caches over tokens sent, whole blocks, each shard replayed on "
        "its own by a referee that knows nothing of plans. A batch that fits one planner is planned in one group (the "
        "default: up to 32,768 contexts); small groups show what a split costs where there is more. `throughput`.\n\n"
        f"{table(headings, json.loads(path.read_text()))}"
    )


def _row(name: str) -> list[str]:
    one = replayed(name, _plan(name, 1, WAYS[0][1]))
    row = [name.partition(".")[0].replace("/trace_", " "), str(len(_plan(name, 1, WAYS[0][1]))), f"{one:.4f}"]
    for _, group in WAYS:
        four = replayed(name, _plan(name, ENGINES, group))
        row += [f"{four:.4f}", f"{four / one:.3f}"]
    return row


def replayed(name: str, plan: ShardedPlan) -> float:
    """What the referee says of all shards together."""
    cached = tokens = 0.0
    with tempfile.TemporaryDirectory() as folder:
        for shard in plan.shards:
            trace, schedule = Path(folder, "trace.jsonl"), Path(folder, "schedule.jsonl")
            rows = ({"qid": row["qid"], "context_ids": row["context_ids"]} for row in shard)
            trace.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
            shard.write(schedule)
            lengths = (SHARED / "traces" / name).parent / "block_tokens.json"
            said = subprocess.run(
                [sys.executable, REFEREE, trace, lengths, schedule], capture_output=True, text=True, check=True
            )
            found: dict[str, Any] = json.loads(said.stdout)
            cached += found["hit_ratio"] * found["tokens"]
            tokens += found["tokens"]
    return cached / tokens


def _plan(name: str, shards: int, group: int) -> ShardedPlan:
    path = SHARED / "traces" / name
    lengths = read_tokens(path.parent / "block_tokens.json")
    how = Reading(OrderBudget("throughput"))
    return plan_in_shards(
        InThisProcess(), lots(read_trace(path, lengths), 1_000), shards, how=how, sizes=Sizes(group=group)
    )


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as nowhere:
        print(quality(Path(nowhere)))
