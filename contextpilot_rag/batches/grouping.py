"""From the parts of a batch to groups: each is planned by one planner, and no larger than it should be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from .contexts import Ints


@dataclass(frozen=True, slots=True)
class Grouping:
    """Which group each context goes to.

    Args:
        parts: that have contexts, ascending.
        groups: for each the first group of its own. Parts that are too large have several, one after another.
        size: contexts of a group at most.
        count: groups.
    """

    parts: Ints
    groups: Ints
    size: int
    count: int

    def of(self, parts: Ints, earlier: Mapping[int, int]) -> Ints:
        """The groups of some contexts.

        Args:
            parts: for each context the part that it is in.
            earlier: how many contexts of a part were counted before these; only of parts that are too large.
        """
        place = np.searchsorted(self.parts, parts)
        found = self.groups[place]
        for part, before in earlier.items():
            rows = np.flatnonzero(parts == part)
            found[rows] += (before + np.arange(len(rows))) // self.size
        return found


def grouped(leaves: Sequence[int], sizes: Mapping[int, int], size: int) -> Grouping:
    """Neighbouring parts that fit go into one group, and groups are as equal as parts allow.

    Args:
        leaves: parts, depth first.
        sizes: contexts of each; those without are missing.
        size: contexts of a group at most.

    >>> grouping = grouped([3, 1, 2], {1: 2, 2: 7, 3: 1}, size=3)
    >>> grouping.parts.tolist(), grouping.groups.tolist(), grouping.count
    ([1, 2, 3], [0, 1, 0], 4)
    """
    total = sum(sizes.values())
    equal = -(-total // max(1, -(-total // size)))
    group, held = -1, size
    first: dict[int, int] = {}
    for part in leaves:
        contexts = sizes.get(part, 0)
        if not contexts:
            continue
        if held >= equal or held + contexts > size:
            group, held = group + 1, 0
        first[part] = group
        group += (contexts - 1) // size
        held = held + contexts if contexts <= size else size
    parts = np.array(sorted(first), np.int64)
    groups = np.array([first[part] for part in parts.tolist()], np.int64)
    return Grouping(parts, groups, size, group + 1)
