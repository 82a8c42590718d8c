"""Residency: what the engines that a service follows have in their caches, and what follows from it for its trees.

Told by threads, each in its own time; what it finds is handed over to the event loop, which owns the trees.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from ..engines.covering import Covering
from ..engines.engine import Engine, EngineFacts, Level
from ..engines.known import Known
from ..engines.kv import Cleared, Event, Stored
from ..engines.lanes import EVENTS_ROOM, size_of_pool
from ..engines.mirror import Changes, Mirror, MirrorCounts
from ..engines.status import EngineStatus
from ..types import Alignment, BlockRef
from .handover import Forgetting, Handover, Space, steps_of


@dataclass(slots=True, eq=False)
class Member(Known):
    """One engine of the service's pool.

    Args:
        lost: how often what it had told was lost.
        last_event: when it told something last.
        told: ranks that told something since they were lost.
        bare: ranks that have nothing in their cache, by what they told.
        caught: ranks whose past is told: what they tell now happens now.
    """

    lost: int = 0
    last_event: float | None = None
    told: set[int] = field(default_factory=set)
    bare: set[int] = field(default_factory=set)
    caught: set[int] = field(default_factory=set)

    @property
    def empty(self) -> bool:
        """Whether it is known to have nothing in its cache."""
        return not self.alive or (bool(self.engine.events) and len(self.bare & self.caught) == self.engine.ranks)


class Residency:
    """The engines of a service: one pool, of which clients or a router choose. A `Followed`; thread-safe.

    A path is cached if any of them has it. What no client has told the place of is believed cached until its engines
    are empty, all of them at once.

    Args:
        engines: all of them.
        handover: takes what follows for the trees.
        clock: seconds that never run backwards.
        capacity_tokens: of a namespace's tree, whatever engines say; None: as they say.
        complete: whether an engine told all that it did since its start.
        mirror: what is in the caches.
    """

    def __init__(
        self,
        engines: Sequence[Engine],
        handover: Handover,
        clock: Callable[[], float],
        capacity_tokens: int | None = None,
        complete: Callable[[str], bool] = lambda _: False,
        mirror: Mirror | None = None,
    ) -> None:
        self.members = {engine.name: Member(engine) for engine in engines}
        self.mirror = Mirror() if mirror is None else mirror
        self._handover = handover
        self._clock = clock
        self._complete = complete
        self._capacity = capacity_tokens
        self._size: tuple[int | None, int | None] = (capacity_tokens, None)
        # Who tells the mirror something hands over what follows from it before the next one does. It may be held as
        # long as the handover is full, so the event loop never takes it.
        self._order = threading.Lock()
        self._sizes = threading.Lock()

    def engines(self) -> tuple[EngineStatus, ...]:
        """Nobody is sent anywhere from here, so there is nothing to be told of that."""
        return ()

    def counts(self) -> MirrorCounts:
        """What is known of caches and prompts. May wait for a moment."""
        return self.mirror.counts()

    def block_size(self, name: str) -> int | None:
        """Tokens of an engine's KV blocks, as far as they are known."""
        member = self.members.get(name)
        return None if member is None else member.block_size

    def matches(self, name: str) -> tuple[int, int]:  # noqa: ARG002  the mirror does not tell them apart
        """Of the prompts that clients told of: how many engines told of as expected, and how many never."""
        counts = self.mirror.counts()
        return counts.matched, counts.mismatched

    def alive(self, name: str, alive: bool, why: str = "") -> None:
        """Whether an engine answers. What one that does not had in its cache is gone."""
        member = self.members[name]
        member.why = "" if alive else why
        if member.alive == alive:
            return
        with self._order:
            member.alive = alive
            member.bare.clear()  # of one that is back, too: it may have been given something by now
            member.told.clear()
            member.caught.clear()  # it is asked to tell its past again
            if not alive:
                self._hand(self.mirror.remove(name), empty=self._all_empty())
                member.facts = replace(member.facts, running=None, waiting=None)
        self._resize()

    def facts(self, name: str, facts: EngineFacts) -> None:
        """What an engine says of itself."""
        self.members[name].facts = self.members[name].facts.updated(facts)
        self._resize()

    def level(self, name: str, level: Level, why: str = "") -> None:
        """How an engine is followed. Told by the event loop, too, so nothing is waited for here."""
        member = self.members[name]
        if (member.level, member.level_why) != (level, why):
            member.level, member.level_why = level, why
            self._resize()

    def events(self, name: str, rank: int, events: Sequence[Event]) -> None:
        """An engine told of its cache."""
        member = self.members[name]
        member.last_event = self._clock()
        with self._order:
            member.told.add(rank)
            for part in _up_to_cleared(events):
                if any(isinstance(event, Stored) for event in part):
                    member.bare.discard(rank)
                changes = self.mirror.apply((name, rank), part)
                self._hand(changes, empty=isinstance(part[-1], Cleared) and self._void(member, rank))

    def whole(self, name: str, rank: int) -> None:
        """A rank told all that happened in its cache since its start."""
        with self._order:
            self.mirror.whole((name, rank))

    def flowing(self, name: str, rank: int) -> None:
        """A rank told its past. What it cleared then may be older than what is believed; what it has now counts."""
        member = self.members[name]
        with self._order:
            if rank in member.caught:
                return
            member.caught.add(rank)
            if rank not in member.told and self._complete(name):
                member.bare.add(rank)  # it never had anything: it began anew while nobody listened
            self._hand(Changes(), empty=rank in member.bare and self._all_empty())

    def lost(self, name: str, rank: int, why: str) -> None:  # noqa: ARG002  it is logged where it is found
        """Nothing is known of a rank's cache any more. Mostly that is because it began anew."""
        member = self.members[name]
        with self._order:
            member.lost += 1
            changes = self.mirror.lost((name, rank))
            told = rank in member.told
            member.told.discard(rank)
            self._hand(changes, empty=told and self._void(member, rank))

    def cover(self, alignment: Alignment, salt: str | None, covering: Covering, cached_tokens: int | None) -> None:
        """Prompts are where clients are: they tell, by `cover_space`."""

    def cover_space(
        self,
        space: Space,
        salt: str | None,
        blocks: Sequence[BlockRef],
        covering: Covering,
        engine: str | None,
        cached_tokens: int | None,
    ) -> None:
        """Where the blocks of an answered prompt stand among the KV blocks, as a client tells.

        Args:
            space: whose tree they are in.
            salt: of the prompt.
            blocks: in prompt order.
            covering: where they stand.
            engine: who answered, as the client calls it; None: it did not say.
            cached_tokens: as the engine reported; None: it did not.
        """
        holder = self._holder(engine)
        with self._order:
            self._hand(self.mirror.cover(space, salt, blocks, covering, holder, cached_tokens))

    def forget(self, forgetting: Forgetting) -> None:
        """Drop where prompts of a namespace, or a pool, stand."""
        with self._order:
            for space in self.mirror.spaces():
                if isinstance(space, tuple) and forgetting.concerns(space):
                    self.mirror.forget(space)
            self._handover.put([forgetting])

    def called(self, engine: str | None) -> str | None:
        """Which engine it is that a client calls so; None: nobody knows."""
        if engine in self.members:
            return engine
        return next(iter(self.members)) if len(self.members) == 1 else None

    def _holder(self, engine: str | None) -> tuple[str, int] | None:
        name = self.called(engine)
        if name is None or self.members[name].engine.ranks > 1 or not self.members[name].engine.events:
            return None
        return name, 0

    def _hand(self, changes: Changes, *, empty: bool = False) -> None:
        self._handover.put(steps_of(changes, empty=empty))

    def _void(self, member: Member, rank: int) -> bool:
        """A rank has nothing any more; gives whether nobody has, and that is new."""
        if rank in member.bare:
            return False
        member.bare.add(rank)
        return self._all_empty()

    def _all_empty(self) -> bool:
        return all(member.empty for member in self.members.values())

    def _resize(self) -> None:
        """Tell the trees how large the caches are. As long as no engine answers, they stay as they are."""
        alive = [member for member in self.members.values() if member.alive]
        if not alive:
            return
        with self._sizes:
            capacity, block, level = size_of_pool(alive)
            if level == "events" and capacity is not None:
                capacity *= EVENTS_ROOM
            size = (self._capacity or capacity, block)
            if size != self._size:
                self._size = size
                self._handover.sized(*size)


def _up_to_cleared(events: Sequence[Event]) -> Iterator[Sequence[Event]]:
    """The events in parts, each of which ends where a cache was cleared, or where they end."""
    begin = 0
    for place, event in enumerate(events):
        if isinstance(event, Cleared):
            yield events[begin : place + 1]
            begin = place + 1
    if begin < len(events):
        yield events[begin:]
