"""Paired bootstrap: how sure a difference between two arms is, on the same questions.

Efron and Tibshirani, "An Introduction to the Bootstrap", 1993, percentile interval; the questions are drawn, and what
both arms did with a question stays together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..errors import InputError

DRAWS = 10_000
_AT_ONCE = 2_000_000  # numbers in memory


@dataclass(frozen=True, slots=True)
class Difference:
    """A mean of paired differences.

    Args:
        mean: of all pairs.
        low: lower end of the 95 % interval.
        high: upper end.
        pairs: how many.
        changed: how many of them are not zero.
    """

    mean: float
    low: float
    high: float
    pairs: int
    changed: int

    def __str__(self) -> str:
        return f"{self.mean:+.3f} ({self.low:+.3f} to {self.high:+.3f})"


def paired(ours: Sequence[float], theirs: Sequence[float], *, draws: int = DRAWS, seed: int = 0) -> Difference:
    """The mean of ``ours - theirs`` with its 95 % interval. Equal input gives equal output.

    Args:
        ours: one number a question.
        theirs: of the same questions, in the same order.
        draws: of the bootstrap.
        seed: of its random numbers.

    Raises:
        InputError: no pairs, or of different number.

    >>> paired([1.0, 0.0, 1.0, 1.0], [1.0, 0.0, 0.0, 1.0]).mean
    0.25
    """
    if len(ours) != len(theirs) or not ours:
        raise InputError(f"pairs are needed: {len(ours)} and {len(theirs)} numbers are not")
    difference = np.asarray(ours, dtype=float) - np.asarray(theirs, dtype=float)
    pairs, random = len(difference), np.random.default_rng(seed)
    means: list[np.ndarray] = []
    left, at_once = draws, max(1, _AT_ONCE // pairs)
    while left > 0:
        drawn = random.integers(0, pairs, size=(min(left, at_once), pairs))
        means.append(difference[drawn].mean(axis=1))
        left -= at_once
    low, high = np.percentile(np.concatenate(means), [2.5, 97.5])
    return Difference(float(difference.mean()), float(low), float(high), pairs, int(np.count_nonzero(difference)))
