"""Who computes what for whom: shared prefixes of many block sequences at once, as arrays.

Sorted, the sequences stand as in a depth-first walk through their prefix tree: the longest prefix that one shares with
any before it is the one that it shares with its neighbour.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Reuse:
    """For each sequence, by its position in the argument.

    Args:
        blocks: length of the longest prefix that a sequence sent earlier has, too.
        source: the one that is sent first of those that have it; -1 if the prefix is empty.
    """

    blocks: Ints
    source: Ints


class Sequences:
    """Sequences of block numbers, sorted.

    >>> Sequences([(1, 2), (0, 1), (1, 3)]).sending.tolist()
    [1, 0, 2]
    """

    def __init__(self, sequences: Sequence[Sequence[int]]) -> None:
        # Those that are equal keep the order they came in; one that ends where others go on stands before them.
        order = sorted(range(len(sequences)), key=[tuple(sequence) for sequence in sequences].__getitem__)
        self.sending: Ints = np.array(order, np.int64)
        common = [_common(sequences[one], sequences[other]) for one, other in pairwise(order)]
        self.common: Ints = np.array([0, *common][: len(order)], np.int64)
        """For each of the sorted sequences, the length of the prefix that it shares with the one before it."""

    def reuse(self, position: Ints) -> Reuse:
        """What each sequence finds that was sent before it.

        Args:
            position: when each sequence is sent, all different.

        >>> reuse = Sequences([(1, 2), (1, 2), (1, 3)]).reuse(np.array([2, 1, 0]))
        >>> reuse.blocks.tolist(), reuse.source.tolist()
        ([2, 1, 0], [1, 2, -1])
        """
        when = position[self.sending]
        blocks = np.zeros(len(when), np.int64)
        source = np.full(len(when), -1, np.int64)
        for depth in range(1, int(self.common.max(initial=0)) + 1):
            # Neighbours with a common prefix of this length stand in one run; who is sent first computes it.
            starts = np.flatnonzero(self.common < depth)
            runs = np.cumsum(self.common < depth) - 1
            first = np.minimum.reduceat(when, starts)[runs]
            later = first < when
            blocks[later] = depth
            source[later] = first[later]
        sent_at = np.empty(len(when), np.int64)
        sent_at[position] = np.arange(len(when))
        found = np.where(source >= 0, sent_at[source], -1)
        back = np.empty(len(when), np.int64)
        back[self.sending] = np.arange(len(when))
        return Reuse(blocks[back], found[back])


def _common(one: Sequence[int], other: Sequence[int]) -> int:
    """Length of the longest common prefix."""
    length = 0
    for mine, theirs in zip(one, other, strict=False):
        if mine != theirs:
            break
        length += 1
    return length
