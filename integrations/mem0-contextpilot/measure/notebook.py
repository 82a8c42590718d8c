"""Runs ``notebooks/mem0.ipynb`` from a clean kernel: ``python -m measure.notebook`` writes it with its outputs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

NOTEBOOK = Path(__file__).parents[3] / "notebooks" / "mem0.ipynb"
SECONDS = 60


def executed(path: Path = NOTEBOOK) -> Any:  # noqa: ANN401  a NotebookNode
    """The notebook with the outputs of a run of its own.

    Raises:
        CellExecutionError: a cell failed.
        CellTimeoutError: it took too long.
    """
    import nbformat
    from nbclient import NotebookClient

    book = nbformat.read(path, as_version=4)
    client = NotebookClient(book, timeout=SECONDS, kernel_name="python3", record_timing=False)
    client.execute()
    for cell in book.cells:  # what differs from machine to machine
        cell.metadata.clear()
    book.metadata = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    return book


def main() -> int:
    """Run it and write it."""
    import nbformat

    nbformat.write(executed(), NOTEBOOK)
    return 0


if __name__ == "__main__":
    sys.exit(main())
