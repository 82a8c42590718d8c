"""Outcomes: how long ago a prefix may have been used and is still found in an engine's cache."""

from __future__ import annotations

import math
from collections import deque

OUTCOMES = 128
ENOUGH = 16  # outcomes before any reach is told from them
ENOUGH_FOUND = 3  # of them hits within it: a row of misses alone tells what is gone, and not what there is room for

# Of what was used longer ago than a miss, so much may have been found for each that was missed, and the miss still
# stands for all of it.
CONTRADICTED = 0.1
# The same beyond a reach; and of all outcomes, so many may be on the wrong side of it, for each on the right one.
BEYOND_REACH = 0.125
MIXED = 0.15

# So improbable a row of misses (or of hits where misses prevail) does not happen by chance: the engine is not what it
# was.
BY_CHANCE = 0.001
SHORTEST_ROW, LONGEST_ROW = 6, 64
# So improbable it may be that as few as beyond a distance are found where all distances are alike, and it is one cache
# that has nothing beyond it.
ALIKE = 0.002


class Outcomes:
    """The latest outcomes of one namespace: believed prefixes that were found cached, and that were not.

    Each has a distance: the tokens of what was used since the prefix was used last. A cache that drops what was used
    longest ago finds all below some distance and nothing above it. Where several engines share the requests, what is
    found and what is not lie mixed, and a miss says little.

    Args:
        size: how many are kept.

    >>> outcomes = Outcomes()
    >>> for distance in (900, 500, 700):
    ...     outcomes.add(distance, hit=True)
    >>> for distance in (1_000, 1_200, 1_500, 2_000):
    ...     outcomes.add(distance, hit=False)
    >>> outcomes.conclusive(800), outcomes.conclusive(1_100)
    (False, True)
    """

    def __init__(self, size: int = OUTCOMES) -> None:
        self._latest: deque[tuple[int, bool]] = deque(maxlen=size)
        self._since_hit = 0  # outcomes, all of them misses
        self._row = 0  # of these, at distances where others were found

    def __len__(self) -> int:
        """How many there are."""
        return len(self._latest)

    def standing(self) -> tuple[list[tuple[int, bool]], int, int]:
        """All of it as plain data."""
        return list(self._latest), self._since_hit, self._row

    def resume(self, latest: list[tuple[int, bool]], since_hit: int, row: int) -> None:
        """Go on from there."""
        self._latest.extend(latest)
        self._since_hit, self._row = since_hit, row

    def add(self, distance: int, *, hit: bool) -> None:
        """Take an outcome into account. After a row of misses that chance does not explain, what was before is void."""
        self._latest.append((distance, hit))
        if hit:
            self._since_hit = self._row = 0
            return
        self._since_hit = min(self._since_hit + 1, len(self._latest))
        self._row += not self._missing(distance)
        if self._row >= SHORTEST_ROW and self._row >= self._longest_by_chance():
            while len(self._latest) > self._since_hit:
                self._latest.popleft()
            self._row = 0

    def _missing(self, distance: int) -> bool:
        """Whether what was used longer ago was missed, too."""
        hits = misses = 0
        for other, hit in self._latest:
            if other >= distance:
                hits += hit
                misses += not hit
        return hits <= CONTRADICTED * max(misses, 1)

    def conclusive(self, distance: int) -> bool:
        """Whether all that was used longer ago than a prefix missed at this distance is gone, too.

        It is if next to nothing is found from here, or from some shorter distance, on, and if that is no chance: where
        one of several engines answers, a miss may come at any distance.
        """
        hits = misses = 0
        found = sum(hit for _, hit in self._latest)
        missed = len(self._latest) - found
        for other, hit in sorted(self._latest, reverse=True):
            hits += hit
            misses += not hit
            if hit or other > distance or hits > CONTRADICTED * misses:
                continue
            share = (found - hits + 1) / (found - hits + missed - misses + 2)
            if _at_most(hits, hits + misses, share) <= ALIKE:
                return True
        return False

    def reach(self) -> int | None:
        """The distance at which misses begin to prevail, where it parts them from the hits; None: none does.

        >>> outcomes = Outcomes()
        >>> for distance in range(100, 3_100, 100):
        ...     outcomes.add(distance, hit=distance < 2_000)
        >>> outcomes.reach()
        2000
        """
        if len(self._latest) < ENOUGH:
            return None
        hits = misses = hits_beyond = misses_beyond = 0
        found = None
        for distance, hit in sorted(self._latest, reverse=True):
            hits += hit
            misses += not hit
            if not hit and hits <= BEYOND_REACH * misses:
                found, hits_beyond, misses_beyond = distance, hits, misses
        if hits - hits_beyond < ENOUGH_FOUND:
            return None
        wrong = hits_beyond + misses - misses_beyond
        return found if wrong <= MIXED * (len(self._latest) - wrong) else None

    def _longest_by_chance(self) -> int:
        """How many misses in a row may come by chance, as often as there were some before these."""
        before = len(self._latest) - self._since_hit
        misses = sum(not hit for _, hit in self._latest) - self._since_hit
        share = (misses + 1) / (before + 2)
        return min(LONGEST_ROW, math.ceil(math.log(BY_CHANCE) / math.log(share)))


def _at_most(hits: int, tried: int, share: float) -> float:
    """How probable it is that at most so many of those tried are hits, where this share is."""
    return sum(math.comb(tried, count) * share**count * (1 - share) ** (tried - count) for count in range(hits + 1))
