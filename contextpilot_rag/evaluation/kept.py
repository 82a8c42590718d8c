"""What was measured so far, in a file: an evaluation goes on where it was interrupted."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from ..errors import TraceError
from .words import Outcome

Row = TypeVar("Row")


class Kept:
    """Outcomes by key, added to a file of JSON lines as they come. Thread-safe.

    Args:
        path: the file; it is made if it is not there. None: nothing is kept past this object.

    Raises:
        TraceError: the file cannot be read, or a line is no outcome.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._found: dict[str, Outcome] = {}
        if path is not None:
            self._found = {outcome.key: outcome for outcome in rows_of(path, Outcome)}

    def __len__(self) -> int:
        return len(self._found)

    def get(self, key: str) -> Outcome | None:
        """What was measured for a key."""
        return self._found.get(key)

    def add(self, outcome: Outcome) -> None:
        """Keep an outcome.

        Raises:
            TraceError: the file cannot be written.
        """
        with self._lock:
            self._found[outcome.key] = outcome
            if self._path is not None:
                append(self._path, outcome)


def rows_of(path: Path, kind: type[Row]) -> Iterator[Row]:
    """The rows of a file of JSON lines that `append` wrote; a last line that was being written is taken away.

    Args:
        path: the file; nothing if it is not there.
        kind: of a row.

    Raises:
        TraceError: it cannot be read, or a line is no such row.
    """
    if not path.exists():
        return
    try:
        text = path.read_text(encoding="utf-8")
        lines = text.split("\n")
        if lines.pop():
            path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise TraceError(f"cannot read {path}: {error}") from error
    for number, line in enumerate(lines, start=1):
        try:
            yield msgspec.json.decode(line, type=kind)
        except msgspec.DecodeError as error:
            raise TraceError(f"{path}, line {number}: {error}; it was not written by an evaluation") from None


def append(path: Path, row: Any) -> None:  # noqa: ANN401  any dataclass
    """Add a row to a file.

    Raises:
        TraceError: it cannot be written.
    """
    try:
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(row)) + "\n")
    except OSError as error:
        raise TraceError(f"cannot write {path}: {error}") from error
