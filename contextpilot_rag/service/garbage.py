"""Garbage: when Python looks through all its objects for cycles that nobody holds any more.

That takes as long as there are objects: with 10,000 contexts known a third of a second, in which nobody is answered,
and by Python's own rule it comes each time that their number has grown by a quarter. There is next to nothing to be
found: what the index drops is freed at once. So it is done when nobody asks for anything, and else rarely.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable

from ..types import Alignment, Namespace, Usage
from .loop_work import ended

LOOK_SECONDS = 1.0
QUIET_SECONDS = 60.0  # between two collections, where nobody asks for anything
BUSY_SECONDS = 600.0  # where somebody always does: what can pile up in between is closed connections
_NEVER = 1_000_000  # collections of young objects


class Garbage:
    """A part of a service that has its process to itself, and a watcher.

    Args:
        clock: seconds that never run backwards.
        collect: looks through all objects.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, collect: Callable[[], object] = gc.collect) -> None:
        self._clock = clock
        self._collect = collect
        self._before: tuple[int, int, int] | None = None
        self._task: asyncio.Task[None] | None = None
        self._last = clock()
        self._asked = False  # since the last look
        self._used = False  # since the last collection

    async def start(self) -> None:
        """From here on."""
        self._before = gc.get_threshold()
        gc.set_threshold(*self._before[:2], _NEVER)
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """As it was."""
        if self._task is not None:
            await ended(self._task)
        if self._before is not None:
            gc.set_threshold(*self._before)

    def reload(self) -> None:
        """It reads no files."""

    def look(self) -> bool:
        """Collect, if it is time; whether it was."""
        quiet, self._asked = not self._asked, False
        waited = self._clock() - self._last
        if not self._used or waited < (QUIET_SECONDS if quiet else BUSY_SECONDS):
            return False
        self._collect()
        self._last, self._used = self._clock(), False
        return True

    def used(self) -> None:
        """Somebody asks."""
        self._asked = self._used = True

    def aligned(self, tenant: str, alignment: Alignment, engine: str | None, again_tokens: int) -> None:  # noqa: ARG002
        """Somebody asks."""
        self.used()

    def observed(self, tenant: str, alignment: Alignment, engine: str | None, usage: Usage) -> None:  # noqa: ARG002
        """Somebody asks."""
        self.used()

    def forgot(self, tenant: str, namespace: Namespace | None) -> None:  # noqa: ARG002
        """Somebody asks."""
        self.used()

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            self.look()
