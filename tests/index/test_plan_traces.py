"""Plans of recorded retrieval, judged by an independent replay. The traces are not part of this repository."""

from __future__ import annotations

import json
from functools import cache

import pytest

from contextpilot_rag import BlockRef, OrderBudget, Request
from contextpilot_rag.index.plan import plan_batch
from tests.index.test_traces import SHARED, pytestmark, referee, trace

__all__ = ["pytestmark"]  # skipped where the other traces' tests are

LEAST = {
    ("multihoprag_stubs", "bm25_top15"): 0.530,
    ("multihoprag_stubs", "minilm_top15"): 0.638,
    ("tatqa", "bm25_top15"): 0.528,
    ("tatqa", "minilm_top15"): 0.585,
    ("locomo", "minilm_top15"): 0.485,
    ("mtrag", "bm25_top15"): 0.243,
}


@cache
def planned(data, name, order="throughput"):
    tokens, contexts = trace(data, name)
    requests = [
        Request(tuple(BlockRef(block, tokens[block]) for block in context), budget=OrderBudget(order), key=number)
        for number, context in enumerate(contexts)
    ]
    return plan_batch(requests)


def schedule(plan):
    return [[alignment.request.blocks[rank].key for rank in alignment.order] for alignment in plan]


@pytest.mark.parametrize(("data", "name"), LEAST)
def test_throughput(data, name):
    plan, (tokens, contexts) = planned(data, name), trace(data, name)
    ratio, sent = referee().replay(schedule(plan), tokens, None)
    assert plan.predicted_cached_tokens == round(ratio * sent)
    assert ratio >= LEAST[data, name]
    # Depth first, a cache of four of the longest prompts is nearly as good as one without limits.
    longest = max(sum(tokens[block] for block in context) for context in contexts)
    small, _ = referee().replay(schedule(plan), tokens, 4 * longest)
    assert small >= 0.99 * ratio


@pytest.mark.parametrize(("data", "name"), [("multihoprag_stubs", "bm25_top15"), ("locomo", "minilm_top15")])
def test_balanced_finds_less_and_moves_less(data, name):
    plan, most = planned(data, name, "balanced"), planned(data, name)
    assert most.retrieved_cached_tokens < plan.predicted_cached_tokens < most.predicted_cached_tokens
    assert plan.changed <= most.changed
    assert plan.displacement < most.displacement


@pytest.mark.parametrize("order", ["retrieved", "balanced", "throughput"])
def test_the_referee_accepts_the_schedule(order, tmp_path, capsys):
    data, name = "multihoprag_stubs", "bm25_top15"
    plan, (_, contexts) = planned(data, name, order), trace(data, name)
    rows = {
        "trace": [{"qid": number, "context_ids": context} for number, context in enumerate(contexts)],
        "schedule": [
            {"qid": alignment.request.key, "context_ids": ids}
            for alignment, ids in zip(plan, schedule(plan), strict=True)
        ],
    }
    for what, lines in rows.items():
        (tmp_path / f"{what}.jsonl").write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    lengths = SHARED / "traces" / data / "block_tokens.json"
    files = [str(tmp_path / "trace.jsonl"), str(lengths), str(tmp_path / "schedule.jsonl"), "--bound"]
    assert referee().main(files) == 0
    judged = json.loads(capsys.readouterr().out)
    assert judged["requests"] == len(contexts)
    assert judged["hit_ratio"] == round(plan.hit_ratio, 4) <= judged["bound"]
