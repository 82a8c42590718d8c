"""Effect: how much better or worse alignment makes answers, whatever else changes meanwhile.

Ratings drift: models change, nights differ from days. The means of two arms that are each gathered on their own drift
apart for that alone, since each weighs its ratings by how many it has. So there is one number for each rating, whose
expectation is what alignment does to that very request: the rating, less what was to be expected of it, over the chance
with which a hash put its request into this arm (Horvitz and Thompson, "A generalization of sampling without replacement
from a finite universe", 1952). Where answers are equally good it is 0 at any time of day.
"""

from __future__ import annotations

from ..types import Arm
from .bounds import Bounds


class Effect:
    """Bounds of the mean rating of aligned requests less that of the control. Not thread-safe.

    They hold at every look, as `Bounds` do; where what alignment does changes, of its weighted average so far.

    Args:
        error: the chance that a bound of one side is ever wrong.
        control: the chance of a request that is rated here to be of the control, at most a half.

    >>> effect = Effect(0.025, control=0.5)
    >>> effect.lower, effect.upper
    (-1.0, 1.0)
    >>> for _ in range(300):
    ...     effect.add("aligned", 0.4)
    ...     effect.add("control", 0.6)
    >>> -0.4 < effect.lower < -0.2 < effect.upper < 0
    True
    """

    __slots__ = ("_bounds", "_control", "_count", "_sum")

    def __init__(self, error: float, control: float) -> None:
        self._bounds = Bounds(error)
        self._control = control
        self._count = 0
        self._sum = 0.0

    def add(self, arm: Arm, score: float) -> None:
        """Take in a rating from 0 to 1."""
        expected = (0.5 + self._sum) / (self._count + 1)  # from what came before, so that it cannot favour an arm
        more = score - expected
        # What this rating says of the effect, by the smaller chance, so that it is between -1 and 1.
        says = -more if arm == "control" else more * self._control / (1 - self._control)
        self._bounds.add((1 + says) / 2)
        self._count += 1
        self._sum += score

    @property
    def lower(self) -> float:
        """What the effect is not below."""
        return max(-1.0, self._scaled(self._bounds.lower))

    @property
    def upper(self) -> float:
        """What the effect is not above."""
        return min(1.0, self._scaled(self._bounds.upper))

    def _scaled(self, bound: float) -> float:
        return (2 * bound - 1) / self._control
