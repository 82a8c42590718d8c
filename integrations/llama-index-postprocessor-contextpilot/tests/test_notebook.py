"""notebooks/llamaindex.ipynb: runs from a clean kernel, and what is committed is such a run."""

from __future__ import annotations

import re

import pytest

nbformat = pytest.importorskip("nbformat", reason="needs nbclient and ipykernel")
pytest.importorskip("nbclient", reason="needs nbclient and ipykernel")
pytest.importorskip("ipykernel", reason="needs nbclient and ipykernel")

from li_notebook import NOTEBOOK, executed  # noqa: E402

pytestmark = pytest.mark.filterwarnings(
    # pyzmq's and traitlets' own, in the client that starts the kernel
    "ignore::DeprecationWarning",
    "ignore::RuntimeWarning",
)


def printed(book):
    outputs = (output for cell in book.cells for output in cell.get("outputs", ()))
    return "".join(output["text"] for output in outputs if output["output_type"] == "stream")


def cached(book):
    """For each way of asking, the cached tokens that the table names."""
    rows = re.findall(r"^(query|chat), (stock|contextpilot) +([\d,]+) +([\d,]+) ", printed(book), re.MULTILINE)
    return {(kind, way): int(number.replace(",", "")) for kind, way, _, number in rows}


def assert_it_pays(book):
    counts = cached(book)
    assert len(counts) == 4
    for kind in ("query", "chat"):
        assert counts[kind, "contextpilot"] >= 1.5 * counts[kind, "stock"] > 0


@pytest.fixture(scope="module")
def committed():
    if not NOTEBOOK.exists():
        pytest.skip("the notebook stands in the repository, not in this package")
    return nbformat.read(NOTEBOOK, as_version=4)


def test_what_is_committed_is_a_run(committed):
    nbformat.validate(committed)
    cells = [cell for cell in committed.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    assert {output["output_type"] for cell in cells for output in cell.outputs} == {"stream", "display_data"}
    assert NOTEBOOK.stat().st_size < 200_000
    assert not re.search(r"/(?:tmp|home|root|usr|work)/", printed(committed))
    assert_it_pays(committed)


def test_it_runs_from_a_clean_kernel(committed):
    book = executed()
    assert [cell.source for cell in book.cells] == [cell.source for cell in committed.cells]
    assert not any(output["output_type"] == "error" for cell in book.cells for output in cell.get("outputs", ()))
    assert_it_pays(book)  # the documentation is this Python's own, so the numbers may be others
