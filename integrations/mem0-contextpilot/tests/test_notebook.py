"""notebooks/mem0.ipynb: runs from a clean kernel, and what is committed is such a run."""

from __future__ import annotations

import re

import pytest

from measure.notebook import NOTEBOOK, executed

nbformat = pytest.importorskip("nbformat", reason="needs nbclient and ipykernel")


def printed(book):
    outputs = (output for cell in book.cells for output in cell.get("outputs", ()))
    return "".join(output["text"] for output in outputs if output["output_type"] == "stream")


def counted(book):
    """Cached tokens, without and with."""
    found = re.findall(r"^(usual|aligned): ([\d,]+) of ", printed(book), re.MULTILINE)
    return {name: int(number.replace(",", "")) for name, number in found}


@pytest.fixture(scope="module")
def committed():
    if not NOTEBOOK.exists():
        pytest.skip("the notebook stands in the repository, not in this package")
    return nbformat.read(NOTEBOOK, as_version=4)


def test_what_is_committed_is_a_run(committed):
    nbformat.validate(committed)
    cells = [cell for cell in committed.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    kinds = {output["output_type"] for cell in cells for output in cell.outputs}
    assert kinds == {"stream", "display_data"}
    assert NOTEBOOK.stat().st_size < 200_000
    assert not re.search(r"/(?:tmp|home|root|usr|work)/", printed(committed))
    assert counted(committed)["aligned"] >= 2 * counted(committed)["usual"] > 0


def test_it_runs_from_a_clean_kernel(committed):
    book = executed()
    assert [cell.source for cell in book.cells] == [cell.source for cell in committed.cells]
    assert not any(output["output_type"] == "error" for cell in book.cells for output in cell.get("outputs", ()))
    # The documentation is this Python's own, so the numbers may be others.
    assert counted(book)["aligned"] >= 2 * counted(book)["usual"] > 0
