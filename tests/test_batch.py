"""Plans as callers get them: keys, counts, explanation, table, failing open."""

from __future__ import annotations

import asyncio

import pandas as pd
import pytest

from contextpilot_rag import AsyncContextPilot, Context, ContextPilot, LocalIndex, Plan
from contextpilot_rag.errors import ConflictingBlocks, IndexFailed, InvalidBlock, MissingPackage, SettingsError

A, B, C, D = (f"text {name} " * 20 for name in "ABCD")


def keys(plan):
    return [alignment.request.key for alignment in plan]


def test_each_alignment_carries_its_own_key_question_and_texts():
    contexts = {"q1": Context((), "first?"), ("q", 2): Context((), "second?"), 3: [A, B]}
    plan = ContextPilot().plan(contexts)
    assert sorted(map(str, keys(plan))) == sorted(map(str, contexts))
    assert {one.request.key: one.question for one in plan} == {"q1": "first?", ("q", 2): "second?", 3: ""}
    assert [block.text for block in next(one for one in plan if one.request.key == 3).retrieved] == [A, B]


def test_a_sequence_is_numbered():
    assert sorted(keys(ContextPilot().plan([[A], [B], [A]]))) == [0, 1, 2]


def test_what_is_shared_comes_first_and_is_counted_once():
    plan = ContextPilot(order="throughput", tokenizer=lambda _: 100).plan([[A, B, C], [C, D], [D, C, A]])
    assert plan.tokens == 800
    assert plan.predicted_cached_tokens == 300
    assert plan.hit_ratio == 0.375
    assert plan.retrieved_cached_tokens == 0
    assert plan[0].predicted_cached_tokens == 0


def test_a_plan_says_what_it_does():
    plan = ContextPilot(order="throughput", tokenizer=lambda _: 100).plan([[A, B], [C, A], [D]], ceiling=True)
    assert plan.ceiling == 0.2
    assert plan.complete
    said = plan.explain()
    assert "3 requests, 500 tokens" in said
    assert "as planned    20.0 %" in said
    assert "no plan can pass 20.0 %" in said
    assert repr(plan) == "<Plan: 3 requests, 20.0% of 500 tokens predicted to be cached>"
    assert plan[0] is plan.alignments[0]


def test_as_a_table():
    plan = ContextPilot(order="throughput", tokenizer=lambda _: 100).plan({"x": [A, B], "y": [C, A]})
    table = plan.to_dataframe()
    assert isinstance(table, pd.DataFrame)
    assert table["key"].tolist() == keys(plan)
    assert table["predicted_cached_tokens"].tolist() == [0, 100]
    assert table["source"].isna().tolist() == [True, False]
    assert table["source"][1] == keys(plan)[0]


def test_without_pandas_the_table_says_what_is_missing(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pandas", None)
    with pytest.raises(MissingPackage, match="pandas"):
        Plan((), ()).to_dataframe()
    assert issubclass(MissingPackage, ImportError)


def test_from_what_is_cached_already():
    pilot = ContextPilot(order="throughput", tokenizer=lambda _: 100)
    pilot.align([C, A, B])
    plan = pilot.plan([[A, B, C], [D]], index=pilot.index)
    first = plan[0]
    assert first.predicted_cached_tokens == 300
    assert [block.text for block in first.blocks] == [C, A, B]
    assert pilot.stats().requests == 1  # nothing was taken as sent
    assert pilot.plan([[A, B, C]], index=pilot.index, namespace="other").predicted_cached_tokens == 0


def test_a_planned_request_can_be_taken_as_sent():
    pilot = ContextPilot(order="throughput", tokenizer=lambda _: 100)
    for alignment in pilot.plan([[A, B], [B, C]]):
        pilot.index.sent(alignment)
    assert pilot.stats().requests == 2
    assert pilot.align([B, A]).predicted_cached_tokens == 200


def test_settings_of_the_pilot_and_of_the_plan():
    pilot = ContextPilot(tokenizer=lambda _: 100, min_gain=0.4)
    assert pilot.plan([[A, B], [C, A]]).changed == 0  # 100 of 400 tokens are not worth it
    assert pilot.plan([[A, B], [C, A]], min_gain=0.2).changed == 1
    assert pilot.plan([[A, B], [C, A]], order="throughput").changed == 1
    assert pilot.plan([[A, B], [C, A]], order="throughput", protect_top=1).changed == 0


@pytest.mark.parametrize(
    ("contexts", "error", "says"),
    [
        ("text", InvalidBlock, "contexts"),
        (7, InvalidBlock, "contexts"),
        (Context(()), InvalidBlock, "contexts"),
        ([[A], [7]], InvalidBlock, "context 1: block 0"),
        ({"x": "text"}, InvalidBlock, "context 'x'"),
        ({"x": [("a", A), ("a", B)]}, ConflictingBlocks, "context 'x'"),
    ],
)
def test_what_is_no_context_is_named(contexts, error, says):
    with pytest.raises(error, match=says):
        ContextPilot().plan(contexts)


@pytest.mark.parametrize(
    "options",
    [
        {"time_budget": -1},
        {"time_budget": float("inf")},
        {"time_budget": float("nan")},
        {"time_budget": "3"},
        {"ordr": "x"},
        {"max_blocks": 3},
    ],
)
def test_wrong_settings_are_named(options):
    with pytest.raises(SettingsError, match=next(iter(options))):
        ContextPilot().plan([[A]], **options)


class Broken(LocalIndex):
    def tree(self, namespace):
        raise RuntimeError("no tree today")


def test_an_index_that_does_not_say_what_it_has_gives_a_plan_from_an_empty_cache():
    pilot = ContextPilot(order="throughput")
    contexts = {"x": [A, B], "y": [B, C]}
    plan, same = pilot.plan(contexts, index=Broken()), pilot.plan(contexts)
    assert [(one.request.key, one.order) for one in plan] == [(one.request.key, one.order) for one in same]
    assert pilot.failures == 1
    with pytest.raises(IndexFailed, match="no tree today"):
        ContextPilot(on_error="raise").plan([[A]], index=Broken())


def test_planning_that_breaks_gives_a_plan_as_retrieved(monkeypatch):
    def broken(*_, **__):
        raise RuntimeError("no plan today")

    monkeypatch.setattr("contextpilot_rag.index.plan.plan_batch", broken)
    pilot = ContextPilot(order="throughput")
    plan = pilot.plan({"x": [A, B], "y": [B, C]})
    assert keys(plan) == ["x", "y"]
    assert plan.changed == 0
    assert not plan.complete
    assert pilot.failures == 1
    with pytest.raises(IndexFailed, match="no plan today"):
        ContextPilot(on_error="raise").plan([[A]])


def test_async_plans_are_the_same():
    contexts = [[A, B, C], [C, D], [D, C, A]]
    plan = asyncio.run(AsyncContextPilot(order="throughput").plan(contexts))
    same = ContextPilot(order="throughput").plan(contexts)
    assert [(one.request.key, one.order) for one in plan] == [(one.request.key, one.order) for one in same]


def test_progress_is_told():
    told = []
    ContextPilot().plan([[A, f"{n}", f"{n % 3}"] for n in range(20)], progress=lambda *report: told.append(report))
    assert told[0][0] == "merging"
    assert all(0 <= done <= total for _, done, total in told)
