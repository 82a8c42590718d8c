"""Failing open: what broke is counted and said once for each outage, and the request goes out all the same."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Literal

from .errors import ContextPilotError, IndexFailed
from .forking import after_fork

logger = logging.getLogger("contextpilot_rag")

MINUTE = 60.0  # no more than one outage is spoken of in it

Part = Literal["align", "predict", "sent", "observe", "salt", "tree", "cover", "other"]


class Failures:
    """The failures of one pilot. Thread-safe.

    Args:
        raises: they are raised, too, and not logged.
        clock: seconds that never run backwards.

    >>> failures = Failures(raises=False)
    >>> failures.note(OSError("no room"))
    >>> failures.count
    1
    """

    def __init__(self, *, raises: bool, clock: Callable[[], float] = time.monotonic) -> None:
        self._raises = raises
        self._clock = clock
        self._renew_lock()
        after_fork(self, Failures._renew_lock)
        self._outage = Outage()
        self.count: int = 0

    def _renew_lock(self) -> None:
        self._lock = threading.Lock()

    def note(self, error: Exception, part: Part = "other") -> None:
        """Count a failure; the first of an outage is logged.

        Args:
            error: what went wrong.
            part: what the index was asked for; or "other": it was none of the index's.
        """
        with self._lock:
            self.count += 1
            says = self._outage.failed(part, self._clock())
        if says and not self._raises:
            expected = isinstance(error, ContextPilotError)  # its message is enough
            logger.warning(
                "failed open: %s; requests go out all the same (said once for each outage, pilot.failures counts on)",
                error,
                exc_info=None if expected else error,
            )

    def answered(self, part: Part) -> None:
        """The index did what it was asked for; if it is the end of an outage that was logged, so is this."""
        if not self._outage.going_on:
            return
        with self._lock:
            ended = self._outage.answered(part, self._clock())
        if ended is not None and not self._raises:  # a warning, so that whoever saw the first line sees this one
            logger.warning("the index answers again after %s", ended)

    def fail(self, error: Exception, part: Part = "other") -> None:
        """Count a failure, as `note` does.

        Raises:
            IndexFailed: because of it, if failures are raised.
        """
        self.note(error, part)
        if self._raises:
            raise IndexFailed(f"the context index failed: {error}") from error

    def fail_with(self, error: Exception) -> None:
        """Count a failure of something that is built on the pilot.

        Raises:
            ContextPilotError: the error as it is, or `IndexFailed` because of it, if failures are raised.
        """
        if not self._raises or not isinstance(error, ContextPilotError):
            self.fail(error)
            return
        if not isinstance(error, IndexFailed):  # that one was counted where it was raised
            self.note(error)
        raise error


@dataclass(slots=True)
class _Failing:
    """A part of the index that fails.

    Args:
        began: when.
        said: whether it was logged, itself or as something else that broke with it.
        last: when it last failed.
        times: how often it did.
    """

    began: float
    said: bool
    last: float = 0.0
    times: int = 0


class Outage:
    """What fails at present, and of what of it something was said. Not thread-safe.

    An index that is gone fails at all it is asked for, but not at the same moment; and one can fail at a single thing
    and do all else. So each part begins to fail by itself, and those that begin soon after one that was spoken of are
    taken as the same outage. It is over when orders come again, or where they never failed, when that part works.

    What is not the index's never says that it works: a minute without a failure says so. That goes for all but orders,
    which are asked for as often as there are requests.

    >>> outage = Outage()
    >>> outage.failed("align", 0), outage.failed("observe", 1), outage.failed("align", 2)
    (True, False, False)
    >>> outage.answered("align", 12)
    '12 s; 2 requests went out as retrieved'
    """

    def __init__(self) -> None:
        self._failing: dict[Part, _Failing] = {}
        self._next = -inf

    @property
    def going_on(self) -> bool:
        """Whether anything fails."""
        return bool(self._failing)

    def failed(self, part: Part, now: float) -> bool:
        """Note a failure; gives whether it is to be logged."""
        failing = self._failing.get(part)
        if failing is None or (part != "align" and now - failing.last >= MINUTE):
            self._failing.pop(part, None)
            failing = self._failing[part] = _Failing(now, self._known(part, now))
        failing.last = now
        failing.times += 1
        if failing.said or now < self._next:
            return False
        self._next = now + MINUTE
        failing.said = True
        for one in self._with(part):
            one.said = True
        return True

    def answered(self, part: Part, now: float) -> str | None:
        """Note that something worked; gives what is to be logged of the end of an outage, if it was one."""
        ended = self._failing.pop(part, None)
        if ended is None:
            return None
        if part == "align":  # what fails all the same begins anew
            self._failing = {name: one for name, one in self._failing.items() if name == "other"}
        elif "align" in self._failing:
            return None
        if not ended.said:
            return None
        seconds = now - ended.began
        after = f"{seconds:.1f} s" if seconds < 10 and seconds % 1 else f"{seconds:,.0f} s"
        if part != "align":
            return after
        return f"{after}; {ended.times:,} request{'s' * (ended.times != 1)} went out as retrieved"

    def _known(self, part: Part, now: float) -> bool:
        """Whether a part that begins to fail belongs to an outage that was logged."""
        align = self._failing.get("align")
        if align is not None and part != "other":
            return align.said
        return any(one.said and now - one.began < MINUTE for one in self._with(part))

    def _with(self, part: Part) -> list[_Failing]:
        """What may be of one outage with a part: what is the index's, if it is."""
        return [] if part == "other" else [one for name, one in self._failing.items() if name != "other"]
