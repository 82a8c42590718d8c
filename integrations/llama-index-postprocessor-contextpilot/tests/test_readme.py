"""README: its first example is complete; with an engine at its address, it runs as it stands."""

from __future__ import annotations

import re
from pathlib import Path

from li_support import Embedding, user_text
from llama_index.core import Settings

README = Path(__file__).parent.parent / "README.md"
ADDRESS = "http://localhost:8000/v1"


def test_the_first_example_runs(engine, monkeypatch, capsys):
    (example,) = re.findall(r"^```python\n(.*?)^```$", README.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    texts = re.findall(r'Document\(text="(.*)"\)', example)
    assert len(texts) == 3
    monkeypatch.setattr(Settings, "_embed_model", Embedding([*texts, "How do I borrow a bicycle?"]))
    assert example.count(ADDRESS) == 1
    exec(compile(example.replace(ADDRESS, engine.base_url), str(README), "exec"), {})
    assert capsys.readouterr().out.startswith("FakeEngine")
    content = user_text(engine.requests[0])
    assert all(text in content for text in texts)
    assert content.startswith("<documents>\n[1] ")
    assert content.endswith("\n</documents>\n\nHow do I borrow a bicycle?")
