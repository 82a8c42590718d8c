"""The callback that docs/saving.md logs a retriever with: run as it stands there."""

from __future__ import annotations

import json
import re
from pathlib import Path

from contextpilot_rag.trace import read_trace
from langchain_core.documents import Document
from langchain_stage import bm25

SAVING = Path(__file__).parents[4] / "docs" / "saving.md"


def test_the_callback_logs_what_a_retriever_returned(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```python\n(.*?)^```$", SAVING.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    (log,) = (block for block in blocks if "def log(" in block)
    (callback,) = (block for block in blocks if "langchain_core" in block)
    names = {}
    exec(log + callback, names)
    documents = bm25().invoke("What is a slice?", {"callbacks": [names["RetrievalLog"]()]})
    assert documents
    assert all(isinstance(document, Document) for document in documents)
    (line,) = (tmp_path / "trace.jsonl").read_text(encoding="utf-8").splitlines()
    assert len(json.loads(line)["context_ids"]) == len(json.loads(line)["tokens"]) == len(documents)
    (request,) = read_trace(tmp_path / "trace.jsonl")
    assert len(request.blocks) == len({document.page_content for document in documents})
