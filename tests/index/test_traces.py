"""The index on recorded retrieval, judged by an independent replay. The traces are not part of this repository."""

from __future__ import annotations

import gzip
import importlib.util
import json
import random
from functools import cache
from pathlib import Path

import pytest

from contextpilot_rag import BlockRef, LocalIndex, OrderBudget, Request

SHARED = Path(__file__).parents[3] / "shared"
REFEREE = SHARED / "eval" / "hit_ratio.py"

needs_traces = pytest.mark.skipif(
    not (REFEREE.exists() and (SHARED / "traces").exists()),
    reason="needs the recorded traces in ../shared/traces and the referee in ../shared/eval, next to this repository",
)
pytestmark = [needs_traces, pytest.mark.no_cover]  # they are not everywhere, so nothing counts that they alone cover


@cache
def referee():
    spec = importlib.util.spec_from_file_location("hit_ratio", REFEREE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@cache
def trace(data, name):
    """Token lengths by block, and the contexts in their order."""
    folder = SHARED / "traces" / data
    tokens = json.loads((folder / "block_tokens.json").read_text())
    path = folder / f"trace_{name}.jsonl"
    text = path.read_text() if path.exists() else gzip.decompress(Path(f"{path}.gz").read_bytes()).decode()
    contexts = [list(dict.fromkeys(json.loads(line)["context_ids"])) for line in text.splitlines() if line.strip()]
    return tokens, contexts


def hit_ratio(data, name, order="throughput", tail="adaptive", capacity=None, seed=None):
    """What a cache would have served of the orders that the index gives, one request at a time."""
    tokens, contexts = trace(data, name)
    if seed is not None:
        contexts = list(contexts)
        random.Random(seed).shuffle(contexts)
    index, budget, schedule = LocalIndex(capacity, tail=tail), OrderBudget(order), []
    for context in contexts:
        request = Request(tuple(BlockRef(block, tokens[block]) for block in context), budget=budget)
        schedule.append([context[rank] for rank in index.align(request).order])
        assert sorted(schedule[-1]) == sorted(context)
    ratio, sent = referee().replay(schedule, tokens, capacity)
    stats = index.stats()
    if capacity is None:
        assert stats.predicted_cached_tokens == pytest.approx(ratio * sent), "the prediction is what the cache serves"
    return ratio


@pytest.mark.parametrize(
    ("data", "name", "least"),
    [
        ("multihoprag_stubs", "bm25_top15", 0.43),
        ("multihoprag_stubs", "minilm_top15", 0.54),
        ("tatqa", "bm25_top15", 0.42),
        ("tatqa", "minilm_top15", 0.475),
        ("locomo", "minilm_top15", 0.32),
        ("mtrag", "bm25_top15", 0.129),
    ],
)
def test_throughput(data, name, least):
    assert hit_ratio(data, name) >= least


@pytest.mark.parametrize(
    ("data", "name", "least"),
    [
        ("multihoprag_stubs", "bm25_top15", 0.36),
        ("multihoprag_stubs", "minilm_top15", 0.49),
        ("tatqa", "bm25_top15", 0.33),
        ("locomo", "minilm_top15", 0.26),
        ("mtrag", "elser_full_top10", 0.071),
        ("mtrag", "bm25_top15", 0.103),
    ],
)
def test_balanced(data, name, least):
    assert hit_ratio(data, name, order="balanced") >= least


@pytest.mark.parametrize("seed", [None, 0])
@pytest.mark.parametrize(
    ("data", "name"),
    [("multihoprag_stubs", "bm25_top15"), ("mtrag", "bm25_prevcur_top15"), ("mtrag", "elser_full_top10")],
)
def test_adaptive_is_nearly_as_good_as_the_best_single_tail(data, name, seed):
    singles = ["retrieved", "popular", "conditional", "blended"]
    best = max(hit_ratio(data, name, tail=tail, seed=seed) for tail in singles)
    assert hit_ratio(data, name, seed=seed) >= 0.98 * best


def test_small_caches_choose_well():
    tokens, contexts = trace("multihoprag_stubs", "minilm_top15")
    sent = sum(tokens[block] for context in contexts for block in context)
    capacity = 4 * sent // len(contexts)
    singles = ["retrieved", "popular", "conditional", "blended"]
    best = max(hit_ratio("multihoprag_stubs", "minilm_top15", tail=tail, capacity=capacity) for tail in singles)
    adaptive = hit_ratio("multihoprag_stubs", "minilm_top15", capacity=capacity)
    assert adaptive >= 0.2
    assert adaptive >= 0.98 * best
