"""notebooks/tutorial.ipynb: its code runs as it stands there, and what is committed is such a run.

``jupyter execute --inplace notebooks/tutorial.ipynb`` writes it with the outputs of a new run; the
environments of ``make test-integrations`` have jupyter.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("rank_bm25", reason="the notebook's retriever is BM25")
pytest.importorskip("matplotlib", reason="the notebook draws")

NOTEBOOK = Path(__file__).parents[1] / "notebooks" / "tutorial.ipynb"


@pytest.fixture(scope="module")
def cells():
    """The cells that are code."""
    if not NOTEBOOK.exists():
        pytest.skip("the notebook stands in the repository, not in this package")
    book = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    return [cell for cell in book["cells"] if cell["cell_type"] == "code"]


def printed(cells):
    outputs = (output for cell in cells for output in cell["outputs"])
    return "".join("".join(output["text"]) for output in outputs if output["output_type"] == "stream")


def assert_it_pays(text):
    """Replayed and reported by the engine alike: more than the retriever's order has."""
    ratios = dict(re.findall(r"^(\w+) +([\d.]+)% from the cache", text, re.MULTILINE))
    assert float(ratios["balanced"]) >= 1.5 * float(ratios["retrieved"]) > 0
    reported = re.findall(r"^(?:as retrieved|aligned) .* ([\d,]+) cached", text, re.MULTILINE)
    before, after = (int(number.replace(",", "")) for number in reported)
    assert after >= 1.5 * before > 0
    assert "something of ours failed: 0" in text
    assert "as retrieved: a cache would find" in text  # evaluate, what it would ask
    assert 'use ContextPilot(order="retrieved")' in text  # and its advice, as long as nobody can know


def test_it_runs_from_a_clean_process(cells, tmp_path):
    script = "\n\n".join("".join(cell["source"]) for cell in cells)
    environment = {**os.environ, "MPLBACKEND": "agg", "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-W", "ignore", "-"]
    done = subprocess.run(
        command, check=False, input=script, env=environment, cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert_it_pays(done.stdout)  # the documentation is this Python's own, so the numbers may be others


def test_what_is_committed_is_a_run(cells):
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    kinds = {output["output_type"] for cell in cells for output in cell["outputs"]}
    assert kinds == {"stream", "display_data"}
    assert NOTEBOOK.stat().st_size < 200_000
    assert not re.search(r"/(?:tmp|home|root|usr|work)/", printed(cells))
    assert_it_pays(printed(cells))
