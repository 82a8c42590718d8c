"""Members: which of many sets hold a block, kept so that a set's overlap with all others is one addition of rows.

Blocks that many sets hold have a dense row of weights, rare blocks a list: a row for each rare block would be all
zeros, and memory is what bounds the size of a batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain

import numpy as np
import numpy.typing as npt

from .forest import Blocks

Row = npt.NDArray[np.float32]  # token counts below 2**24 are exact

_CELLS = 2**24  # of the rows, where the table itself is smaller
_RARE = 24  # up to this many members a list is faster than a row

_FEW_ROWS = 640  # up to this many, multiplying all rows with all is faster than adding those that are needed


class Members:
    """Overlaps with up to ``size`` sets, each in a place of its own.

    Args:
        size: places.
        sets: the sets in the first places, for now and to count how often blocks come.
        weights: tokens of each block.
    """

    __slots__ = ("_dense", "_lists", "_places", "_rows", "_weights")

    def __init__(self, size: int, sets: Sequence[Blocks], weights: Sequence[int]) -> None:
        self._weights = weights
        self._places = size
        every = np.fromiter(chain.from_iterable(sets), np.intp)
        places = np.repeat(np.arange(len(sets)), [len(blocks) for blocks in sets])
        blocks, held, counts = np.unique(every, return_inverse=True, return_counts=True)
        # As many rows as keep them within a small multiple of size * size, for the blocks that most sets hold.
        most_rows = max(size, _CELLS // max(1, size))
        dense = np.argsort(-counts, kind="stable")[:most_rows]
        dense = dense[counts[dense] > _RARE]
        row_of = np.full(len(blocks), -1, np.intp)
        row_of[dense] = np.arange(len(dense))
        rows = row_of[held]
        tokens = np.array([weights[block] for block in blocks.tolist()], np.float32)
        self._dense: Row = np.zeros((len(dense), size), np.float32)
        self._dense[rows[rows >= 0], places[rows >= 0]] = tokens[held[rows >= 0]]
        # Views of the rows: adding row by row beats gathering them first.
        self._rows: dict[int, Row] = dict(zip(blocks[dense].tolist(), self._dense, strict=True))
        # A block that only one set holds is shared by nobody now or later.
        rare = (rows < 0) & (counts[held] > 1)
        self._lists: dict[int, list[int]] = {}
        for block, place in zip(every[rare].tolist(), places[rare].tolist(), strict=True):
            self._lists.setdefault(block, []).append(place)

    def add(self, place: int, blocks: Iterable[int]) -> None:
        """Blocks that the set in this place has from now on."""
        for block in blocks:
            row = self._rows.get(block)
            if row is not None:
                row[place] = self._weights[block]
            elif block in self._lists:
                self._lists[block].append(place)

    def remove(self, place: int, blocks: Iterable[int]) -> None:
        """Blocks that the set in this place no longer has."""
        for block in blocks:
            row = self._rows.get(block)
            if row is not None:
                row[place] = 0
            elif block in self._lists:
                self._lists[block].remove(place)

    def table(self, sets: Sequence[Blocks]) -> Row:
        """Tokens that each of the sets in the first places shares with the set in each place."""
        if len(self._dense) > _FEW_ROWS:
            table: Row = np.empty((len(sets), self._places), np.float32)
            for row, blocks in zip(table, sets, strict=True):
                self.overlaps(blocks, row)
            return table
        table = (self._dense[:, : len(sets)] > 0).astype(np.float32).T @ self._dense
        for block, places in self._lists.items():
            weight = self._weights[block]
            for row in map(table.__getitem__, places):
                for place in places:
                    row[place] += weight
        return table

    def keep(self, places: Sequence[int]) -> None:
        """Forget the sets in all places but these, which become the first ones."""
        self._places = len(places)
        self._dense = self._dense[:, places]
        self._rows = dict(zip(self._rows, self._dense, strict=True))
        new = {old: place for place, old in enumerate(places)}
        self._lists = {
            block: [new[place] for place in members if place in new] for block, members in self._lists.items()
        }

    def overlaps(self, blocks: Blocks, out: Row | None = None) -> Row:
        """Tokens that a set shares with the set in each place."""
        if out is None:
            out = np.empty(self._places, np.float32)
        rows = [row for row in map(self._rows.get, blocks) if row is not None]
        if len(rows) > 1:
            np.add(rows[0], rows[1], out)
            for row in rows[2:]:
                np.add(out, row, out)
        elif rows:
            out[:] = rows[0]
        else:
            out.fill(0)
        if len(rows) < len(blocks):
            for block in blocks:
                members = self._lists.get(block)
                if members:
                    weight = self._weights[block]
                    for place in members:
                        out[place] += weight
        return out
