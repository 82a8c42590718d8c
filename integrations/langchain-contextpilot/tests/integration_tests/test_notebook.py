"""notebooks/langchain.ipynb runs from a clean kernel, and shows what it says."""

from __future__ import annotations

import json
import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOK = Path(__file__).parents[4] / "notebooks" / "langchain.ipynb"


def outputs(notebook):
    texts = [output.get("text", "") for cell in notebook.cells for output in cell.get("outputs", ())]
    images = [
        output for cell in notebook.cells for output in cell.get("outputs", ()) if "image/png" in output.get("data", {})
    ]
    return "".join(texts), images


def figures(text):
    """Cached and computed tokens of each row of the table."""
    found = re.findall(r"^(\w+), .*? ([\d,]+) +([\d,]+) +([\d,]+)$", text, re.MULTILINE)
    return [(int(cached.replace(",", "")), int(computed.replace(",", ""))) for _, _, cached, computed in found]


@pytest.mark.skipif(not NOTEBOOK.exists(), reason="the notebooks are not in this distribution")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the machinery that runs notebooks
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_it_runs_from_a_clean_kernel(monkeypatch, tmp_path):
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    monkeypatch.setenv("MPLBACKEND", "module://matplotlib_inline.backend_inline")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    NotebookClient(
        notebook, timeout=60, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    ).execute()
    text, images = outputs(notebook)
    rows = figures(text)
    assert len(rows) == 4
    for without, with_us in (rows[:2], rows[2:]):
        assert with_us[0] >= 2 * without[0]
        assert with_us[1] < without[1]
    assert len(images) == 1


def test_what_is_committed_was_executed_and_is_small():
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    assert all(cell.execution_count for cell in notebook.cells if cell.cell_type == "code")
    text, images = outputs(notebook)
    assert len(figures(text)) == 4
    assert len(images) == 1
    assert NOTEBOOK.stat().st_size < 200_000
    assert "FakeEngine" in json.dumps(notebook)
    assert "/home/" not in json.dumps(notebook)
    assert not any(output.output_type == "error" for cell in notebook.cells for output in cell.get("outputs", ()))
