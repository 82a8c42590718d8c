"""The postprocessor that docs/saving.md logs a retriever with: run as it stands there."""

from __future__ import annotations

import json
import re
from pathlib import Path

from contextpilot_rag.trace import read_trace
from li_support import Listed, llm_of, pick
from llama_index.core.query_engine import RetrieverQueryEngine

SAVING = Path(__file__).parents[3] / "docs" / "saving.md"


def test_the_postprocessor_logs_what_goes_into_the_prompt(engine, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```python\n(.*?)^```$", SAVING.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    (log,) = (block for block in blocks if "def log(" in block)
    (postprocessor,) = (block for block in blocks if "llama_index" in block)
    names = {}
    exec(log + postprocessor, names)
    retriever = Listed(pick(0, 1, 2), pick(3, 0))
    query_engine = RetrieverQueryEngine.from_args(
        retriever, llm=llm_of(engine), node_postprocessors=[names["RetrievalLog"]()]
    )
    for question in ("What is a slice?", "What is a set?"):
        assert query_engine.query(question).source_nodes
    lines = [json.loads(line) for line in (tmp_path / "trace.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [len(line["tokens"]) for line in lines] == [3, 2]
    first, second = read_trace(tmp_path / "trace.jsonl")
    assert second.blocks[1].key == first.blocks[0].key  # the same text
