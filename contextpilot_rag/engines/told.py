"""Told: what the threads that follow engines tell, and whom: who keeps in step with them, and whoever reads the log."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable, Sequence

from ..types import Alignment
from .covering import Covering
from .engine import EngineFacts
from .events import EventListener
from .followed import Followed
from .kv import Event
from .watching import Uncovered, Watching

logger = logging.getLogger("contextpilot_rag")


class Told:
    """All that is told of the engines of one fleet, or service. It does not keep it alive.

    Args:
        fleet: is told.

    Attributes:
        watching: how well each engine can be followed, by name.
        listener: who listens to their events, if anybody does.
    """

    def __init__(self, fleet: weakref.ref[Followed]) -> None:
        self._fleet: Callable[[], Followed | None] = fleet
        self.watching: dict[str, Watching] = {}
        self.listener: EventListener | None = None
        self._gone: set[str] = set()

    def end(self) -> None:
        """Tell nobody anything any more, whatever threads still find."""
        self._fleet = _nobody
        self.watching = {}
        self.listener = None

    def forget(self, name: str) -> None:
        """An engine is followed no longer."""
        self.watching.pop(name, None)
        self._gone.discard(name)

    def wanted(self) -> bool:
        """Whether there is still somebody to tell."""
        return self._fleet() is not None

    def block_size(self, name: str) -> int | None:
        """Tokens of an engine's KV blocks, as far as they are known."""
        fleet = self._fleet()
        return None if fleet is None else fleet.block_size(name)

    def alive(self, name: str, alive: bool, why: str = "") -> None:
        """Whether an engine answers. Told again and again, so this is also when silence is noticed."""
        fleet = self._fleet()
        if fleet is not None:
            fleet.alive(name, alive, why)
        watching = self.watching.get(name)
        if watching is not None and fleet is not None:
            watching.judged(*fleet.matches(name)) if alive else watching.gone()
            if not alive and name not in self._gone:
                self._gone.add(name)
                logger.warning("engine %s: %s; it is left out until it does (said once for each outage)", name, why)
            elif alive and name in self._gone:
                self._gone.discard(name)
                logger.warning("engine %s: it answers again", name)
                watching.gone()  # what its connection told meanwhile, too
                if self.listener is not None:
                    self.listener.again(name)  # all that it told was dropped: it tells it again
        self.say(name)

    def facts(self, name: str, facts: EngineFacts) -> None:
        """What an engine says of itself."""
        fleet = self._fleet()
        if fleet is not None:
            fleet.facts(name, facts)

    def cover(self, alignment: Alignment, salt: str | None, covering: Covering, cached_tokens: int | None) -> None:
        """Where a prompt's blocks stand among the engine's KV blocks."""
        fleet = self._fleet()
        if fleet is not None:
            fleet.cover(alignment, salt, covering, cached_tokens)

    def covered(self, name: str, why_not: Uncovered | None = None, detail: str = "") -> None:
        """Whether an answered prompt was found among the engine's KV blocks."""
        watching = self.watching.get(name)
        if watching is not None:
            watching.covered(why_not, detail)
            self.say(name)

    def events(self, engine: str, rank: int, events: Sequence[Event]) -> None:
        """An engine told of its cache."""
        fleet = self._fleet()
        if fleet is not None:
            fleet.events(engine, rank, events)
        if engine in self.watching:
            self.watching[engine].event(len(events))

    def lost(self, engine: str, rank: int, why: str) -> None:
        """What was known of a rank's cache is worth nothing any more."""
        fleet = self._fleet()
        if fleet is not None:
            fleet.lost(engine, rank, why)

    def flowing(self, engine: str, rank: int) -> None:
        """A rank's events are complete."""
        fleet, listener = self._fleet(), self.listener
        whole, flowing = getattr(fleet, "whole", None), getattr(fleet, "flowing", None)
        if callable(whole) and listener is not None and listener.complete(engine, rank):
            whole(engine, rank)
        if callable(flowing):  # a fleet asks nothing of the past
            flowing(engine, rank)
        if engine in self.watching:
            self.watching[engine].flowing(rank)
            self.say(engine)

    def broken(self, engine: str, rank: int, why: str) -> None:
        """A rank's events cannot be had, or not understood."""
        if engine in self.watching:
            self.watching[engine].broken(rank, why)
            self.say(engine)

    def say(self, name: str) -> None:
        """Log what is to be said of an engine, and let the fleet know how it is followed."""
        watching, fleet = self.watching.get(name), self._fleet()
        if watching is None or fleet is None:
            return
        fleet.level(name, watching.level, watching.why)
        if name in self._gone:
            return  # that was said, and there is no more to say of it
        said = watching.to_say()
        if said is None:
            return
        complaint, what = said
        rest = "; meanwhile it is followed by usage reports and its capacity (said once for each outage)"
        logger.warning("engine %s: %s%s", name, what, rest if complaint else "")


def _nobody() -> None:
    """There is no fleet."""
