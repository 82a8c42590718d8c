"""From a forest of sets to the order of each request.

Inside an edge the order of the blocks costs nothing, so it follows relevance: the blocks' mean rank over all requests
below. A request's own last blocks, which nobody shares, stay as retrieved.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .forest import NONE, Blocks, SetForest

First = Callable[[Blocks], Sequence[int]]
"""For a root's blocks, those that have to come first, in order: what is cached already."""


def lay_out(
    forest: SetForest,
    groups: Sequence[Sequence[int]],
    retrieved: Sequence[Sequence[int]],
    first: First = lambda _: (),
    popularity: Sequence[int] | None = None,
) -> tuple[list[tuple[int, ...]], list[int]]:
    """An order for each request: the edges from the root of its tree to its leaf, one after another.

    Args:
        forest: over the groups of requests.
        groups: for each leaf, the requests that ask for its blocks.
        retrieved: for each request, its blocks as retrieved.
        first: what has to come first.
        popularity: order the roots' edges by it instead, highest first. For a forest that could not be finished: what
            its trees still have in common is then often found all the same.

    Returns:
        The orders, and for each request the root of its tree.

    >>> forest = SetForest([frozenset({0, 1, 2}), frozenset({1, 2, 3})], [1, 1, 1, 1])
    >>> _ = forest.join(0, 1)
    >>> lay_out(forest, [[0], [1]], [(0, 1, 2), (2, 1, 3)])
    ([(1, 2, 0), (1, 2, 3)], [2, 2])
    """
    edges, above = _edges(forest)
    paths: list[list[int]] = []  # for each leaf, the nodes above it that have blocks of their own, root first
    ranks: list[dict[int, int]] = [dict.fromkeys(edge, 0) for edge in edges]  # sums; all blocks of an edge have as many
    for leaf, requests in enumerate(groups):
        path = [leaf]
        while (node := above[path[-1]]) != NONE:
            path.append(node)
        path.reverse()
        paths.append(path)
        for request in requests:
            rank_of = {block: rank for rank, block in enumerate(retrieved[request])}
            for node in path:
                sums = ranks[node]
                for block in sums:
                    sums[block] += rank_of[block]
    arranged: dict[int, tuple[int, ...]] = {}
    orders: list[tuple[int, ...]] = [()] * len(retrieved)
    roots = [NONE] * len(retrieved)
    for path, requests in zip(paths, groups, strict=True):
        order: tuple[int, ...] = ()
        for node in path:
            edge = arranged.get(node)
            if edge is None:
                edge = arranged[node] = _arrange(ranks[node], node == path[0], forest.blocks[node], first, popularity)
            order += edge
        for request in requests:
            orders[request] = order
            roots[request] = path[0]
    return orders, roots


def _edges(forest: SetForest) -> tuple[list[Blocks], list[int]]:
    """For each node, the blocks that its parent lacks, and the nearest node above that has blocks of its own."""
    edges: list[Blocks] = [frozenset()] * len(forest)
    above = [NONE] * len(forest)
    for root in forest.roots():
        for node in forest.nodes_below(root):
            parent = forest.parent[node]
            if parent == NONE:
                edges[node] = forest.blocks[node]
            else:
                edges[node] = forest.blocks[node] - forest.blocks[parent]
                above[node] = parent if edges[parent] else above[parent]
    return edges, above


def _arrange(
    ranks: dict[int, int], is_root: bool, blocks: Blocks, first: First, popularity: Sequence[int] | None
) -> tuple[int, ...]:
    """An edge's blocks by mean rank, or what has to stand before that."""
    if is_root:
        head = tuple(first(blocks))
        if popularity is None:
            rest = sorted(ranks, key=lambda block: (ranks[block], block))
        else:
            rest = sorted(ranks, key=lambda block: (-popularity[block], block))
        return head + tuple(block for block in rest if block not in head)
    return tuple(sorted(ranks, key=lambda block: (ranks[block], block)))
