"""What was measured so far, in a file: an evaluation goes on where it was interrupted."""

from __future__ import annotations

import contextlib
import errno
import io
import json
import os
import threading
from collections.abc import Iterator
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, TypeVar, cast

import msgspec

from ..errors import TraceError
from .words import Outcome

Row = TypeVar("Row")

_PIECE = 65_536  # bytes that are read at a time, from the end


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
    """The rows of a file of JSON lines that `append` wrote, but for a last line that was cut short.

    Args:
        path: the file; nothing if it is not there.
        kind: of a row.

    Raises:
        TraceError: it cannot be read, or a line is no such row.
    """
    if not path.exists():
        return
    try:
        *lines, last = path.read_bytes().split(b"\n")
    except OSError as error:
        raise TraceError(f"cannot read {path}: {error}") from error
    begins = f'{{"{fields(cast("Any", kind))[0].name}": '.encode()
    if last and not (last.startswith(begins[: len(last)]) and _is_cut(last)):
        lines.append(last)
    for number, line in enumerate(lines, start=1):
        try:
            yield msgspec.convert(json.loads(line), type=kind)
        except (msgspec.ValidationError, ValueError, RecursionError) as error:
            raise TraceError(f"{path}, line {number}: {error}; it was not written by an evaluation") from None


def append(path: Path, row: Any) -> None:  # noqa: ANN401  any dataclass
    """Add a row to a file, in whose place a last line goes that was cut short. Other processes may do so, too.

    Raises:
        TraceError: it cannot be written.
    """
    line = json.dumps(asdict(row)).encode() + b"\n"
    try:
        with path.open("ab+", buffering=0) as file:
            _locked(file)
            begins, last = _last_line(file)
            if last and _is_cut(last):
                file.truncate(begins)
            elif last:
                line = b"\n" + line
            if file.write(line) != len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))  # noqa: TRY301  as for the others
    except OSError as error:
        raise TraceError(f"cannot write {path}: {error}") from error


def _is_cut(line: bytes) -> bool:
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return True
    return False


def _last_line(file: io.RawIOBase) -> tuple[int, bytes]:
    """What follows the last line's end, and where that begins."""
    end, last = file.seek(0, os.SEEK_END), b""
    while end and b"\n" not in last:
        begin = max(0, end - _PIECE)
        file.seek(begin)
        last, end = (file.read(end - begin) or b"") + last, begin
    return end + last.rfind(b"\n") + 1, last[last.rfind(b"\n") + 1 :]


def _locked(file: io.RawIOBase) -> None:
    """Keep others from writing, where the system can do so, until the file is closed."""
    if os.name != "posix":
        return
    import fcntl

    with contextlib.suppress(OSError):  # a file system that knows no locks
        fcntl.flock(file, fcntl.LOCK_EX)
