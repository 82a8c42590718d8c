"""Health: upstreams that no pilot follows are asked again and again whether they are well."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from ..engines.engine import Engine
from ..engines.facts import healthy
from .upstreams import Upstreams

logger = logging.getLogger("contextpilot_rag")
_PATIENCE_SECONDS = 2.0  # for an answer


class HealthChecks:
    """Asks engines for their /health; what they say is told to the upstreams, and each outage is logged once.

    Clouds are not asked: they have no such path, and nothing is asked of them but what clients ask.

    Args:
        engines: that are asked.
        upstreams: are told.
        seconds: between two questions.
    """

    def __init__(self, engines: Sequence[Engine], upstreams: Upstreams, seconds: float = 5.0) -> None:
        self._engines = engines
        self._upstreams = upstreams
        self._seconds = seconds
        self._unwell: set[str] = set()
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Begin to ask."""
        self._tasks = [asyncio.create_task(self._asked(engine)) for engine in self._engines]

    async def stop(self) -> None:
        """Ask no more."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []

    async def _asked(self, engine: Engine) -> None:
        while True:
            try:
                well = await asyncio.to_thread(healthy, engine, _PATIENCE_SECONDS)
            except Exception:  # noqa: BLE001  whatever an engine answers, it is asked again
                well = False
            self._tell(engine.name, well=well)
            await asyncio.sleep(self._seconds)

    def _tell(self, name: str, *, well: bool) -> None:
        self._upstreams.told(name, well=well)
        if well == (name not in self._unwell):
            return
        if well:
            self._unwell.discard(name)
            logger.info("upstream %s answers again", name)
        else:
            self._unwell.add(name)
            logger.warning("upstream %s does not answer; requests go to others, if there are any", name)
