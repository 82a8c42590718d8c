"""Whose plan or batch is worked on next: tenants take turns, so that one with many holds up no other for long."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager


class Slots:
    """A number of plans, or of something else that takes long, that may be worked on at a time.

    Args:
        most: how many.
    """

    def __init__(self, most: int) -> None:
        self._free = most
        self._waiting: list[tuple[Hashable, asyncio.Future[None]]] = []
        self._busy: Counter[Hashable] = Counter()
        self._served: dict[Hashable, int] = {}  # of tenants that wait: when they had their last turn
        self._turns = 0

    @asynccontextmanager
    async def turn(self, tenant: Hashable) -> AsyncIterator[None]:
        """Wait for a turn, and have it for the block."""
        await self._take(tenant)
        try:
            yield
        finally:
            self._give_back(tenant)

    async def _take(self, tenant: Hashable) -> None:
        if self._free and not self._waiting:
            self._begin(tenant)
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((tenant, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # its turn had just come
                self._give_back(tenant)
            self._waiting = [waiter for waiter in self._waiting if waiter[1] is not turn]
            raise

    def _begin(self, tenant: Hashable) -> None:
        self._free -= 1
        self._busy[tenant] += 1
        self._turns += 1
        self._served[tenant] = self._turns

    def _give_back(self, tenant: Hashable) -> None:
        self._free += 1
        self._busy[tenant] -= 1
        if not self._busy[tenant]:
            del self._busy[tenant]
        self._waiting = [waiter for waiter in self._waiting if not waiter[1].done()]
        waiting = {name for name, _ in self._waiting}
        if self._waiting:
            sooner = min(self._waiting, key=lambda waiter: self._claim(waiter[0]))  # of equals, who came first
            self._waiting.remove(sooner)
            self._begin(sooner[0])
            sooner[1].set_result(None)
        self._served = {name: turn for name, turn in self._served.items() if name in waiting or name in self._busy}

    def _claim(self, tenant: Hashable) -> tuple[int, int]:
        """Less is sooner: who has fewest under way, of these who had the last turn longest ago."""
        return self._busy[tenant], self._served.get(tenant, 0)
