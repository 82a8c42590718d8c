"""Ahead: what this process has sent and its log has not brought back yet.

A tree that follows a log takes each request in where the log has it, so that all who follow it have the same tree.
Until then, a few milliseconds or as long as the log is away, what was sent from here stands here.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from ..types import BlockRef
from .tree import PrefixTree

_STALE = 64  # sequences that came back meanwhile; beyond, and beyond as many as wait, the tree is made anew


class Ahead:
    """Not thread-safe: its owner holds a lock.

    Args:
        capacity_tokens: as the tree beside it has it.
        max_blocks: entries kept, whatever waits.

    >>> ahead = Ahead()
    >>> ahead.add("w-1", [BlockRef("a", 100)])
    >>> "w-1" in ahead, ahead.tree.tokens, ahead.arrived("w-1"), len(ahead)
    (True, 100, True, 0)
    """

    def __init__(self, capacity_tokens: int | None = None, max_blocks: int = 1_000_000) -> None:
        self._limits = (capacity_tokens, max_blocks)
        self._waiting: OrderedDict[str, Sequence[BlockRef]] = OrderedDict()
        self._stale = 0
        self.tree = PrefixTree(*self._limits)

    def __len__(self) -> int:
        return len(self._waiting)

    def __contains__(self, name: str) -> bool:
        return name in self._waiting

    def sequences(self) -> list[Sequence[BlockRef]]:
        """Those that wait, oldest first."""
        return list(self._waiting.values())

    def add(self, name: str, sequence: Sequence[BlockRef]) -> None:
        """A sequence was sent, and told to the log under this name."""
        self._waiting[name] = sequence
        self.tree.insert(sequence)

    def arrived(self, name: str) -> bool:
        """The log brought it back, or never will; whether it waited here."""
        if self._waiting.pop(name, None) is None:
            return False
        self._stale += 1
        if self._stale > _STALE and self._stale > len(self._waiting):
            self._stale = 0
            self.tree = PrefixTree(*self._limits)
            for sequence in self._waiting.values():
                self.tree.insert(sequence)
        return True
