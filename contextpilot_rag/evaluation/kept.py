"""What was measured so far, in a file: an evaluation goes on where it was interrupted."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import msgspec

from ..errors import TraceError
from .words import Outcome


class Kept:
    """Outcomes by key, added to a file of JSON lines as they come. Thread-safe.

    Args:
        path: the file; it is made if it is not there. None: nothing is kept past this object.

    Raises:
        TraceError: the file cannot be read, or a line that is not the last is none of ours.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._found: dict[str, Outcome] = {}
        if path is not None and path.exists():
            self._found = {outcome.key: outcome for outcome in _read(path)}

    def __len__(self) -> int:
        return len(self._found)

    def get(self, key: str) -> Outcome | None:
        """What was measured for a key."""
        return self._found.get(key)

    def add(self, outcome: Outcome) -> None:
        """Keep an outcome."""
        with self._lock:
            self._found[outcome.key] = outcome
            if self._path is not None:
                with self._path.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(asdict(outcome)) + "\n")


def _read(path: Path) -> Iterator[Outcome]:
    try:
        text = path.read_text(encoding="utf-8")
        lines = text.splitlines()
        if lines and not text.endswith("\n"):  # it was being written when it was interrupted
            lines.pop()
            path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise TraceError(f"cannot read {path}: {error}") from error
    for number, line in enumerate(lines, start=1):
        try:
            yield msgspec.json.decode(line, type=Outcome)
        except msgspec.DecodeError as error:
            raise TraceError(f"{path}, line {number}: {error}; it is no file of outcomes") from None
