"""The way between one replica and the log server, which can be cut, healed, slowed down and reset."""

from __future__ import annotations

import asyncio
from typing import Literal

from .relay import Relay


class Link(Relay):
    """A relay with the faults of a network; one for each replica makes partitions.

    A cut is what TCP sees of one: connections stay, what was sent waits and arrives after healing, in order, and so
    does the news that a side has closed. A new connection is accepted, and hangs (in a network it would hang while it
    connects; `Namespaced` shows that), or is refused.
    """

    def cut(self, *, refuse: bool = False) -> None:
        """Let nothing pass in either direction.

        Args:
            refuse: Refuse new connections; otherwise they hang.
        """
        self._do(self._set(to=False, back=False, listening=not refuse))

    def half(self, passing: Literal["requests", "answers"]) -> None:
        """Let one direction pass only."""
        self._do(self._set(to=passing == "requests", back=passing == "answers", listening=True))

    def heal(self) -> None:
        """Let everything pass again, what has waited first."""
        self._do(self._set(to=True, back=True, listening=True))

    def delay(self, seconds: float) -> None:
        """Let everything that comes from now on arrive so much later, in each direction; 0 for no delay."""
        self._later = seconds

    async def _set(self, *, to: bool, back: bool, listening: bool) -> None:
        for way, passes in ((self._to, to), (self._back, back)):
            if passes:
                way.set()
            else:
                way.clear()
        if listening and self._listening is None:
            await self._open()
        if not listening:
            await self._shut()
        await asyncio.sleep(0)
