"""Following: engines, followed in threads of their own. No request ever waits for any of this."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from ..forking import after_fork
from ..types import Alignment, Rule, Usage
from .engine import Engine, Level
from .events import EventCounts, EventListener
from .followed import Followed
from .follower import Answered, Follower, FollowerCounts
from .tokenizing import EngineTokenizer, LocalTokenizer, RenewableIds
from .told import Told
from .watching import Watching

PATIENCE = 10.0
CLOSED = "closed: nobody follows it any more"


class Following:
    """Keeps a fleet in step with its engines, until `close`, or until nobody holds it any more.

    Args:
        fleet: is told; a fleet, or whoever else keeps in step with engines.
        tokenizer: an object that makes token ids of messages, such as one of transformers; None: the engines are asked.
        clock: seconds that never run backwards.
        patience: seconds after which silence is spoken of; None: ten.
        elsewhere: the engines' events are listened to elsewhere, and where prompts stand is told there.
    """

    def __init__(
        self,
        fleet: Followed,
        tokenizer: object = None,
        clock: Callable[[], float] = time.monotonic,
        patience: float | None = None,
        *,
        elsewhere: bool = False,
    ) -> None:
        self._fleet = fleet
        self._tokenizer = tokenizer
        self._clock = clock
        self._patience = PATIENCE if patience is None else patience
        self._elsewhere = elsewhere
        self._engines: dict[str, Engine] = {}
        self._local: LocalTokenizer | None = None
        self._clear()
        after_fork(self, Following._in_child)

    def add(self, engine: Engine) -> None:
        """Follow an engine, which the fleet knows."""
        with self._lock:
            self._engines[engine.name] = engine
            self._begin(engine)

    def remove(self, name: str) -> None:
        """Follow it no longer."""
        with self._lock:
            self._engines.pop(name, None)
            self._told.forget(name)
            self._standings.pop(name, None)
            follower = self._followers.pop(name, None)
            listener = self._listener
        if follower is not None:
            follower.stop()
        if listener is not None:
            listener.remove(name)

    def answered(
        self,
        alignment: Alignment,
        messages: Sequence[Mapping[str, Any]] | None,
        salt: str | None,
        usage: Usage | None,
    ) -> None:
        """A request was answered. Returns at once; its tokens are worked out later.

        Args:
            alignment: of the request.
            messages: as they were sent; None: that is not known.
            salt: its cache salt.
            usage: what was reported, or None.
        """
        if self._stale:
            self._begin_again()
        name = alignment.engine or self._anybody()
        self.reported(name, usage)
        follower = self._followers.get(name)
        if follower is not None and alignment.rule is not Rule.CONVERSATION:
            follower.put(Answered(alignment, messages, salt, usage))

    def reported(self, name: str, usage: Usage | None) -> None:
        """An engine answered a request, and reported this of it; None: nothing. Returns at once."""
        watching = self._told.watching.get(name)
        if watching is None:
            return
        watching.answered(usage, self._fleet.block_size(name))
        standing = watching.level, watching.why
        follower = self._followers.get(name)
        if follower is not None and standing != self._standings.get(name):
            self._standings[name] = standing
            follower.say_soon()  # to tell it may take as long as whoever tells of the cache just now

    def failed(self, name: str | None) -> None:
        """A request to an engine failed, None: to any of them; ask at once whether it is there. Returns at once."""
        for follower in [self._followers.get(name)] if name else list(self._followers.values()):
            if follower is not None:
                follower.check_soon()

    def counts(self, name: str) -> FollowerCounts:
        """What was done to find the tokens of an engine's prompts."""
        follower = self._followers.get(name)
        return FollowerCounts() if follower is None else replace(follower.counts)

    def event_counts(self, name: str) -> EventCounts:
        """What came of an engine's events."""
        listener = self._listener
        return EventCounts() if listener is None else listener.counts(name)

    def drained(self, timeout: float = 10.0) -> bool:
        """Wait until all answered prompts and all events that came are taken in; False: that took longer."""
        ends = self._clock() + timeout
        followers = list(self._followers.values())
        listener = self._listener
        if listener is not None and not listener.drained(max(0.0, ends - self._clock())):
            return False
        return all(follower.drained(max(0.0, ends - self._clock())) for follower in followers)

    def close(self) -> None:
        """Follow nobody any more; it can be begun again by `add`."""
        with self._lock:
            followers, listener = list(self._followers.values()), self._listener
            levels = {name: watching.otherwise for name, watching in self._told.watching.items()}
            self._told.end()
            self._engines.clear()
            self._clear()
        for follower in followers:
            follower.stop()
        if listener is not None:
            listener.close()
        for name, level in levels.items():
            self._fleet.level(name, level, CLOSED)

    def _clear(self) -> None:
        self._lock = threading.RLock()
        self._followers: dict[str, Follower] = {}
        self._told = Told(weakref.ref(self._fleet))
        self._standings: dict[str, tuple[Level, str]] = {}  # as the fleet was told, or is about to be
        self._listener: EventListener | None = None
        self._stale = False

    def _in_child(self) -> None:
        """In a forked child no thread is left. They begin again with the first answer: many children never ask."""
        self._clear()
        self._stale = bool(self._engines)

    def _begin_again(self) -> None:
        with self._lock:
            if not self._stale:
                return
            self._stale = False
            for engine in self._engines.values():
                for rank in range(engine.ranks if engine.events else 0):
                    self._fleet.lost(engine.name, rank, "this process was forked")  # a replay tells all of it again
                self._begin(engine)

    def _begin(self, engine: Engine) -> None:
        told = self._told
        told.watching[engine.name] = Watching(engine, self._clock, self._patience, covers=self._elsewhere)
        follower = self._followers[engine.name] = Follower(
            engine, told, self._tokens(engine), partial(told.block_size, engine.name), self._clock, told.wanted
        )
        follower.start()
        if engine.events:
            if self._listener is None:
                self._listener = told.listener = EventListener(told, self._clock, self._patience)
                weakref.finalize(self, self._listener.close)
            self._listener.add(engine)

    def _tokens(self, engine: Engine) -> RenewableIds | None:
        if not (engine.events or self._elsewhere):
            return None
        if self._tokenizer is None:
            return EngineTokenizer(engine)
        if self._local is None:  # one for all engines, which remembers the ids of texts for all of them
            self._local = LocalTokenizer(self._tokenizer)
        return self._local

    def _anybody(self) -> str:
        """Where an external router chooses, any engine's tokenizer will do."""
        followers = self._followers
        return next((name for name, follower in list(followers.items()) if follower.alive), "")
