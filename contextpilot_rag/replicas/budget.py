"""Budget: how long a call to the log's server may take, and how much may come of it."""

from __future__ import annotations

import time

from ..remote.asks import Deadline

MOST_BYTES = 64 * 2**20  # that one call sends and is given, unless it says otherwise
_SECOND_BYTES = 2 * 2**20  # that a line carries at least; what takes longer than its call may is waited for


class TooMuch(Exception):
    """The server says more than anybody asked for, or than can be taken in."""


class Budget(Deadline):
    """A deadline that is put off as long as much is on its way, and no longer.

    Args:
        seconds: from now; and between what comes, where that is much.
        most: bytes.
    """

    __slots__ = ("_bytes", "_most", "_patience")

    def __init__(self, seconds: float, most: int = MOST_BYTES) -> None:
        super().__init__(seconds)
        self._patience = seconds
        self._most = most
        self._bytes = 0

    def moved(self, size: int) -> None:
        """So many bytes were sent, or came.

        Raises:
            TooMuch: that is more than may be.
        """
        self._bytes += size
        if self._bytes > self._most:
            raise TooMuch
        slow = self.began + self._bytes / _SECOND_BYTES
        self.at = max(self.at, min(time.monotonic(), slow) + self._patience)
