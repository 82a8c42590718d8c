"""The heaviest blocks of very many, in bounded memory.

A Misra-Gries summary (Misra and Gries, 1982) keeps a fixed number of counters. Two of them can be merged without
loss of the bound, in any order and tree (Agarwal, Cormode, Huang, Phillips, Wei, Yi: Mergeable Summaries, PODS 2012):
add the counters up, and take from each what the largest one that there is no room for has.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from .contexts import Hashes, Ints


@dataclass(frozen=True, slots=True)
class Summary:
    """Weights of the heaviest blocks: each block's tokens times the contexts that hold it.

    Args:
        blocks: hashes, ascending.
        weights: at most ``lost`` too small, never too large. A block that is missing weighs at most ``lost``.
        tokens: the length of each; the greatest, where hashes met.
        lost: at most ``total`` over one more than the number of counters.
        total: the weight of all blocks.
    """

    blocks: Hashes
    weights: Ints
    tokens: Ints
    lost: int
    total: int

    @staticmethod
    def of(blocks: Hashes, weights: Ints, tokens: Ints, size: int) -> Summary:
        """A summary of what was counted exactly.

        Args:
            blocks: hashes; one that comes twice counts for both.
            weights: of each, the tokens of all contexts that hold it.
            tokens: the length of each.
            size: the number of counters.

        >>> summary = Summary.of(np.array([7, 9], np.uint64), np.array([20, 5]), np.array([10, 5]), size=1)
        >>> summary.blocks.tolist(), summary.weights.tolist(), summary.lost, summary.total
        ([7], [15], 5, 25)
        """
        return _pruned(blocks, weights, tokens, 0, int(weights.sum()), size)

    @staticmethod
    def merged(parts: Iterable[Summary], size: int) -> Summary:
        """One summary of what several are of, with so many counters."""
        each = list(parts)
        return _pruned(
            np.concatenate([part.blocks for part in each]),
            np.concatenate([part.weights for part in each]),
            np.concatenate([part.tokens for part in each]),
            sum(part.lost for part in each),
            sum(part.total for part in each),
            size,
        )

    def heaviest(self, contexts: int) -> Hashes:
        """The blocks that are worth being shared and tell contexts apart, heaviest first.

        Left out are those that no two contexts are known to hold, and those that all of them may hold.

        Args:
            contexts: how many this is a summary of.
        """
        saved = self.weights - self.tokens
        useful = (saved > 0) & (self.weights + self.lost < self.tokens * contexts)
        order = np.lexsort((self.blocks, -saved))
        return self.blocks[order[useful[order]]]


def _pruned(blocks: Hashes, weights: Ints, tokens: Ints, lost: int, total: int, size: int) -> Summary:
    distinct, which = np.unique(blocks, return_inverse=True)
    sums, longest = np.zeros(len(distinct), np.int64), np.zeros(len(distinct), np.int64)
    np.add.at(sums, which, weights)
    np.maximum.at(longest, which, tokens)
    if len(distinct) > size:
        over = int(np.partition(sums, len(sums) - size - 1)[len(sums) - size - 1])
        kept = sums > over
        distinct, sums, longest, lost = distinct[kept], sums[kept] - over, longest[kept], lost + over
    return Summary(distinct, sums, longest, lost, total)
