from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextpilot_rag import BlockRef
from contextpilot_rag.cli import main
from contextpilot_rag.errors import SettingsError
from contextpilot_rag.replay import POLICIES, replay
from contextpilot_rag.trace import TraceRequest, read_tokens, read_trace
from tests.strategies import requests

SHARED = Path(__file__).resolve().parents[2] / "shared"
REFEREE = SHARED / "eval" / "hit_ratio.py"
TRACE = SHARED / "traces" / "multihoprag_stubs" / "trace_bm25_top15.jsonl"
needs_traces = pytest.mark.skipif(not TRACE.exists(), reason="the recorded traces (../shared/traces) are not here")

traces = st.lists(requests, max_size=12).map(
    lambda many: [TraceRequest(str(number), blocks) for number, blocks in enumerate(many)]
)
A, B, C = (BlockRef(key, 100) for key in "abc")
SMALL = [TraceRequest("1", (A, B)), TraceRequest("2", (C, B, A)), TraceRequest("3", (A, B))]


@given(traces, st.sampled_from(sorted(POLICIES)), st.integers(1, 5), st.one_of(st.none(), st.integers(1, 300)))
def test_every_request_is_sent_once_with_its_own_blocks(trace, policy, window, capacity):
    result = replay(trace, policy, capacity, window)
    assert sorted(request.qid for request, _ in result.schedule) == sorted(request.qid for request in trace)
    for request, order in result.schedule:
        assert sorted(order) == list(range(len(request.blocks)))
    assert 0 <= result.cached_tokens <= result.tokens == sum(request.tokens for request in trace)


def test_a_small_trace_by_hand():
    retrieved, balanced = replay(SMALL, "retrieved"), replay(SMALL, "balanced")
    assert (retrieved.cached_tokens, balanced.cached_tokens) == (200, 400)
    assert (balanced.changed, balanced.requests, balanced.tokens) == (1, 3, 700)
    # the second request went out as b, a, c reversed: its best block moved two places, the third two; others none
    assert balanced.displacement == pytest.approx(4 / 7)
    assert balanced.saving_over(retrieved) == pytest.approx((4 - 2) / (7 - 2))


def test_a_window_sends_alike_requests_after_each_other():
    """Two groups take turns, and the cache holds one prompt: only who waits finds something."""
    left, right = (A, B), (C, BlockRef("d", 100))
    trace = [TraceRequest(str(number), left if number % 2 else right) for number in range(20)]
    assert replay(trace, "balanced", capacity_tokens=200).hit_ratio == 0
    assert replay(trace, "balanced", capacity_tokens=200, window=4).hit_ratio > 0.5


def test_baselines():
    trace = [TraceRequest("1", (B, A)), TraceRequest("2", (C, A)), TraceRequest("3", (C, B, A))]
    assert [order for _, order in replay(trace, "sorted").schedule] == [[1, 0], [1, 0], [2, 1, 0]]
    assert [list(order) for _, order in replay(trace, "popular").schedule] == [[0, 1], [1, 0], [2, 0, 1]]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"policy": "magic"}, "unknown policy 'magic'; there are retrieved"),
        ({"policy": "balanced", "window": 0}, "at least 1"),
        ({"policy": "balanced", "capacity_tokens": 0}, "at least 1"),
        ({"policy": "balanced", "min_gain": 2}, "min_gain"),
    ],
)
def test_wrong_arguments(arguments, message):
    with pytest.raises(SettingsError, match=message):
        replay(SMALL, **arguments)


def test_an_empty_trace():
    result = replay([], "balanced")
    assert (result.hit_ratio, result.microseconds, result.displacement) == (0, 0, 0)


@needs_traces
@pytest.mark.parametrize("capacity", [None, 5_000])
@pytest.mark.parametrize("policy", ["retrieved", "balanced"])
def test_the_referee_counts_the_same(tmp_path, policy, capacity):
    """The hit ratio shown is the one that an independent program finds in the schedule written."""
    schedule = tmp_path / "schedule.jsonl"
    tokens = TRACE.parent / "block_tokens.json"
    limits = [] if capacity is None else ["--capacity", str(capacity)]
    arguments = [str(TRACE), "--tokens", str(tokens), "--policy", policy, "--out", str(schedule), *limits]
    assert main(["replay", *arguments]) == 0
    judged = json.loads(
        subprocess.run(
            [sys.executable, str(REFEREE), str(TRACE), str(tokens), str(schedule), *limits],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
    )
    ours = replay(read_trace(TRACE, read_tokens(tokens)), policy, capacity)
    assert judged["requests"] == ours.requests
    assert judged["tokens"] == ours.tokens
    assert judged["hit_ratio"] == pytest.approx(ours.hit_ratio, abs=1e-3 if capacity else 1e-4)


# the command


@pytest.fixture
def trace_file(tmp_path):
    path = tmp_path / "trace.jsonl"
    path.write_text(
        "".join(json.dumps({"qid": r.qid, "context_ids": [block.key for block in r.blocks]}) + "\n" for r in SMALL)
    )
    return path


def test_the_command_shows_a_table(trace_file, capsys):
    assert main(["replay", str(trace_file)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "3 requests, 700 tokens of blocks; all blocks weigh the same (no --tokens)"
    rows = {line.split()[0]: line for line in lines[2:] if line.strip()}
    assert set(POLICIES) <= set(rows)
    assert "57.1%" in rows["balanced"]


def test_the_command_speaks_json(trace_file, capsys):
    assert main(["replay", str(trace_file), "--policy", "balanced", "--json", "--window", "2"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert [row["policy"] for row in result["policies"]] == ["retrieved", "balanced"]
    assert result["policies"][1]["hit_ratio"] == pytest.approx(4 / 7, abs=1e-4)
    assert result["window"] == 2


def test_the_command_asks_for_other_gains(trace_file, capsys):
    for share, found in (("0", 4 / 7), ("1", 2 / 7)):
        assert main(["replay", str(trace_file), "--policy", "balanced", "--json", "--min-gain", share]) == 0
        assert json.loads(capsys.readouterr().out)["policies"][1]["hit_ratio"] == pytest.approx(found, abs=1e-4)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["missing.jsonl"], "cannot read missing.jsonl"),
        (["{trace}", "--tokens", "missing.json"], "cannot read missing.json"),
        (["{trace}", "--policy", "magic"], "unknown policy"),
        (["{trace}", "--out", "x.jsonl"], "--out needs --policy"),
        (["{trace}", "--window", "0"], "at least 1"),
        (["{trace}", "--min-gain", "1.5"], "min_gain"),
    ],
)
def test_the_commands_errors(trace_file, arguments, message, capsys):
    assert main(["replay", *(argument.replace("{trace}", str(trace_file)) for argument in arguments)]) == 1
    assert message in capsys.readouterr().err
