"""Window: which of several waiting requests goes next.

The one with the longest cached prefix, so that requests that share blocks follow each other while these are still in
the cache; with a bound on how long anyone may be overtaken, in requests and in time.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from ..errors import SettingsError

Item = TypeVar("Item")


@dataclass(slots=True)
class _Waiting(Generic[Item]):
    item: Item
    since: float
    overtaken: int = 0


class Window(Generic[Item]):
    """Waiting requests. Not thread-safe; reads no clock: the time is passed in.

    Args:
        size: how many wait at most before one has to go.
        max_overtaken: a request that has been overtaken this often goes next. None: four times the size.
        max_wait: a request that has waited this long, in the unit of the times passed in, goes next. None: no limit.

    Raises:
        SettingsError: a size below 1, or a negative bound.

    >>> window = Window(size=2)
    >>> window.add("short", now=0.0)
    >>> window.add("a long one", now=0.1)
    >>> window.pop(len, now=0.2), window.pop(len, now=0.3)
    ('a long one', 'short')
    """

    def __init__(self, size: int, max_overtaken: int | None = None, max_wait: float | None = None) -> None:
        counts = (
            type(size) is int
            and size >= 1
            and (max_overtaken is None or (type(max_overtaken) is int and max_overtaken >= 0))
        )
        if not counts or not (max_wait is None or (isinstance(max_wait, int | float) and 0 <= max_wait < math.inf)):
            raise SettingsError(
                f"a window needs a size of 1 or more and no negative bounds, not size={size}, "
                f"max_overtaken={max_overtaken}, max_wait={max_wait}"
            )
        self.size = size
        self.max_overtaken = 4 * size if max_overtaken is None else max_overtaken
        self.max_wait = max_wait
        self._waiting: list[_Waiting[Item]] = []  # oldest first

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def full(self) -> bool:
        """Whether one has to go before another may wait."""
        return len(self._waiting) >= self.size

    def add(self, item: Item, now: float = 0.0) -> None:
        """Let a request wait.

        Args:
            item: the request.
            now: when it came. If others came later and were let in before it, what overtook them overtook it.
        """
        place = len(self._waiting)
        while place and self._waiting[place - 1].since > now:
            place -= 1
        overtaken = self._waiting[place].overtaken if place < len(self._waiting) else 0
        self._waiting.insert(place, _Waiting(item, now, overtaken))

    def discard(self, item: Item) -> None:
        """Let a request go without its turn, if it waits; it was given up, so it overtakes nobody."""
        self._waiting = [waiting for waiting in self._waiting if waiting.item is not item]

    def due_at(self) -> float | None:
        """When the oldest will have waited as long as it may; None if nobody waits or there is no limit."""
        return None if self.max_wait is None or not self._waiting else self._waiting[0].since + self.max_wait

    def pop(self, cached_tokens: Callable[[Item], int], now: float = 0.0) -> Item:
        """The request that goes next.

        Args:
            cached_tokens: how much of a request is cached at present; asked of every waiting request.
            now: the time.

        Raises:
            IndexError: nobody waits.
        """
        if not self._waiting:
            raise IndexError("nobody waits")
        chosen = self._choose(cached_tokens, now)
        for waiting in self._waiting[:chosen]:
            waiting.overtaken += 1
        return self._waiting.pop(chosen).item

    def _choose(self, cached_tokens: Callable[[Item], int], now: float) -> int:
        oldest = self._waiting[0]  # nobody has been overtaken more often, and nobody has waited longer
        if oldest.overtaken >= self.max_overtaken or (
            self.max_wait is not None and now - oldest.since >= self.max_wait
        ):
            return 0
        tokens = [cached_tokens(waiting.item) for waiting in self._waiting]
        return tokens.index(max(tokens))
