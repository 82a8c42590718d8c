"""Dispatch: where each request of a fleet goes, and what the engines have to do until it is answered."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from ..forking import after_fork
from ..types import Alignment, Request, Usage
from .choice import choose
from .lanes import Member
from .loads import Loads, key_of


class Dispatch:
    """Chooses engines by their trees and their loads. Thread-safe; its lock is held for microseconds.

    Args:
        clock: seconds that never run backwards.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._loads = Loads(clock)
        self._lock = threading.Lock()
        after_fork(self, Dispatch._renew)

    def __len__(self) -> int:
        """Requests that are not reported on yet."""
        return len(self._loads)

    def join(self, engine: str, *, late: bool) -> None:
        """An engine is there, perhaps again; late: it is warmed gradually."""
        with self._lock:
            self._loads.join(engine, late=late)

    def leave(self, engine: str) -> None:
        """An engine is gone for good."""
        with self._lock:
            self._loads.leave(engine)

    def away(self, engine: str) -> None:
        """An engine does not answer at present."""
        with self._lock:
            self._loads.away(engine)

    def told(self, engine: str, running: int | None, waiting: int | None) -> None:
        """An engine said how many requests it works on, and how many wait there."""
        with self._lock:
            self._loads.told(engine, running, waiting)

    def outstanding(self, engine: str) -> int:
        """Tokens that an engine has to prefill, of the blocks of requests that are not reported on yet."""
        with self._lock:
            return self._loads.outstanding(engine)

    def chosen(self, members: Sequence[Member], request: Request) -> Member:
        """Where a request costs least. The trees are searched without the lock.

        Args:
            members: at least one.
            request: that is to be sent.
        """
        if len(members) == 1:
            return members[0]
        with self._lock:
            self._loads.sweep()
            standings = [self._loads.standing(member.engine.name) for member in members]
            usual = self._loads.usual
        tokens = request.tokens

        def uncached(place: int) -> float:
            lane = members[place].lane
            return tokens - lane.index.predict(request) + lane.head_tokens(request)

        return members[choose(standings, tokens, uncached, usual)[0]]

    def take(self, member: Member, alignment: Alignment) -> None:
        """A request goes to an engine, and somebody will report on it."""
        missing = _missing(alignment)
        namespace = alignment.request.namespace
        if namespace.head:
            missing += member.lane.head_tokens(alignment.request)
            member.lane.note_head(namespace)
        with self._lock:
            self._loads.take(member.engine.name, key_of(alignment.request), missing)
            member.requests += 1

    def route(self, members: Sequence[Member], engine: str | None, tokens: int) -> str:
        """A conversation's next turn, or a request that nothing is known of, goes to an engine.

        Args:
            members: at least one.
            engine: where it was so far; where that is none of these, to the one that has least to do.
            tokens: to prefill.
        """
        names = [member.engine.name for member in members]
        with self._lock:
            if engine not in names:
                self._loads.sweep()
                standings = [self._loads.standing(name) for name in names]
                engine = names[choose(standings, tokens, lambda _: tokens, self._loads.usual)[0]]
            self._loads.note(engine, tokens)
            members[names.index(engine)].requests += 1
        return engine

    def done(self, alignment: Alignment, usage: Usage | None = None) -> str | None:
        """A request is on its way no longer.

        Args:
            alignment: of the request.
            usage: what was reported, if it was.

        Returns:
            The engine where it went, as far as that is known.
        """
        cost = None if usage is None else _cost(alignment, usage)
        with self._lock:
            went = self._loads.give_back(key_of(alignment.request), alignment.engine)
            if cost is not None:
                self._loads.cost(cost)
        return alignment.engine or went

    def _renew(self) -> None:
        """In a forked child. The requests that are on their way are the parent's."""
        self._lock = threading.Lock()
        self._loads.clear()


def _missing(alignment: Alignment) -> int:
    return max(0, alignment.request.tokens - alignment.predicted_cached_tokens)


def _cost(alignment: Alignment, usage: Usage) -> int | None:
    """Tokens that a request cost beside its blocks: those of its question, and of the answer; None: not known."""
    if usage.prompt_tokens is None:
        return usage.completion_tokens
    blocks = alignment.request.tokens if usage.cached_tokens is None else _missing(alignment)
    computed = usage.prompt_tokens - (usage.cached_tokens or 0)
    return max(0, computed - blocks) + (usage.completion_tokens or 0)
