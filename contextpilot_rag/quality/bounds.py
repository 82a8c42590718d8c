"""Bounds of a mean that hold however often one looks at them.

The predictable plug-in empirical Bernstein confidence sequence of Waudby-Smith and Ramdas, "Estimating means of bounded
random variables by betting" (Journal of the Royal Statistical Society B 86(1), 2024, theorem 2). Ordinary intervals are
for one look: who looks after each number, and acts on the first that tells, is wrong far more often than they say.
"""

from __future__ import annotations

from math import inf, log, log1p, sqrt

_MOST = 0.5  # of a weight, as the paper suggests


class Bounds:
    """Bounds of the mean of numbers from 0 to 1. Not thread-safe; takes the same memory for any number of them.

    With a chance of at least ``1 - error``, the mean is below no lower bound that is ever given; likewise for upper
    ones. Where the mean changes from number to number, that goes for the average of all of them so far, as weighted.

    Args:
        error: the chance that a bound of one side is ever wrong.

    >>> bounds = Bounds(0.025)
    >>> bounds.lower, bounds.upper
    (0.0, 1.0)
    >>> for number in [0.0, 1.0] * 500:
    ...     bounds.add(number)
    >>> round(bounds.lower, 2), round(bounds.upper, 2)
    (0.44, 0.56)
    """

    __slots__ = ("_error", "_penalty", "_squares", "_sum", "_weighted", "_weights", "count")

    def __init__(self, error: float) -> None:
        self._error = log(1 / error)
        self.count: int = 0
        self._sum = self._squares = self._weights = self._weighted = self._penalty = 0.0

    def add(self, number: float) -> None:
        """Take in a number from 0 to 1."""
        before = self.count
        expected = (0.5 + self._sum) / (before + 1)  # both from what came before this number, as the proof needs
        variance = (0.25 + self._squares) / (before + 1)
        weight = min(_MOST, sqrt(2 * self._error / (variance * (before + 1) * log1p(before + 1))))
        self._weights += weight
        self._weighted += weight * number
        self._penalty += (number - expected) ** 2 * (-log1p(-weight) - weight)
        self.count += 1
        self._sum += number
        self._squares += (number - (0.5 + self._sum) / (self.count + 1)) ** 2

    @property
    def lower(self) -> float:
        """What the mean is not below."""
        return max(0.0, self._centre - self._width) if self.count else 0.0

    @property
    def upper(self) -> float:
        """What the mean is not above."""
        return min(1.0, self._centre + self._width) if self.count else 1.0

    @property
    def _centre(self) -> float:
        return self._weighted / self._weights

    @property
    def _width(self) -> float:
        return (self._error + self._penalty) / self._weights if self._weights else inf
