from __future__ import annotations

import gzip
import json

import pytest

from contextpilot_rag import BlockRef
from contextpilot_rag.errors import TraceError
from contextpilot_rag.trace import EQUAL_TOKENS, TraceRequest, read_tokens, read_trace, write_schedule

LINES = '{"qid": "q1", "context_ids": ["b", "a", "b"], "question": "?", "turn": 1}\n\n{"qid": 2, "context_ids": []}\n'


@pytest.fixture
def trace(tmp_path):
    path = tmp_path / "trace.jsonl"
    path.write_text(LINES)
    return path


def test_reads_requests_with_their_lengths(trace):
    first, second = read_trace(trace, {"a": 5, "b": 7})
    assert first == TraceRequest("q1", (BlockRef("b", 7), BlockRef("a", 5)))
    assert first.tokens == 12
    assert second == TraceRequest("2", ())


def test_without_lengths_all_blocks_weigh_the_same(trace):
    assert {block.tokens for block in read_trace(trace)[0].blocks} == {EQUAL_TOKENS}


def test_reads_compressed_files_whatever_their_name(tmp_path, trace):
    path = tmp_path / "compressed"
    path.write_bytes(gzip.compress(LINES.encode()))
    assert read_trace(path) == read_trace(trace)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "holds no request"),
        ("{}", "line 1: .*qid"),
        ('{"qid": "a", "context_ids": ["x"]}\nnot json', "line 2"),
        ('{"qid": "a", "context_ids": "x"}', "line 1"),
        ('{"qid": "a", "context_ids": [null]}', "line 1"),
        ('{"qid": "a", "context_ids": []}\n{"qid": "a", "context_ids": []}', "line 2: qid 'a' came before"),
        ('{"qid": "a", "context_ids": ["unknown"]}', "line 1: no length for block 'unknown'"),
    ],
)
def test_bad_lines_are_named(tmp_path, text, message):
    path = tmp_path / "t.jsonl"
    path.write_text(text)
    with pytest.raises(TraceError, match=message):
        read_trace(path, {"x": 1})


@pytest.mark.parametrize("data", [b"\xff\xfe\x00", gzip.compress(b"x" * 1_000, mtime=0)[:-9], b"\x1f\x8bnot gzip"])
def test_files_that_cannot_be_read(tmp_path, data):
    path = tmp_path / "t"
    path.write_bytes(data)
    with pytest.raises(TraceError, match="cannot read"):
        read_trace(path)
    with pytest.raises(TraceError, match="cannot read"):
        read_trace(tmp_path / "missing")


@pytest.mark.parametrize("text", ["[]", '{"a": "x"}', '{"a": 1.5}', '{"a": 0}', "{"])
def test_bad_lengths(tmp_path, text):
    path = tmp_path / "tokens.json"
    path.write_text(text)
    with pytest.raises(TraceError):
        read_tokens(path)


def test_schedules_are_written_in_the_order_of_sending(tmp_path, trace):
    first, second = read_trace(trace)
    path = tmp_path / "out.jsonl"
    write_schedule(path, [(second, ()), (first, (1, 0))])
    assert [json.loads(line) for line in path.read_text().splitlines()] == [
        {"qid": "2", "context_ids": []},
        {"qid": "q1", "context_ids": ["a", "b"]},
    ]
    with pytest.raises(TraceError, match="cannot write"):
        write_schedule(tmp_path / "no" / "such" / "folder", [])
