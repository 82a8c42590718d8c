"""The quickstart in the documentation runs as it stands there."""

from __future__ import annotations

import sys
from pathlib import Path

from contextpilot_rag.testing import FakeEngine
from openai import OpenAI

from measure.table import filled_memory

ROOT = Path(__file__).resolve().parents[3]
sys.path.append(str(ROOT / "scripts"))

from docs_pages import run_python  # noqa: E402


def test_the_quickstart_runs_as_it_stands_there():
    """With the memories of the README's table, and an engine."""
    page = ROOT / "docs" / "quickstart" / "mem0.md"
    with filled_memory() as own, FakeEngine() as engine, OpenAI(base_url=engine.base_url, api_key="none") as client:
        assert run_python(page, {"own": own, "client": client, "model": "none"}) >= 3
