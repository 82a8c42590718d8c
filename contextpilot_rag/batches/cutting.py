"""Planned groups, one after another, cut into shards of equal work.

Within a group the requests stand as in a depth-first walk through their prefix tree. A cut parts one path of that tree:
only the first request behind it computes again what it shares with those before it, the tokens of one prompt at most.
Near where the work would be equal there is nearly always a place where whole subtrees meet, and nothing is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from .contexts import Ints

SLACK = 0.02  # how far from equal work a cut may be, as a share of a shard's work


class Piece(NamedTuple):
    """A run of a planned group's requests.

    Args:
        group: its number.
        start: its first request.
        stop: the one after its last.
    """

    group: int
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class GroupWork:
    """What there is to compute for each request of a group, in the order of sending.

    Args:
        tokens: of each request.
        cached: of these, found cached; those that it shares with the request before it.
    """

    tokens: Ints
    cached: Ints


def cut(
    sizes: Sequence[int],
    work: Sequence[int],
    shards: int,
    look: Callable[[int], GroupWork],
    slack: float = SLACK,
) -> list[list[Piece]]:
    """Which requests each shard gets: all, each once, in this order.

    Args:
        sizes: requests of each group.
        work: tokens to compute for each group.
        shards: how many.
        look: gives the work within a group; asked only for groups in which a cut may be.
        slack: how far from equal work a cut may be, as a share of a shard's work.

    >>> few = GroupWork(np.array([9, 9, 9, 9]), np.array([0, 8, 0, 8]))
    >>> cut([4], [20], 2, lambda _: few)
    [[Piece(group=0, start=0, stop=2)], [Piece(group=0, start=2, stop=4)]]
    """
    begins = np.concatenate(([0], np.cumsum(np.asarray(work, np.int64))))
    cuts = [(0, 0)]
    for number in range(1, shards):
        goal = int(begins[-1]) * number / shards
        found = _best_cut(sizes, begins, goal, slack * int(begins[-1]) / shards, look)
        cuts.append(max(found, cuts[-1]))
    cuts.append((len(sizes), 0))
    return [_pieces(sizes, start, stop) for start, stop in pairwise(cuts)]


def _best_cut(
    sizes: Sequence[int], begins: Ints, goal: float, slack: float, look: Callable[[int], GroupWork]
) -> tuple[int, int]:
    """Where to cut, as a group and a request in it: where least is shared, then nearest to the goal."""
    near = np.flatnonzero(np.abs(begins - goal) <= slack)
    if len(near):  # between groups nothing is shared
        group = int(near[np.argmin(np.abs(begins[near] - goal))])
        return group, 0
    group = min(int(np.searchsorted(begins, goal, side="right")) - 1, len(sizes) - 1)
    inside = look(group)
    before = begins[group] + np.concatenate(([0], np.cumsum(inside.tokens - inside.cached)))
    shared = np.append(inside.cached, 0)
    distance = np.abs(before - goal)
    allowed = distance <= max(slack, float(distance.min()))
    order = np.lexsort((distance, np.where(allowed, shared, np.iinfo(np.int64).max)))
    place = int(order[0])
    return (group, place) if place < sizes[group] else (group + 1, 0)


def _pieces(sizes: Sequence[int], start: tuple[int, int], stop: tuple[int, int]) -> list[Piece]:
    """What lies between two cuts."""
    found = []
    for group in range(start[0], min(stop[0] + 1, len(sizes))):
        first = start[1] if group == start[0] else 0
        last = stop[1] if group == stop[0] else sizes[group]
        if first < last:
            found.append(Piece(group, first, last))
    return found
