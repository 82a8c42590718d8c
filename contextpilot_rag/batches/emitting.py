"""Planned requests as rows: what the caller gave for each, and where it stands in the plan."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .cutting import Piece
from .payload import Table, listed
from .planning import PlannedGroup
from .reading import IDS, PLAN_COLUMNS, places


def piece_rows(planned: PlannedGroup, piece: Piece, shard: int, position: int) -> Iterator[dict[str, Any]]:
    """The rows of a piece.

    Args:
        planned: the group that it is of.
        piece: a run of its requests.
        shard: the number of the shard that they go to.
        position: of the first of them there.
    """
    ends = planned.ends.tolist()
    for place, row in enumerate(listed(planned.rows, piece.start, piece.stop), start=piece.start):
        ranks = planned.ranks[ends[place] : ends[place + 1]].tolist()
        if IDS in row and len(row[IDS]) != len(ranks):
            distinct = places(row[IDS])
            ranks = [distinct[rank] for rank in ranks]
        source = int(planned.sources[place])
        # Whatever shares a prefix stands together: behind a cut its first request has all of it, too.
        alone = place == piece.start or source < 0
        yield {
            **row,
            "shard": shard,
            "position": position + place - piece.start,
            "order": ranks,
            "cached_blocks": 0 if alone else int(planned.cached_blocks[place]),
            "predicted_cached_tokens": 0 if alone else int(planned.cached[place]),
            "source": -1 if alone else position + max(source, piece.start) - piece.start,
        }


def piece_table(planned: PlannedGroup, piece: Piece, shard: int, position: int) -> Table:
    """The rows of a piece as a table; see `piece_rows`."""
    import pyarrow

    rows = list(piece_rows(planned, piece, shard, position))
    if isinstance(planned.rows, list):
        return pyarrow.Table.from_pylist(rows)
    table = planned.rows.slice(piece.start, piece.stop - piece.start)
    for name in PLAN_COLUMNS:
        kind = pyarrow.list_(pyarrow.int64()) if name == "order" else pyarrow.int64()
        table = table.append_column(name, pyarrow.array([row[name] for row in rows], kind))
    return table
