"""``contextpilot-rag plan``: what it prints, what it writes, what it refuses."""

from __future__ import annotations

import json

import pytest

from contextpilot_rag.cli import main
from contextpilot_rag.trace import read_trace

ROWS = {"q1": "a b c", "q2": "x y", "q3": "c b d", "q4": "y x z", "q5": "", "q6": "a b c"}


@pytest.fixture
def trace(tmp_path):
    path = tmp_path / "trace.jsonl"
    path.write_text("".join(f"{json.dumps({'qid': qid, 'context_ids': ids.split()})}\n" for qid, ids in ROWS.items()))
    return path


def plan(capsys, *arguments):
    status = main(["plan", *map(str, arguments)])
    output = capsys.readouterr()
    return status, output.out, output.err


def test_the_schedule_has_each_request_once_with_its_own_blocks(trace, tmp_path, capsys):
    out = tmp_path / "schedule.jsonl"
    status, text, _ = plan(capsys, trace, "--out", out, "--order", "throughput")
    assert status == 0
    assert f"written to {out}" in text
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert {row["qid"]: sorted(row["context_ids"]) for row in rows} == {q: sorted(i.split()) for q, i in ROWS.items()}
    assert len(rows) == len(ROWS)
    assert len(read_trace(out)) == len(ROWS)


def test_what_it_says_is_what_the_plan_does(trace, capsys):
    _, text, _ = plan(capsys, trace, "--json", "--ceiling", "--capacity", "500", "--order", "throughput")
    found = json.loads(text)
    # b and c of q1 again in q3, all of q1 in q6, x and y in q4: 2 + 3 + 2 of 14 blocks
    assert (found["requests"], found["tokens"], found["hit_ratio"]) == (6, 1400, 0.5)
    assert (found["ceiling"], found["hit_ratio_at_capacity"], found["complete"]) == (0.5, 0.5, True)
    _, text, _ = plan(capsys, trace, "--ceiling", "--order", "throughput", "--capacity", "500")
    for said in (
        "as planned    50.0 %",
        "no plan can pass 50.0 %",
        "a cache of 500 tokens would find 50.0 %",
        "--tokens",
    ):
        assert said in text


def test_lengths_count(trace, tmp_path, capsys):
    lengths = tmp_path / "tokens.json"
    lengths.write_text(json.dumps(dict.fromkeys("abcdxyz", 10)))
    _, text, _ = plan(capsys, trace, "--tokens", lengths, "--json")
    assert json.loads(text)["tokens"] == 140


def test_as_retrieved_only_the_order_of_sending_changes(trace, tmp_path, capsys):
    out = tmp_path / "schedule.jsonl"
    _, text, _ = plan(capsys, trace, "--out", out, "--order", "retrieved", "--json")
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert {row["qid"]: row["context_ids"] for row in rows} == {qid: ids.split() for qid, ids in ROWS.items()}
    assert json.loads(text)["changed"] == 0


def test_a_budget_of_nothing_still_gives_a_plan(trace, capsys):
    many = trace.with_name("many.jsonl")
    many.write_text("".join(f'{{"qid": {n}, "context_ids": [{n % 7}, {n % 5 + 10}, {n + 100}]}}\n' for n in range(60)))
    _, text, _ = plan(capsys, many, "--budget", "0", "--order", "throughput")
    assert "the time was up" in text
    _, text, _ = plan(capsys, many, "--budget", "0.5", "--order", "throughput", "--json")
    assert json.loads(text)["complete"]


def test_progress_goes_to_the_error_stream(trace, capsys):
    many = trace.with_name("many.jsonl")
    many.write_text("".join(f'{{"qid": {n}, "context_ids": [{n % 7}, {n % 5 + 10}]}}\n' for n in range(60)))
    _, text, errors = plan(capsys, many, "--progress", "--json")
    json.loads(text)
    assert "merging" in errors


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--budget", "-1"], "--budget"),
        (["--budget", "nan"], "--budget"),
        (["--capacity", "0"], "--capacity"),
        (["--min-gain", "2"], "min_gain"),
        (["--tokens", "missing.json"], "missing.json"),
        (["--out", "/no/such/folder/schedule.jsonl"], "/no/such/folder"),
    ],
)
def test_what_cannot_be_used_is_named(trace, capsys, arguments, says):
    status, _, errors = plan(capsys, trace, *arguments)
    assert status == 1
    assert says in errors
    assert "Traceback" not in errors


def test_a_trace_that_is_none_is_named(tmp_path, capsys):
    status, _, errors = plan(capsys, tmp_path / "missing.jsonl")
    assert status == 1
    assert "missing.jsonl" in errors
