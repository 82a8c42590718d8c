"""Catching up: requests that wait, never for long, for what other replicas tell just now."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from .sinks import Carrier

_TOLD_SECONDS = 0.01  # what is told elsewhere is in the log after so long, as long as all is well


class CatchingUp:
    """Waits for the log. One event loop owns it; those who wait at the same time wait together.

    Args:
        replica: of this process.
        seconds: that one waits at most.
    """

    def __init__(self, replica: Carrier, seconds: float) -> None:
        self._replica = replica
        self._seconds = seconds
        self._task: asyncio.Task[bool] | None = None

    async def until(self, enough: Callable[[], bool]) -> None:
        """Wait until that is so, or the time is up. Where the log is away, nobody waits."""
        if self._replica.joined:
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._until(enough), self._seconds)

    async def _until(self, enough: Callable[[], bool]) -> None:
        await self._caught_up()
        while not enough():
            await asyncio.sleep(_TOLD_SECONDS)  # it may have been on its way to the log
            await self._caught_up()

    async def _caught_up(self) -> None:
        if self._task is not None and not self._task.done():
            await asyncio.shield(self._task)  # it began before now, so it may not have seen all
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(asyncio.to_thread(self._replica.catch_up, self._seconds))
        await asyncio.shield(self._task)
