"""A recorded trace of any length, line by line."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from ..errors import TraceError


class _Line(msgspec.Struct):
    qid: str | int
    context_ids: list[str | int]


def trace_rows(path: Path) -> Iterator[dict[str, Any]]:
    """The lines of a trace file, plain or ``.gz``, as they are asked for; names may come twice.

    Raises:
        TraceError: the file cannot be read, or a line is no request.
    """
    try:
        with path.open("rb") as file:
            zipped = file.read(2) == b"\x1f\x8b"
        with gzip.open(path) if zipped else path.open("rb") as lines:
            for number, text in enumerate(lines, start=1):
                if text.strip():
                    yield _row(text, f"{path}, line {number}")
    except (OSError, EOFError, zlib.error) as error:
        raise TraceError(f"cannot read {path}: {error}") from error


def _row(text: bytes, where: str) -> dict[str, Any]:
    try:
        line = msgspec.json.decode(text, type=_Line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise TraceError(f"{where}: {error}") from None
    return {"qid": str(line.qid), "context_ids": list(map(str, line.context_ids))}
