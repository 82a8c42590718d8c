"""Traces of any length, read line by line."""

from __future__ import annotations

import gzip

import pytest

from contextpilot_rag.batches.recorded import trace_rows
from contextpilot_rag.errors import TraceError

LINES = b'{"qid": 1, "context_ids": [3, "a"], "question": "?"}\n\n{"qid": "1", "context_ids": []}'
ROWS = [{"qid": "1", "context_ids": ["3", "a"]}, {"qid": "1", "context_ids": []}]


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_lines_come_as_rows(tmp_path, pack):
    (tmp_path / "trace").write_bytes(pack(LINES))
    assert list(trace_rows(tmp_path / "trace")) == ROWS


def test_nothing_is_read_ahead(tmp_path):
    (tmp_path / "trace").write_bytes(LINES + b"\nno request")
    rows = trace_rows(tmp_path / "trace")
    assert [next(rows), next(rows)] == ROWS
    with pytest.raises(TraceError, match="line 4"):
        next(rows)


@pytest.mark.parametrize("data", [b'{"qid": 1}', b"\x1f\x8bno zip", b'{"qid": "\xff", "context_ids": []}', b"[]"])
def test_what_is_no_trace_is_named(tmp_path, data):
    (tmp_path / "trace").write_bytes(data)
    with pytest.raises(TraceError, match="trace"):
        list(trace_rows(tmp_path / "trace"))
    with pytest.raises(TraceError, match="missing"):
        list(trace_rows(tmp_path / "missing"))
