"""Watch: when a long computation has to end, and who wants to know how far it is.

The index reads no clock: whoever has one passes a function that says whether it is late.
"""

from __future__ import annotations

from collections.abc import Callable

Report = Callable[[str, int, int], None]
"""Called with what is being done, how much of it is done, and how much there is at most."""


class Watch:
    """Asked before each step of work.

    Args:
        late: says whether the time is up. None: it never is.
        report: is told about progress. None: nobody is.

    >>> watch = Watch(report=lambda what, done, total: print(what, done, total))
    >>> watch.begin("merging", 2)
    merging 0 2
    >>> watch.late()
    merging 1 2
    False
    """

    def __init__(self, late: Callable[[], bool] | None = None, report: Report | None = None) -> None:
        self._late = late
        self._report = report
        self._what = ""
        self._done = self._total = 0
        self.was_late = False

    @property
    def limited(self) -> bool:
        """Whether there is a time that can be up."""
        return self._late is not None

    def begin(self, what: str, total: int) -> None:
        """A new kind of work begins, of so many steps at most."""
        self._what, self._done, self._total = what, 0, total
        if self._report is not None:
            self._report(what, 0, total)

    def late(self) -> bool:
        """Count a step; whether it may no longer be made. Once late, always late."""
        if self._report is not None:
            self._done = min(self._done + 1, self._total)
            self._report(self._what, self._done, self._total)
        if self._late is not None and not self.was_late:
            self.was_late = self._late()
        return self.was_late
