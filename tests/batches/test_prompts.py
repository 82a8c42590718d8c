"""Rows of a shard as prompts, sent to an engine."""

from __future__ import annotations

import asyncio

import pytest

from contextpilot_rag import ContextPilot
from contextpilot_rag.batches import planned_prompts
from contextpilot_rag.errors import InputError
from contextpilot_rag.testing import FakeEngine

from .drawn import made, planned

ROWS = made(60, 12, 4)
TEXTS = {name: f"The text of {name}. " * 30 for row in ROWS for name in row["context_ids"]}


def blocks(row):
    return [(name, TEXTS[name]) for name in row["context_ids"]]


def lengths(pilot):
    return {name: pilot.prepare([text]).request.tokens for name, text in TEXTS.items()}


def test_a_shard_s_prompts_are_in_its_order_and_predict_what_it_predicts():
    pilot = ContextPilot()
    plan = planned(ROWS, 2, lengths=lengths(pilot))
    for shard in plan.shards:
        rows = list(shard)
        plans = list(planned_prompts(rows, pilot, blocks, piece=7))
        assert [len(one) for one in plans] == [7] * (len(rows) // 7) + [len(rows) % 7]
        prompts = [prompt for one in plans for prompt in one]
        for row, prompt in zip(rows, prompts, strict=True):
            assert prompt.request.key == row["qid"]
            assert list(prompt.labels.values()) == [row["context_ids"][place] for place in row["order"]]
            assert prompt.predicted_cached_tokens == row["predicted_cached_tokens"]
        for number, one in enumerate(plans):
            wanted = [max(-1, row["source"] - 7 * number) for row in rows[7 * number :][:7]]
            assert list(one.sources) == wanted
        (last,) = planned_prompts(rows[7:], pilot, blocks)  # a run that begins in the middle
        assert list(last.sources) == [max(-1, row["source"] - 7) for row in rows[7:]]


def test_they_are_sent_as_any_plan_and_the_engine_finds_what_was_predicted():
    pilot = ContextPilot()
    plan = planned(ROWS, 2, lengths=lengths(pilot))
    for shard in plan.shards:
        with FakeEngine() as engine:
            for one in planned_prompts(shard, pilot, blocks, lambda row: f"What of {row['qid']}?", piece=16):
                report = asyncio.run(pilot.run(one, engine.base_url, max_tokens=2))
                assert [result.key for result in report] == [prompt.request.key for prompt in one]
            assert len(engine.requests) == len(shard)
            found = sum(request.cached_tokens for request in engine.requests)
            sent = sum(request.prompt_tokens for request in engine.requests)
        assert found / sent > 0.8 * shard.hit_ratio


def test_two_ids_of_one_text_stand_in_a_prompt_once():
    rows = planned([{"qid": "q", "context_ids": ["x", "y", "z"]}], 1, lengths=None).shards[0]
    texts = {"x": "same", "y": "same", "z": "other"}
    (plan,) = planned_prompts(rows, ContextPilot(), lambda row: [(name, texts[name]) for name in row["context_ids"]])
    assert sorted(block.text for block in plan[0].retrieved) == ["other", "same"]
    assert sorted(plan[0].order) == [0, 1]


def test_too_few_blocks_are_refused():
    rows = planned([{"qid": "q", "context_ids": ["x", "y"]}], 1, lengths=None).shards[0]
    with pytest.raises(InputError, match=r"'q'.* has 1 blocks"):
        list(planned_prompts(rows, ContextPilot(), lambda row: ["one"]))


@pytest.mark.parametrize("column", ["position", "source", "order", "cached_blocks"])
def test_rows_that_are_not_of_a_shard_are_refused_before_any_of_them_is_sent(column):
    shard = planned([{"qid": "q", "context_ids": ["x", "y"]}, {"qid": "r", "context_ids": ["x"]}], 1, lengths=None)
    first, second = shard.shards[0]
    rows = [first, {name: value for name, value in second.items() if name != column}]
    with pytest.raises(InputError, match=rf"request '{second['qid']}' has no {column}: rows are"):
        next(planned_prompts(rows, ContextPilot(), lambda row: row["context_ids"]))
