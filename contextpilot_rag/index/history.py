"""History: which of the recent requests contained which block.

For each block one Python integer is kept as a bit set: bit ``n`` is set if the request in place ``n`` of the window
contained the block. So "the recent requests that contain all of these blocks" is an ``&`` for each block, and "how
many" is ``int.bit_count``: about a tenth of a microsecond each for a window of 2,000.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable

HISTORY_REQUESTS = 2_000


class History:
    """The last ``window`` requests as bit sets. Not thread-safe: its owner holds a lock.

    Places are used in turn, so a new request takes the place of the oldest: each costs time for its own blocks and the
    oldest one's, whatever the window.

    Args:
        window: requests remembered.
        max_blocks: entries kept for them; beyond, the oldest are forgotten sooner, but never the newest.

    >>> history = History(window=2)
    >>> for request in ("ab", "ac", "bc"):
    ...     history.add(request)
    >>> history.count("a"), history.count("c")
    (1, 2)
    >>> (history.bits("b") & history.bits("c")).bit_count()
    1
    """

    __slots__ = ("_bits", "_max_blocks", "_next", "_oldest", "_places", "_window", "entries", "everyone")

    def __init__(self, window: int = HISTORY_REQUESTS, max_blocks: int = 1_000_000) -> None:
        self._window = window
        self._max_blocks = max_blocks
        self._bits: dict[Hashable, int] = {}
        self._places: list[tuple[Hashable, ...]] = []
        self._next = 0
        self._oldest = 0  # the place of the oldest request
        self.everyone = 0  # the set of all remembered requests
        self.entries = 0  # blocks of all remembered requests together

    def add(self, blocks: Iterable[Hashable]) -> None:
        """Remember a request by its distinct block keys; the oldest is forgotten when the window is full."""
        bits = self._bits
        keys = tuple(blocks)
        if len(self) == self._window:
            self._forget_oldest()
        while self.everyone and self.entries + len(keys) > self._max_blocks:
            self._forget_oldest()
        mark = 1 << self._next
        if len(self._places) < self._window:
            self._places.append(keys)
        else:
            self._places[self._next] = keys
        for key in keys:
            bits[key] = bits.get(key, 0) | mark
        self.entries += len(keys)
        self.everyone |= mark
        self._next = (self._next + 1) % self._window

    def bits(self, block: Hashable) -> int:
        """The remembered requests that contain a block."""
        return self._bits.get(block, 0)

    def count(self, block: Hashable) -> int:
        """How many of the remembered requests contain a block."""
        return self._bits.get(block, 0).bit_count()

    @property
    def blocks(self) -> int:
        """How many different blocks the remembered requests contain."""
        return len(self._bits)

    def __len__(self) -> int:
        return self.everyone.bit_count()

    def requests(self) -> list[tuple[Hashable, ...]]:
        """The remembered requests, oldest first."""
        around = self._places[self._oldest :] + self._places[: self._oldest]
        return around[: len(self)]

    def _forget_oldest(self) -> None:
        bits, place = self._bits, self._oldest
        mark = 1 << place
        for key in self._places[place]:
            left = bits[key] ^ mark
            if left:
                bits[key] = left
            else:
                del bits[key]
        self.entries -= len(self._places[place])
        self._places[place] = ()
        self.everyone ^= mark
        self._oldest = (place + 1) % self._window
