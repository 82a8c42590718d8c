"""Recorded traces: what a retriever returned for each request, in the order of sending.

JSON lines (``.gz`` is fine), one request a line::

    {"qid": "q1", "context_ids": ["doc-7", "doc-3"], "question": "...", "conversation": "c1", "turn": 1}

``qid`` names the request and is unique; ``context_ids`` are the retrieved blocks, best first (an id that comes twice
counts once); the rest may be missing and is not needed here. Block lengths, in tokens, are one JSON object
``{"doc-7": 120, ...}``; without it all blocks weigh the same.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from .errors import TraceError
from .types import BlockRef

EQUAL_TOKENS = 100  # the weight of every block where no lengths are given


@dataclass(frozen=True, slots=True)
class TraceRequest:
    """One line of a trace.

    Args:
        qid: names the request.
        blocks: distinct retrieved blocks, best first; keys are the trace's ids.
    """

    qid: str
    blocks: tuple[BlockRef, ...]

    @property
    def tokens(self) -> int:
        """Tokens of all blocks."""
        return sum(block.tokens for block in self.blocks)


class _Line(msgspec.Struct):
    qid: str | int
    context_ids: list[str | int]


def read_trace(path: Path, tokens: Mapping[str, int] | None = None) -> list[TraceRequest]:
    """The requests of a trace file.

    Args:
        path: JSON lines, plain or ``.gz``.
        tokens: length of every block; None: all weigh the same.

    Raises:
        TraceError: the file cannot be read, a line is no request, a qid comes twice, or a block has no length.
    """
    requests: list[TraceRequest] = []
    seen: set[str] = set()
    for number, text in enumerate(text_of(path).splitlines(), start=1):
        if not text.strip():
            continue
        try:
            line = msgspec.json.decode(text, type=_Line)
        except (msgspec.DecodeError, RecursionError) as error:
            raise TraceError(f"{path}, line {number}: {error}") from None
        qid = str(line.qid)
        if qid in seen:
            raise TraceError(f"{path}, line {number}: qid {qid!r} came before")
        seen.add(qid)
        requests.append(TraceRequest(qid, _blocks(map(str, line.context_ids), tokens, f"{path}, line {number}")))
    if not requests:
        raise TraceError(f"{path} holds no request")
    return requests


def read_tokens(path: Path) -> dict[str, int]:
    """Block lengths from a JSON object.

    Raises:
        TraceError: the file cannot be read, or a length is no positive whole number.
    """
    try:
        lengths = msgspec.json.decode(text_of(path), type=dict[str, int])
    except (msgspec.DecodeError, RecursionError) as error:
        raise TraceError(f"{path}: {error}; expected an object of block lengths") from None
    for block, length in lengths.items():
        if length < 1:
            raise TraceError(f"{path}: block {block!r} has length {length}; it must be at least 1")
    return lengths


def write_schedule(path: Path, orders: Iterable[tuple[TraceRequest, Sequence[int]]]) -> None:
    """Write orders, in the order of sending, as JSON lines of qid and context_ids."""
    lines = (
        json.dumps({"qid": request.qid, "context_ids": [request.blocks[rank].key for rank in order]})
        for request, order in orders
    )
    try:
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    except OSError as error:
        raise TraceError(f"cannot write {path}: {error.strerror}") from error


def _blocks(ids: Iterable[str], tokens: Mapping[str, int] | None, where: str) -> tuple[BlockRef, ...]:
    distinct = dict.fromkeys(ids)
    if tokens is None:
        return tuple(BlockRef(block, EQUAL_TOKENS) for block in distinct)
    missing = [block for block in distinct if block not in tokens]
    if missing:
        raise TraceError(f"{where}: no length for block {missing[0]!r}")
    return tuple(BlockRef(block, tokens[block]) for block in distinct)


def text_of(path: Path) -> str:
    """A file's text, plain or ``.gz``.

    Raises:
        TraceError: it cannot be read.
    """
    try:
        data = path.read_bytes()
        return (gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data).decode("utf-8-sig")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise TraceError(f"cannot read {path}: {error}") from error
