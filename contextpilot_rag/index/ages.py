"""Ages: what was not used for some time, by a clock that is given."""

from __future__ import annotations

from collections import deque

_STEPS = 64  # that the time to live is told in: what is dropped is late by at most one of them


class Ages:
    """Which counts of uses are older than a time to live. Takes the same small time for each call, whatever is kept.

    Args:
        seconds: the time to live.

    >>> ages = Ages(60)
    >>> ages.expired(0, 7), ages.expired(50, 9), ages.expired(61, 12), ages.expired(200, 12)
    (None, None, 7, 12)
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._noted: deque[tuple[float, int]] = deque()  # (time, uses until then), oldest first

    def expired(self, now: float, uses: int) -> int | None:
        """The count of uses that, like all before it, is too long ago; None: none that was not told before.

        Args:
            now: the time.
            uses: the count of uses until now.
        """
        noted, found = self._noted, None
        while noted and now - noted[0][0] > self._seconds:
            found = noted.popleft()[1]
        if not noted or now - noted[-1][0] >= self._seconds / _STEPS:
            noted.append((now, uses))
        return found
