"""Who is told what engines tell of their caches, and the counts of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from .kv import Event


class Sink(Protocol):
    """Is told by an `EventListener`, in its thread: has to be quick. What it raises is logged and goes no further."""

    def events(self, engine: str, rank: int, events: Sequence[Event]) -> None:
        """These happened next."""
        ...

    def lost(self, engine: str, rank: int, why: str) -> None:
        """Nothing that was told of this rank holds any more. What is told from now on is true."""
        ...

    def flowing(self, engine: str, rank: int) -> None:
        """From here on nothing is missing; `EventCounts.complete` says whether since the engine's start."""
        ...

    def broken(self, engine: str, rank: int, why: str) -> None:
        """Something is wrong that somebody has to look at. Once, until it was right again.

        Without replays events still flow, so a replay that is not answered does not end what `flowing` said. Whatever
        else is broken does.
        """
        ...


@dataclass(frozen=True, slots=True)
class EventCounts:
    """What came of an engine's events, over all ranks, since it was added.

    Args:
        batches: messages passed on.
        events: events in them.
        unknown: events left out, as they are not known here.
        gaps: times that messages were missing.
        replays: that were asked for, also to check that nothing is missing.
        lost: times that all that was told was dropped.
        restarts: of the engine, among these.
        duplicates: messages that came twice or late.
        undecodable: messages that are no batch of events.
        other_topics: messages with another topic than the engine's.
        connected: there is a publisher for every rank.
        in_step: nothing is missing, of any rank.
        complete: since the engines' start, of every rank.
        last_seq: the last message passed on, for each rank; -1: there was none yet; None: not known.
    """

    batches: int = 0
    events: int = 0
    unknown: int = 0
    gaps: int = 0
    replays: int = 0
    lost: int = 0
    restarts: int = 0
    duplicates: int = 0
    undecodable: int = 0
    other_topics: int = 0
    connected: bool = False
    in_step: bool = False
    complete: bool = False
    last_seq: tuple[int | None, ...] = ()
