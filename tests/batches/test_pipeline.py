"""Batches in shards, without Ray: what no division may change, and what it may cost."""

from __future__ import annotations

from collections import Counter
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contextpilot_rag import BlockRef, Namespace, Request
from contextpilot_rag.batches import dividing
from contextpilot_rag.batches.pipeline import Sizes, plan_in_shards
from contextpilot_rag.batches.reading import lots
from contextpilot_rag.batches.workers import InThisProcess
from contextpilot_rag.errors import InputError, SettingsError
from contextpilot_rag.index.plan import plan_batch
from contextpilot_rag.index.tree import PrefixTree
from contextpilot_rag.types import OrderBudget

from ..index.test_traces import SHARED
from .drawn import WEIGHTS, batches, held, made, planned, rows_of

EQUAL = 100


@given(
    batches, st.integers(1, 4), st.integers(1, 12), st.integers(1, 20), st.integers(1, 9), st.sampled_from([1, 2, 256])
)
@settings(max_examples=150)
def test_each_request_once_its_blocks_unchanged_and_predictions_kept(batch, shards, group, counters, lot, wide):
    rows = rows_of(batch)
    plan = planned(rows, shards, group=group, counters=counters, lot=lot, wide=wide)
    assert len(plan.shards) == shards
    cached = held(plan, rows)
    assert plan.predicted_cached_tokens <= cached
    assert len(plan) == sum(map(len, plan.shards)) == len(rows)
    assert plan.tokens == sum(shard.tokens for shard in plan.shards)
    assert plan.tokens == sum(WEIGHTS[name] for row in rows for name in set(row["context_ids"]))
    assert plan.largest <= group


@given(batches, st.sampled_from(["retrieved", "balanced", "throughput", "fixed"]))
def test_one_group_for_one_engine_is_the_planner_s_own_plan(batch, order):
    rows = rows_of(batch)
    plan = planned(rows, 1, group=100, order=order)
    refs = [tuple(BlockRef(name, WEIGHTS[name]) for name in dict.fromkeys(row["context_ids"])) for row in rows]
    whole = plan_batch([Request(blocks, budget=OrderBudget(order), key=key) for key, blocks in enumerate(refs)])
    assert [row["qid"] for row in plan.shards[0]] == [alignment.request.key for alignment in whole]
    assert [row["source"] for row in plan.shards[0]] == list(whole.sources)
    assert plan.predicted_cached_tokens == whole.predicted_cached_tokens
    assert (plan.totals.retrieved, plan.totals.changed) == (whole.retrieved_cached_tokens, whole.changed)
    if order == "retrieved":
        assert all(row["order"] == sorted(row["order"]) for row in plan.shards[0])


@given(batches, st.integers(2, 6))
def test_a_cut_costs_one_prompt_at_most(batch, shards):
    rows = rows_of(batch)
    longest = max(sum(WEIGHTS[name] for name in set(ids)) for ids in batch)
    one, several = (planned(rows, count, group=100) for count in (1, shards))
    assert several.predicted_cached_tokens >= one.predicted_cached_tokens - (shards - 1) * longest


@given(batches, st.integers(1, 5), st.integers(1, 9))
def test_more_groups_than_a_lot_is_cut_into_are_reached_in_two_steps(batch, group, lot):
    rows = rows_of(batch)
    once, twice = (planned(rows, 3, group=group, lot=lot, wide=wide) for wide in (256, 2))
    assert [list(shard) for shard in once.shards] == [list(shard) for shard in twice.shards]


@given(
    st.lists(
        st.tuples(st.sampled_from("xyz"), st.lists(st.sampled_from("abcdef"), unique=True, max_size=5)), min_size=1
    )
)
def test_namespaces_share_nothing_and_requests_keep_their_budgets(drawn):
    requests = [
        Request(
            tuple(BlockRef(name, WEIGHTS[name]) for name in ids),
            Namespace(tenant),
            OrderBudget("retrieved" if tenant == "x" else "throughput"),
            number,
        )
        for number, (tenant, ids) in enumerate(drawn)
    ]
    plan = plan_in_shards(InThisProcess(), lots(requests, 7), 2, sizes=Sizes(group=4))
    seen = Counter()
    for shard in plan.shards:
        trees = {tenant: PrefixTree(None, 10**9) for tenant in "xyz"}
        for row in shard:
            request = requests[row["key"]]
            seen[row["key"]] += 1
            assert sorted(row["order"]) == list(range(len(request.blocks)))
            if request.budget.order == "retrieved":
                assert row["order"] == sorted(row["order"])
            sent = [request.blocks[rank] for rank in row["order"]]
            tree = trees[request.namespace.tenant]
            assert tree.cached_tokens(sent)[1] >= row["predicted_cached_tokens"]
            tree.insert(sent)
    assert seen == Counter(range(len(requests)))


@given(batches, st.integers(1, 12))
def test_splits_of_few_parts_end_too(batch, group):
    rows = rows_of(batch)
    with patch.multiple(dividing, _WAYS=1, _LEAST=1):
        plan = planned(rows, 2, group=group)
    held(plan, rows)
    assert plan.largest <= group


def test_names_and_blocks_may_come_twice():
    rows = [{"qid": "same", "context_ids": ["b", "a", "b", "c"], "note": number} for number in range(5)]
    plan = planned(rows, 2, group=2)
    found = [row for shard in plan.shards for row in shard]
    assert sorted(row["note"] for row in found) == list(range(5))
    assert all(sorted(row["order"]) == [0, 1, 3] for row in found)


def test_contexts_that_nothing_tells_apart_are_cut_as_they_come():
    rows = [{"qid": number, "context_ids": ["a", "b"]} for number in range(50)]
    plan = planned(rows, 1, group=8)
    assert (plan.groups, plan.largest) == (7, 8)
    assert [row["qid"] for row in plan.shards[0]] == list(range(50))


def test_groups_find_most_of_what_one_planner_finds():
    rows = made(2000, 300)
    lengths = {name: EQUAL for row in rows for name in row["context_ids"]}
    one, several = (planned(rows, 4, group=group, lot=300, lengths=lengths) for group in (2000, 300))
    as_they_come = [planned(rows[start : start + 300], 1, group=300, lengths=lengths) for start in range(0, 2000, 300)]
    assert several.groups >= len(as_they_come)
    assert several.hit_ratio > 0.93 * one.hit_ratio
    assert several.predicted_cached_tokens > 1.1 * sum(plan.predicted_cached_tokens for plan in as_they_come)
    assert several.imbalance < 0.05
    held(several, rows, lengths)


@pytest.mark.no_cover
@pytest.mark.skipif(not SHARED.exists(), reason="the recorded traces are not part of this repository")
@pytest.mark.parametrize("name", ["bm25", "minilm"])
def test_four_engines_find_nearly_what_one_finds_on_recorded_retrieval(name):
    from contextpilot_rag.trace import read_tokens, read_trace

    folder = SHARED / "traces" / "tatqa"
    lengths = read_tokens(folder / "block_tokens.json")
    trace = read_trace(folder / f"trace_{name}_top15.jsonl.gz", lengths)
    one, four, split = (
        planned(trace, shards, group=group, lot=1000, counters=16_384)
        for shards, group in ((1, 10**4), (4, 10**4), (4, 900))
    )
    rows = [{"qid": request.qid, "context_ids": [block.key for block in request.blocks]} for request in trace]
    assert held(four, rows, lengths) == four.predicted_cached_tokens
    assert four.hit_ratio >= 0.995 * one.hit_ratio
    assert split.hit_ratio >= 0.95 * one.hit_ratio
    assert max(four.imbalance, split.imbalance) < 0.05


def test_what_a_plan_says():
    rows = [{"qid": number, "context_ids": ids} for number, ids in enumerate(["ab", "xy", "cba", "yxz"])]
    rows = [{**row, "context_ids": list(row["context_ids"])} for row in rows]
    plan = planned(rows, 2, lengths=None)
    assert plan.explain().splitlines() == [
        "4 requests, 1,000 tokens of blocks, for 2 engines",
        "as retrieved   0.0 % of the tokens found in the caches",
        "as planned    40.0 %, 40.0 % of the prefill saved",
        "another order for 2 of 4 requests",
        "planned in 1 group of 4, found by 0 levels of splits",
        "the busiest engine computes 0.0 % more than the average",
    ]
    assert [shard.hit_ratio for shard in plan.shards] == [0.4, 0.4]


def test_progress_is_told():
    told = []
    rows = made(40, 12, 5)
    plan_in_shards(InThisProcess(), lots(rows, 10), 2, sizes=Sizes(group=10), report=lambda *what: told.append(what))
    assert [what for what, *_ in told if what == "splitting"]
    assert told[-1] == ("planning", 40, 40)


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ([], "no context"),
        ([{"qid": 1}], "context 0 has no context_ids"),
        ([{"context_ids": []}] * 8 + [{"context_ids": "abc"}], "context 8: context_ids must be a list"),
        ([{"context_ids": [1.5]}], "str, int or bytes"),
        ([{"context_ids": ["a"], "order": [0]}], "'order'"),
        ([{"context_ids": ["a"], "tokens": []}], "one length for each"),
        ([{"context_ids": ["a"], "tokens": [0]}], "at least 1"),
        ([{"context_ids": ["unknown"]}], "'unknown'"),
        ([{"context_ids": []}, Request(())], "context 1"),
        ([Request(()), {"context_ids": []}], "context 1"),
        ([7], "context 0"),
    ],
)
def test_what_cannot_be_planned_is_named(rows, says):
    with pytest.raises(InputError, match=says):
        planned(rows)


class Watched(InThisProcess):
    """Counts tasks that fail: Ray prints the trace of each result of such a task that nobody asks for."""

    def __init__(self):
        self.failed = 0

    def submit(self, function, *arguments, returns=1):
        try:
            return super().submit(function, *arguments, returns=returns)
        except Exception:
            self.failed += 1
            raise


def test_what_is_no_context_is_said_by_one_error_and_fails_no_task():
    workers = Watched()
    rows = [{"context_ids": ["a"]}, {"context_ids": 5}, {"ids": ["a"]}]
    with pytest.raises(InputError, match="context 1: context_ids must be") as caught:
        plan_in_shards(workers, lots(rows, 1), 1)
    assert workers.failed == 0
    assert caught.value.__cause__ is caught.value.__context__ is None


def test_lengths_of_rows_count_before_those_of_all():
    plan = planned([{"context_ids": ["a", "b"], "tokens": [5, 6]}, {"context_ids": ["a"]}], 1, lengths={"a": 7})
    assert plan.tokens == 18


def test_only_plans_that_were_made_on_ray_become_its_data_sets():
    with pytest.raises(SettingsError, match="made on Ray"):
        planned([{"context_ids": ["a"]}]).shards[0].to_dataset()


def test_a_schedule_is_written_in_the_order_of_sending(tmp_path):
    import json

    rows = rows_of(["abc", "de", "cbf"])
    plan = planned([{**row, "context_ids": list(row["context_ids"])} for row in rows], 1)
    plan.shards[0].write(tmp_path / "schedule.jsonl")
    written = [json.loads(line) for line in (tmp_path / "schedule.jsonl").read_text().splitlines()]
    assert written == [
        {"qid": row["qid"], "context_ids": [row["context_ids"][place] for place in row["order"]]}
        for row in plan.shards[0]
    ]
    with pytest.raises(InputError, match="no-such"):
        plan.shards[0].write(tmp_path / "no-such" / "schedule.jsonl")
