"""Ages: what was not used for some time, by a clock that is given."""

from __future__ import annotations

from collections import deque

_STEPS = 64  # that the time to live is told in: what is dropped is late by at most one of them


class Ages:
    """Which counts of uses are older than a time to live. Takes the same small time for each call, whatever is kept.

    Args:
        seconds: the time to live.

    >>> ages = Ages(60)
    >>> ages.note(0, 7)
    >>> ages.note(50, 9)
    >>> ages.expired(55), ages.expired(61), ages.expired(61), ages.expired(200)
    (None, 7, None, 9)
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._noted: deque[tuple[float, int]] = deque()  # the end of each step, and the uses until then; oldest first
        self._began = 0.0  # the last of these

    def note(self, now: float, uses: int) -> None:
        """Take it that there were so many uses until now."""
        if self._noted and now - self._began < self._seconds / _STEPS:
            self._noted.pop()
        else:
            self._began = now
        self._noted.append((now, uses))

    def expired(self, now: float) -> int | None:
        """The count of uses that, like all before it, is too long ago; None: none that was not told before."""
        noted, found = self._noted, None
        while noted and now - noted[0][0] > self._seconds:
            found = noted.popleft()[1]
        return found
