"""The ceiling: what no order of a batch can pass.

Every request's cached prefix is at most what its blocks have in common with one request sent before, or with what is
cached from the start; those choices form a tree. So no order saves more than a maximum spanning tree over the requests
weighs, an edge weighing the tokens that two have in common (Prim's algorithm, one row at a time). The ceiling is not
tight: a spanning tree may use another block of the same request on each edge, a prefix may not.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .forest import Blocks


def ceiling_tokens(sets: Sequence[Blocks], weights: Sequence[int], cached: Sequence[int] | None = None) -> int:
    """Tokens that no order can save more of. Takes time in proportion to the square of the number of requests.

    Args:
        sets: the blocks of each request.
        weights: tokens of each block.
        cached: for each request, the most of it that is cached before anything is sent.

    >>> ceiling_tokens([frozenset({0, 1}), frozenset({1, 2}), frozenset({2, 0})], [10, 20, 30])
    50
    """
    if not sets:
        return 0
    holders: list[list[int]] = [[] for _ in weights]
    for position, blocks in enumerate(sets):
        for block in blocks:
            holders[block].append(position)
    members = [np.array(positions, np.intp) for positions in holders]
    # From the engine's cache, as if it were a request that all others may follow.
    reach = np.array(cached if cached is not None else [0] * len(sets), np.float64)
    total = 0.0
    for _ in sets:
        nearest = int(reach.argmax())
        total += reach[nearest]
        reach[nearest] = -np.inf
        shared = np.zeros(len(sets), np.float64)
        for block in sets[nearest]:
            shared[members[block]] += weights[block]
        np.maximum(reach, shared, out=reach, where=reach >= 0)
    return int(total)
