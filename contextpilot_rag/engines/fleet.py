"""Fleet: the context index of several engines. It says where a request goes, and in which order of its blocks.

No input or output and no threads of its own: whoever follows the engines tells it what they say.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Literal

from ..errors import SettingsError
from ..forking import after_fork
from ..index.local import LocalIndex
from ..index.tree import PrefixTree
from ..types import Alignment, IndexStats, Namespace, OrderBudget, Request, Usage, short
from .covering import Covering
from .dispatch import Dispatch
from .engine import Engine, EngineFacts, Level, check_apart
from .kv import Cleared, Event, told_block_size
from .lanes import Lane, LaneMirror, Member, expecting, ordered, size_of_pool
from .mirror import Mirror
from .status import EngineStatus, added_up, of_pool

logger = logging.getLogger("contextpilot_rag")


class Fleet:
    """A `ContextIndex` over engines, each with a tree of its own. All methods may be called from many threads at once.

    An engine that is not alive is left out; if none is, all are taken into account, for it may be the question whether
    they are alive that fails. Without engines it is an index like any other, and names none.

    Args:
        engines: to begin with.
        make_index: makes the index of an engine; that of the whole pool, for None.
        routing: "pilot": each engine has a tree, and each request is told where it should go. "external": somebody
            else chooses, so there is one tree for all, where a path is as long as any engine has it.
        clock: seconds that never run backwards.
        make_mirror: makes what remembers the KV blocks of a tree.

    Raises:
        SettingsError: two engines have the same name, or the same address.

    >>> from contextpilot_rag import BlockRef
    >>> fleet = Fleet([Engine("http://a:8000"), Engine("http://b:8000")], lambda engine: LocalIndex())
    >>> one, other = Request((BlockRef("x", 500),)), Request((BlockRef("y", 500),))
    >>> [fleet.align(request).engine for request in (one, other, one)]
    ['a:8000', 'b:8000', 'a:8000']
    """

    answers_at_once = True

    def __init__(
        self,
        engines: Sequence[Engine],
        make_index: Callable[[Engine | None], LocalIndex],
        *,
        routing: Literal["pilot", "external"] = "pilot",
        clock: Callable[[], float] = time.monotonic,
        make_mirror: Callable[[], LaneMirror] = Mirror,
    ) -> None:
        self._make_index = make_index
        self._make_mirror = make_mirror
        self._clock = clock
        self._external = routing == "external"
        self._pool = Lane(make_index(None), make_mirror())
        self._members: dict[str, Member] = {}  # never changed, but replaced: it is read without a lock
        self._dispatch = Dispatch(clock)
        self._said = False  # that a plan begins from nothing
        self._left = IndexStats()  # what was counted by those that are not here any more
        self._lock = threading.Lock()  # for the counts; held for microseconds
        self._changing = threading.Lock()  # for whoever adds, removes or judges engines; no request takes it
        after_fork(self, Fleet._renew)
        for engine in engines:
            self._join(engine, late=False)

    @property
    def chooses(self) -> bool:
        """Whether requests are told where to go."""
        return not self._external

    def align(self, request: Request) -> Alignment:
        """Choose an engine and an order for the request, and take it as sent there."""
        members = self._able()
        if not members:
            return expecting(self._pool.index.align(request), self._living(), self._pool)
        member = self._dispatch.chosen(members, request)
        alignment = replace(member.lane.index.align(request), engine=member.engine.name)
        self._dispatch.take(member, alignment)
        return expecting(alignment, [member], member.lane)

    def predict(self, request: Request) -> int:
        """Tokens of the request that would be cached if it were sent now, where most of it is."""
        lanes = [member.lane for member in self._able()] or [self._pool]
        return max(lane.index.predict(request) for lane in lanes)

    def sent(self, alignment: Alignment) -> None:
        """Take a request as sent in an order that was not chosen here.

        Without an ``engine``, where `align` would have sent it; it is better to ask `route` and say so. What goes to
        another engine than these is nothing to them.
        """
        members = self._able()
        member = self._members.get(alignment.engine or "")
        if not members:
            self._pool.index.sent(alignment)
            return
        if member is None and alignment.engine is not None:
            return
        if member is None:
            request = alignment.request
            blocks = tuple(request.blocks[rank] for rank in alignment.order)
            member = self._dispatch.chosen(members, replace(request, blocks=blocks, budget=OrderBudget("retrieved")))
        member.lane.index.sent(alignment)
        self._dispatch.take(member, alignment)

    def tree(self, namespace: Namespace) -> PrefixTree | None:
        """A copy of what is believed cached for a namespace; None: nothing, or it depends on the engine.

        A plan is sent to one engine, and which one is only said when it is: it begins as if nothing were cached.
        """
        lanes = [member.lane for member in self._able()] or [self._pool]
        if len(lanes) == 1:
            return lanes[0].index.tree(namespace)
        with self._lock:
            said, self._said = self._said, True
        if not said:
            logger.warning(
                "a plan for one of %d engines cannot begin from what is cached, as nobody knows at which; it begins as "
                "if nothing were (said once)",
                len(lanes),
            )
        return None

    def observe(self, alignment: Alignment, usage: Usage) -> None:
        """Learn what the engine reported for a request that was aligned here."""
        member = self._went(alignment, usage)
        self._lane(member).index.observe(alignment, usage)
        if member is None:
            return
        with self._lock:
            member.observed += 1
            member.reported += usage.cached_tokens or 0
            if usage.cached_tokens is not None and alignment.expected_cached_tokens is not None:
                member.reported_of_expected += usage.cached_tokens
                member.expected += alignment.expected_cached_tokens

    def answered(self, alignment: Alignment) -> None:
        """A request was answered, and nothing was reported."""
        self._lane(self._went(alignment)).index.answered(alignment)

    def forget(self, namespace: Namespace | None = None) -> None:
        """Drop what is known of a namespace, or of all."""
        for lane in self._lanes():
            lane.forget(namespace)

    def stats(self) -> IndexStats:
        """Counts since the fleet was made, of all engines; a namespace that several of them know is one."""
        lanes = self._lanes()
        with self._lock:
            left = self._left
        found = added_up([left, *(lane.index.stats() for lane in lanes)])
        return replace(found, namespaces=len({known for lane in lanes for known in lane.index.namespaces()}))

    def add(self, engine: Engine) -> None:
        """An engine joins. It is warmed gradually.

        Raises:
            SettingsError: there is one of this name, or at this address.
        """
        self._join(engine, late=True)

    def remove(self, name: str) -> None:
        """An engine leaves; what was known of it goes. Nothing happens if there is none of this name."""
        with self._changing:
            member = self._members.get(name)
            if member is None:
                return
            self._members = {other: kept for other, kept in self._members.items() if other != name}
            self._dispatch.leave(name)
            if self._external:
                member.lane.drop(name)
                self._resize()
                return
            counted = member.lane.index.stats()
            with self._lock:
                self._left = replace(added_up([self._left, counted]), namespaces=0, tree_blocks=0, tree_tokens=0)

    def engines(self) -> tuple[EngineStatus, ...]:
        """How each engine stands."""
        return tuple(self._status(member) for member in self._members.values())

    def block_size(self, name: str) -> int | None:
        """Tokens of an engine's KV blocks, as far as they are known."""
        member = self._members.get(name)
        return None if member is None else member.block_size

    def matches(self, name: str) -> tuple[int, int]:
        """Of an engine's answered prompts: how many it told of as expected, and how many it never told of."""
        member = self._members.get(name)
        if member is None:
            return 0, 0
        counts = member.lane.counts()
        return counts.matched, counts.mismatched

    def alive(self, name: str, alive: bool, why: str = "") -> None:
        """Whether an engine answers. It may be told again and again.

        One that does not is left out, and what was believed of its cache is dropped; once it is back, it is warmed
        gradually, like one that joins.

        Args:
            name: of the engine.
            alive: whether.
            why: not.
        """
        with self._changing:
            member = self._members.get(name)
            if member is None:
                return
            member.why = "" if alive else why
            if member.alive == alive:
                return
            member.alive = alive
            if alive:
                self._dispatch.join(name, late=True)
            else:
                self._dispatch.away(name)
                member.lane.drop(name)
                member.facts = replace(member.facts, running=None, waiting=None)
                member.told_block_size = None  # another one may come back
            if not self._external or not any(other.alive for other in self._members.values()):
                member.lane.empty()  # also of one that is back: who aligned just then was still counting on it
            self._resize()

    def facts(self, name: str, facts: EngineFacts) -> None:
        """What an engine says of itself."""
        with self._changing:
            member = self._members.get(name)
            if member is not None:
                member.facts = member.facts.updated(facts)
                self._dispatch.told(name, facts.running, facts.waiting)
                self._resize()

    def level(self, name: str, level: Level, why: str = "") -> None:
        """How an engine is followed from now on, and why not by its events."""
        member = self._members.get(name)
        if member is None or (member.level, member.level_why) == (level, why):
            return  # told with each answer, so this is the hot path
        with self._changing:
            member.level, member.level_why = level, why
            self._resize()

    def events(self, name: str, rank: int, events: Sequence[Event]) -> None:
        """An engine told of its cache."""
        member = self._members.get(name)
        if member is not None:
            lane, holder, rest = member.lane, (name, rank), events
            cleared = [place for place, event in enumerate(events, start=1) if type(event) is Cleared]
            if cleared and self._alone(member):
                rest = events[cleared[-1] :]
                lane.clear(lambda mirror: mirror.apply(holder, events[: cleared[-1]]))
            lane.change(lambda mirror: mirror.apply(holder, rest))
            size = told_block_size(events)
            if size not in {None, member.told_block_size}:
                with self._changing:
                    member.told_block_size = size
                    self._resize()
            with self._lock:
                member.events += len(events)
                member.last_event = self._clock()

    def lost(self, name: str, rank: int, why: str) -> None:
        """What was known of a rank's cache is worth nothing any more.

        Args:
            name: of the engine.
            rank: of the engine's.
            why: shown as long as there is nothing else to say.
        """
        member = self._members.get(name)
        if member is not None:
            tell = member.lane.clear if self._alone(member) else member.lane.change
            tell(lambda mirror: mirror.lost((name, rank)))
            with self._lock:
                member.lost += 1
                member.told_block_size = None
                member.why = member.why or (why if not member.alive else "")

    def whole(self, name: str, rank: int) -> None:
        """A rank told all that happened in its cache since its start."""
        member = self._members.get(name)
        if member is not None:
            member.lane.change(lambda mirror: mirror.whole((name, rank)))

    def cover(self, alignment: Alignment, salt: str | None, covering: Covering, cached_tokens: int | None) -> None:
        """Where the blocks of a prompt stand among the KV blocks of the engine that answered it.

        Args:
            alignment: of the prompt.
            salt: its cache salt.
            covering: of its blocks in prompt order.
            cached_tokens: as they were reported.
        """
        member = self._members.get(alignment.engine or "")
        holder = (member.engine.name, 0) if member is not None and member.engine.ranks == 1 else None
        lane = self._pool if self._external or member is None else member.lane
        lane.cover(alignment.request.namespace, salt, ordered(alignment), covering, holder, cached_tokens)

    def failed(self, alignment: Alignment) -> None:
        """A request did not get through: the engine has not computed its prompt, and will not."""
        self._lane(self._went(alignment)).index.failed(alignment)

    def route(self, engine: str | None, tokens: int) -> str | None:
        """Where a conversation goes on: with its engine as long as that lives, else where there is least to do.

        Args:
            engine: its name, as on the last alignment; None: it has none yet.
            tokens: to prefill.

        Returns:
            The engine's name; None: somebody else chooses.
        """
        members = self._able()
        return self._dispatch.route(members, engine, tokens) if members else None

    def _alone(self, member: Member) -> bool:
        """Whether a tree stands for one cache, so that what that loses, it loses."""
        return member.engine.ranks == 1 and (not self._external or len(self._members) == 1)

    def _able(self) -> Sequence[Member]:
        """Those that a request can go to; none where somebody else chooses."""
        return () if self._external else self._living()

    def _living(self) -> Sequence[Member]:
        members = tuple(self._members.values())
        return tuple(member for member in members if member.alive) or members

    def _went(self, alignment: Alignment, usage: Usage | None = None) -> Member | None:
        """A request is on its way no longer: where it went, as far as that is still here."""
        return self._members.get(self._dispatch.done(alignment, usage) or "")

    def _lane(self, member: Member | None) -> Lane:
        return self._pool if member is None else member.lane

    def _join(self, engine: Engine, *, late: bool) -> None:
        with self._changing:
            if engine.name in self._members:
                raise SettingsError(f"there is already an engine called {short(engine.name)}")
            check_apart(engine, [member.engine for member in self._members.values()])
            lane = self._pool if self._external else Lane(self._make_index(engine), self._make_mirror())
            self._dispatch.join(engine.name, late=late)
            self._members = {**self._members, engine.name: Member(engine, lane=lane)}
            self._resize()

    def _resize(self) -> None:
        """Tell the trees how large the caches are. Others that change engines are kept out."""
        if self._external:
            self._pool.resize(*size_of_pool([member for member in self._members.values() if member.alive]))
            return
        for member in self._members.values():
            member.lane.resize(member.capacity_tokens, member.block_size, member.level)

    def _lanes(self) -> list[Lane]:
        return [self._pool, *(member.lane for member in self._members.values() if not self._external)]

    def _status(self, member: Member) -> EngineStatus:
        stats = member.lane.index.stats()
        outstanding = self._dispatch.outstanding(member.engine.name)
        with self._lock:
            status = member.status(stats, outstanding, self._clock())
        return of_pool(status, stats) if self._external else status

    def _renew(self) -> None:
        """In a forked child."""
        self._lock, self._changing = threading.Lock(), threading.Lock()
