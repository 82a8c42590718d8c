"""Limit: what an engine's cache holds, as outcomes tell, and as is tried again."""

from __future__ import annotations

from .outcomes import Outcomes

# What was used so much longer ago than the learnt reach is still believed, so that a cache that grows is noticed.
ROOM = 1.2
# With each report that does not speak against it, the limit rises by so much: what was learnt in bad times, when others
# used the cache or the engine was not well, ends some hundred reports after them, whether or not anything is believed
# that could be found. A miss takes the limit back to where it was.
PACE = 1.015
FULL = 0.9  # it rises only where the tree has come as near to it
LEAST_PROMPTS = 4  # that it has room for, whatever outcomes tell


class Limit:
    """How many tokens a tree may hold, from what reports have taught alone. Not thread-safe: its owner holds a lock.

    >>> outcomes, limit = Outcomes(), Limit()
    >>> for distance in range(100, 3_100, 100):
    ...     outcomes.add(distance, hit=distance < 2_000)
    >>> limit.tokens(outcomes, prompt=100)
    2400
    >>> limit.held(2_300)
    >>> limit.tokens(outcomes, prompt=100)
    2435
    >>> limit.missed(2_410)
    >>> limit.tokens(outcomes, prompt=100)
    2410
    """

    __slots__ = ("_now", "_tried")

    def __init__(self) -> None:
        self._tried = 0.0
        self._now: float | None = None

    def standing(self) -> tuple[float, float | None]:
        """All of it as plain data."""
        return self._tried, self._now

    def resume(self, tried: float, now: float | None) -> None:
        """Go on from there."""
        self._tried, self._now = tried, now

    def tokens(self, outcomes: Outcomes, prompt: int) -> int | None:
        """The limit now; None: outcomes tell of none.

        Args:
            outcomes: as they are now.
            prompt: tokens that a usual prompt takes.
        """
        reach = outcomes.reach()
        if reach is None:
            self._now, self._tried = None, 0.0
            return None
        self._now = max(ROOM * reach, LEAST_PROMPTS * prompt, self._tried)
        return int(self._now)

    def held(self, tokens: int) -> None:
        """A report came that speaks against nothing, and the tree held so much."""
        if self._now is not None and tokens >= FULL * self._now:
            self._tried = self._now = PACE * self._now

    def missed(self, distance: int) -> None:
        """What was used so long ago, in tokens, is gone."""
        self._tried = min(self._tried, distance)
