"""Large batches in pieces: trees that share much go into one piece, and a table of gains fits each.

A piece is halved along the direction in which its sets differ most (the leading singular vector; principal direction
divisive partitioning, Boley 1998), which keeps neighbours together whatever they share. Every second time the pieces
follow the most popular blocks instead: what one division parts, the other may not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from .forest import Blocks

if TYPE_CHECKING:
    from scipy import sparse

_STEPS = 12  # of the power iteration; the direction need not be exact


def by_direction(sets: Sequence[Blocks], weights: Sequence[int], size: int) -> list[list[int]]:
    """Positions of the sets in pieces of at most ``size``, halved where they differ most."""
    from scipy import sparse

    columns = np.fromiter((block for blocks in sets for block in sorted(blocks)), np.int64)
    ends = np.cumsum([0, *map(len, sets)])
    lengths = np.sqrt(np.asarray(weights, np.float64))
    matrix = sparse.csr_matrix((lengths[columns], columns, ends), shape=(len(sets), len(weights)))
    norms = np.sqrt(np.asarray(matrix.multiply(matrix).sum(axis=1)).ravel())
    matrix = sparse.csr_matrix(sparse.diags(1 / np.maximum(norms, 1e-9)) @ matrix)
    start = np.random.default_rng(0).standard_normal(len(weights))
    pieces: list[list[int]] = []
    stack = [np.arange(len(sets))]
    while stack:
        rows = stack.pop()
        if len(rows) <= size:
            pieces.append(rows.tolist())
            continue
        order = np.argsort(_direction(matrix[rows], start), kind="stable")
        half = len(rows) // 2
        stack += (rows[order[half:]], rows[order[:half]])
    return pieces


def by_popularity(sets: Sequence[Blocks], weights: Sequence[int], size: int) -> list[list[int]]:
    """Positions of the sets in pieces of at most ``size``, in the order of their most popular blocks."""
    counts: Counter[int] = Counter()
    for blocks in sets:
        counts.update(blocks)
    by_tokens = sorted(counts, key=lambda block: (-weights[block] * (counts[block] - 1), block))
    place = {block: number for number, block in enumerate(by_tokens)}
    order = sorted(range(len(sets)), key=lambda position: sorted(map(place.__getitem__, sets[position])))
    return [order[start : start + size] for start in range(0, len(order), size)]


def _direction(matrix: sparse.csr_matrix, start: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Each row's coordinate along the leading singular direction of the centred matrix."""
    mean = np.asarray(matrix.mean(axis=0)).ravel()
    transposed = matrix.T.tocsr()
    direction = start
    for _ in range(_STEPS):
        along = matrix @ direction - mean @ direction
        direction = transposed @ along - mean * along.sum()
        direction = direction / max(float(np.linalg.norm(direction)), 1e-12)
    # Rounded, so that rows that are alike stay together in every environment.
    return np.round(matrix @ direction, 6)
