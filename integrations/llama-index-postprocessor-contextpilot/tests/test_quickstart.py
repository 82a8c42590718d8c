"""The quickstart in the documentation runs as it stands there."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.path.append(str(ROOT / "scripts"))

from docs_pages import run_python  # noqa: E402


def test_the_quickstart_runs_as_it_stands_there():
    page = ROOT / "docs" / "quickstart" / "llamaindex.md"
    assert run_python(page, {}) >= 2
