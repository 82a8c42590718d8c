"""Which block may stand where: the part of an order budget that the prefix search and the tails have to keep."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush


class PlacementRule:
    """Which block may stand where: the part of an order budget that the search has to keep.

    Both limits can only be kept by a prefix whose every start keeps them, so the search may stop at the first breach.
    A start that keeps them can always be continued: by the rest as retrieved, if by nothing else.
    """

    __slots__ = ("max_displacement", "protect_top")

    def __init__(self, protect_top: int = 0, max_displacement: int | None = None) -> None:
        self.protect_top: int = protect_top
        self.max_displacement: int | None = max_displacement

    def allows(self, rank: int, position: int, placed: int) -> bool:
        """May the block of this rank stand at this position, after the ``placed`` ones (a bit set of ranks)?"""
        if rank != position and min(rank, position) < self.protect_top:
            return False
        if self.max_displacement is None:
            return True
        if abs(rank - position) > self.max_displacement:
            return False
        placed |= 1 << rank
        first_open = (~placed & (placed + 1)).bit_length() - 1  # the best-ranked block that still waits
        return position + 1 - first_open <= self.max_displacement


def fit(prefix: Sequence[int], tail: Sequence[int], rule: PlacementRule | None) -> tuple[int, ...]:
    """A whole order from a prefix that keeps the rule and a tail as it is wanted.

    At each position stands the first of the wanted blocks that may stand there.

    >>> fit([1], [3, 2, 0], PlacementRule(max_displacement=2))
    (1, 3, 0, 2)
    """
    if rule is None:
        return (*prefix, *tail)
    order = list(prefix)
    size = len(prefix) + len(tail)
    reach = size if rule.max_displacement is None else rule.max_displacement
    wanted = dict(zip(tail, range(size), strict=False))  # by rank: where it is wanted, among those that wait
    coming = iter(sorted(wanted))
    near: list[tuple[int, int]] = []  # those that are not too far behind, as wanted; some are placed already
    following, first_open = next(coming, None), 0
    while wanted:
        position = len(order)
        while following is not None and following <= position + reach:
            if following in wanted:
                heappush(near, (wanted[following], following))
            following = next(coming, None)
        while first_open not in wanted:
            first_open += 1
        if position < rule.protect_top:
            rank = position
        elif position - first_open >= reach:  # it has no later place
            rank = first_open
        else:
            while near[0][1] not in wanted:
                heappop(near)
            rank = near[0][1]
        del wanted[rank]
        order.append(rank)
    return tuple(order)


def remaining(size: int, prefix: Sequence[int]) -> list[int]:
    """The positions that a prefix leaves, ascending."""
    placed = set(prefix)
    return [rank for rank in range(size) if rank not in placed]
