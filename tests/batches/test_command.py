"""What the command says before Ray is started, which takes a while, or minutes where there is none."""

from __future__ import annotations

import json
import socket
import sys
from types import SimpleNamespace

import pytest

from contextpilot_rag.cli import main


@pytest.fixture
def started(monkeypatch):
    """The addresses at which Ray was started."""
    started = []

    def init(address, **_):
        started.append(address)
        raise ConnectionError("not in this test")

    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(is_initialized=lambda: False, init=init))
    return started


@pytest.fixture
def trace(tmp_path):
    path = tmp_path / "trace.jsonl"
    path.write_text(json.dumps({"qid": "q1", "context_ids": ["a", "b"]}) + "\n")
    return path


def refused(capsys, *arguments):
    """What is said of a command that fails."""
    assert main(["plan", *map(str, arguments)]) == 1
    return capsys.readouterr().err


def test_a_trace_that_cannot_be_read_is_named_before_ray_is_started(started, tmp_path, capsys):
    out = tmp_path / "schedules"
    assert "cannot read" in refused(capsys, tmp_path / "none.jsonl", "--ray", "local", "--out", out)
    (tmp_path / "bad.jsonl").write_text("nonsense\n")
    assert "bad.jsonl, line 1" in refused(capsys, tmp_path / "bad.jsonl", "--ray", "local", "--out", out)
    assert not started
    assert not out.exists()


@pytest.mark.parametrize("shards", [0, -1])
def test_a_number_of_shards_that_is_none_is_named_before_ray_is_started(started, trace, capsys, shards):
    said = refused(capsys, trace, "--ray", "local", "--shards", shards)
    assert f"--shards must be at least 1, not {shards}" in said
    assert not started


def test_schedules_of_an_earlier_plan_do_not_stay_among_those_of_this_one(started, trace, tmp_path, capsys):
    for name in ("shard-0.jsonl", "shard-1.jsonl", "shard-2.jsonl", "shard-x.jsonl"):
        (tmp_path / name).touch()
    said = refused(capsys, trace, "--ray", "local", "--shards", 2, "--out", tmp_path)
    assert "has shard-2.jsonl, of a plan for more shards" in said
    assert not started
    refused(capsys, trace, "--ray", "local", "--shards", 3, "--out", tmp_path)
    assert started == ["local"], "files that are written anew are in nobody's way"


def test_an_address_where_nothing_listens_is_named_at_once(started, trace, capsys):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))  # and does not listen
        address = f"127.0.0.1:{free.getsockname()[1]}"
        said = refused(capsys, trace, "--ray", address)
    assert f"--ray {address}: no Ray cluster is reached there" in said
    assert not started


@pytest.mark.parametrize("form", ["local", "auto", "HOST:PORT", "ray://127.0.0.1:1", "127.0.0.1:99999x"])
def test_all_other_forms_of_an_address_are_ray_s_to_judge(started, trace, capsys, form):
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}" if form == "HOST:PORT" else form
        assert f"--ray {address}: not in this test" in refused(capsys, trace, "--ray", address)
    assert started == [address]
