"""Work of the event loop's own: long work in slices, so that nobody waits for all of it, and tasks that end."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress

_SLICE_SECONDS = 0.001
_LONG_SECONDS = 0.005  # a slice of so long is followed by a rest as long: others need more than one turn for an answer


class Slices:
    """Lets the event loop go on each time a slice is used up.

    Args:
        seconds: of work.
    """

    def __init__(self, seconds: float = _SLICE_SECONDS) -> None:
        self._seconds = seconds
        self._since = time.perf_counter()
        self._took = 0.0

    def resume(self) -> None:
        """What was waited for since the last piece of work is none."""
        self._since = time.perf_counter()

    async def next(self) -> None:
        """Between two pieces of work: others have their turn, if it is time."""
        now = time.perf_counter()
        self._took += now - self._since
        self._since = now
        if self._took > self._seconds:
            await asyncio.sleep(self._took if self._took > _LONG_SECONDS else 0)
            self._took, self._since = 0.0, time.perf_counter()


async def ended(task: asyncio.Task[None]) -> None:
    """Cancel a task of the service's own, and wait for its end."""
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
