"""Shared: decisions that a proxy has in common with others, by the log of a replica.

Whoever shares it answers a conversation's next turn as the one did that answered the turns before.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection

from ..index.records import Forgot
from ..replicas.catching import CatchingUp
from ..replicas.sinks import Carrier
from .decided import decided
from .decision_sink import POOL, DecisionSink, space_of
from .memory import Decision, Memory

logger = logging.getLogger("contextpilot_rag")

READY_SECONDS = 10.0  # a start waits so long for what the log has
CATCH_UP_SECONDS = 0.02  # a request with a history that nobody knows here waits so long


class Shared:
    """Tells a log what a memory is told, and the memory what the log brings. One event loop owns it.

    Nothing waits for the log, but for a request with a history that is not known here: it may have been answered
    elsewhere just now.

    Args:
        memory: of the proxy.
        replica: of this process.
        tenants: those that there are; None: any name is one.
    """

    def __init__(
        self, memory: Memory, replica: Carrier, tenants: Callable[[], Collection[str] | None] = lambda: None
    ) -> None:
        self._memory = memory
        self._replica = replica
        self._sink = DecisionSink(memory, tenants)
        self._catching = CatchingUp(replica, CATCH_UP_SECONDS)

    async def start(self) -> None:
        """Read what the log has, and follow it. Where the log is away, or that takes too long, go on alone for now."""
        self._sink.open()
        self._replica.carry(POOL, self._sink)
        self._memory.teller = self
        await asyncio.to_thread(self._replica.ready, READY_SECONDS)

    def stop(self) -> None:
        """Tell nothing more. The log is followed until its replica ends."""
        self._memory.teller = None

    def told(self, tenant: str, key: bytes, decision: Decision) -> None:
        """As `Teller.told`."""
        record = decided(key, decision)
        if record is None:
            return
        try:
            self._replica.append(space_of(tenant), record)
        except (TypeError, ValueError):  # a name that is none in UTF-8
            logger.debug("a decision was not told to the log", exc_info=True)

    def forget(self, tenant: str) -> None:
        """Forget a tenant's decisions, here at once, and everywhere."""
        space = space_of(tenant)
        self._memory.forget_all(tenant)
        self._sink.bar(space, self._replica.append(space, Forgot()))

    def look_again(self) -> None:
        """There may be other tenants than before: what others told of them is looked for."""
        self._replica.look_again()

    async def catch_up(self, enough: Callable[[], bool]) -> None:
        """Wait for what others told just now, but never long, and not at all where the log is away."""
        await self._catching.until(enough)
