"""What callers give for each context, carried along: rows as mappings, or a table of Arrow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .contexts import Ints

Row = Mapping[str, Any]
Table = Any  # of pyarrow, which comes with Ray
Payload = list[Row] | Table


def taken(payload: Payload, rows: Ints) -> Payload:
    """Some rows, in this order."""
    if isinstance(payload, list):
        return [payload[row] for row in rows.tolist()]
    return payload.take(rows)


def joined(parts: Sequence[Payload]) -> Payload:
    """All rows of several, which are of one form."""
    if all(isinstance(part, list) for part in parts):
        return [row for part in parts for row in part]
    import pyarrow

    return pyarrow.concat_tables(parts, promote_options="permissive")


def listed(payload: Payload, start: int, stop: int) -> list[Row]:
    """A run of rows, as mappings."""
    if isinstance(payload, list):
        return payload[start:stop]
    rows: list[Row] = payload.slice(start, stop - start).to_pylist()
    return rows
