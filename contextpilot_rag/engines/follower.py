"""Follower: what is asked of one engine beside the requests: is it there, how large is it, what are a prompt's tokens.

All of it happens in two threads of the engine's own, so that one that hangs keeps nobody waiting but itself, and that
token ids that do not come keep nobody from noticing that it is gone.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from ..errors import EngineError
from ..types import Alignment, Usage
from .boundaries import covering_of
from .covering import Covering
from .engine import Engine, EngineFacts
from .facts import ailment, asking, read_facts
from .tokenizing import RenewableIds
from .watching import Uncovered

logger = logging.getLogger("contextpilot_rag")

MOST_WAITING = 1_000  # answered prompts whose tokens are not worked out yet; of more the oldest go
CHECK_SECONDS = 5.0
SOON = 0.5  # after a first failure, to be sure
FACTS_EVERY = 4  # checks


@dataclass(frozen=True, slots=True)
class Answered:
    """A prompt that an engine has answered, so that it is in its cache.

    Args:
        alignment: of its blocks.
        messages: as they were sent; None: they are not known.
        salt: its cache salt.
        usage: what was reported, or None.
    """

    alignment: Alignment
    messages: Sequence[Mapping[str, Any]] | None
    salt: str | None
    usage: Usage | None


class Told(Protocol):
    """Who is told of an engine."""

    def alive(self, name: str, alive: bool, why: str = "") -> None:
        """Whether it answers."""
        ...

    def facts(self, name: str, facts: EngineFacts) -> None:
        """What it says of itself."""
        ...

    def cover(self, alignment: Alignment, salt: str | None, covering: Covering, cached_tokens: int | None) -> None:
        """Where a prompt's blocks stand among the engine's KV blocks."""
        ...

    def say(self, name: str) -> None:
        """How it is followed may have changed."""
        ...

    def covered(self, name: str, why_not: Uncovered | None = None, detail: str = "") -> None:
        """Whether a prompt could be covered, and why not."""
        ...


@dataclass(slots=True)
class FollowerCounts:
    """What a follower did.

    Args:
        covered: prompts whose blocks were found among the engine's KV blocks.
        unlike: prompts that had another number of tokens than the engine reported.
        unread: prompts whose blocks were not found in their tokens.
        dropped: prompts that waited too long, or came while the engine was gone.
        failed: questions about tokens that the engine did not answer.
        size: prompts that came while the size of the KV blocks was not known.
        messages: prompts whose messages nobody told.
    """

    covered: int = 0
    unlike: int = 0
    unread: int = 0
    dropped: int = 0
    failed: int = 0
    size: int = 0
    messages: int = 0

    @property
    def uncovered(self) -> int:
        """Prompts of which it is not known where they stand, for any reason."""
        return self.unlike + self.unread + self.dropped + self.failed + self.size + self.messages


class Follower:
    """Follows one engine in daemon threads, from `start` to `stop`.

    Args:
        engine: which.
        told: is told what was found, in the follower's threads.
        tokens: gives token ids; None: nothing is covered.
        block_size: tokens of the engine's KV blocks, as far as they are known.
        clock: seconds that never run backwards.
        wanted: asked now and then; once it says no, the threads end.
    """

    def __init__(
        self,
        engine: Engine,
        told: Told,
        tokens: RenewableIds | None,
        block_size: Callable[[], int | None],
        clock: Callable[[], float],
        wanted: Callable[[], bool] = lambda: True,
    ) -> None:
        self.engine = engine
        self.counts = FollowerCounts()
        self.kind = "unknown"
        self._told = told
        self._tokens = tokens
        self._block_size = block_size
        self._clock = clock
        self._wanted = wanted
        self._waiting: deque[Answered] = deque()
        self._changed = threading.Condition()
        self._stopped = False
        self._busy = False
        self._lost = 0  # those that waited too long, of which nobody was told yet
        self._alive = True
        self._failures = self._checks = 0
        self._checked = clock()
        self._to_say = False
        self._hurry = threading.Event()  # also set when it is over
        self._said = False
        self._asking = asking(engine)
        self._was: tuple[object, ...] = (None, None, None)  # which engine it is, as it said last
        name = f"contextpilot {engine.name}"
        self._threads = (
            threading.Thread(target=self._watch, name=name, daemon=True),
            threading.Thread(target=self._work, name=f"{name} prompts", daemon=True),
        )

    def start(self) -> None:
        """Begin."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End; what waits is let go. The threads end by themselves, when the engine has answered what it was asked."""
        with self._changed:
            self._stopped = True
            self._waiting.clear()
            self._changed.notify_all()
        self._hurry.set()

    def put(self, answered: Answered) -> None:
        """Have a prompt's tokens worked out. Returns at once."""
        if self._tokens is None:
            return
        with self._changed:
            if self._stopped:
                return
            self._waiting.append(answered)
            if len(self._waiting) > MOST_WAITING:
                self._waiting.popleft()
                self.counts.dropped += 1
                self._lost += 1
            self._changed.notify_all()

    @property
    def alive(self) -> bool:
        """Whether the engine answers, as far as is known."""
        return self._alive

    def say_soon(self) -> None:
        """Have it told how the engine is followed. Returns at once."""
        with self._changed:
            self._to_say = True
            self._changed.notify_all()

    def check_soon(self) -> None:
        """Ask at once whether it is there; a request to it failed. Returns at once."""
        self._hurry.set()

    def drained(self, timeout: float) -> bool:
        """Wait until nothing waits here; whether that came to be in so many seconds."""
        with self._changed:
            return self._changed.wait_for(
                lambda: self._stopped or not (self._waiting or self._busy or self._to_say), timeout
            )

    def _watch(self) -> None:
        check_at = self._clock()
        while self._wanted() and not self._stopped:
            now = self._clock()
            if self._hurry.is_set():
                self._hurry.clear()
                check_at = min(check_at, self._checked + SOON)
            if now >= check_at:
                check_at = now + self._guarded(self._check, CHECK_SECONDS)
                self._checked = self._clock()
            if not self._stopped:
                self._hurry.wait(max(0.0, check_at - self._clock()))

    def _work(self) -> None:
        while self._wanted():
            with self._changed:
                if not (self._waiting or self._stopped or self._to_say):
                    self._changed.wait(CHECK_SECONDS)
                if self._stopped:
                    return
                answered = self._waiting.popleft() if self._waiting else None
                say, self._to_say = self._to_say, False
                self._busy = say or answered is not None
            if say:
                self._guarded(partial(self._told.say, self.engine.name), None)
            if answered is not None:
                self._guarded(partial(self._cover, answered), None)
            if self._busy:
                with self._changed:
                    self._busy = False
                    self._changed.notify_all()

    def _guarded(self, step: Callable[[], Any], otherwise: Any) -> Any:  # noqa: ANN401
        """Whatever happens, the thread goes on; what an engine sends must not end it."""
        try:
            return step()
        except Exception as error:
            if not self._said:
                self._said = True
                logger.warning("engine %s: following it failed: %s", self.engine.name, error, exc_info=error)
            return otherwise

    def _check(self) -> float:
        """Ask whether it is there; gives the seconds until the next time."""
        ails = ailment(self.engine, http=self._asking)
        if ails:
            self._failures += 1
            if self._failures == 2 or (self._failures > 2 and self._alive):
                self._alive = False
                self._forget()  # whoever comes back may be another one
                self._told.alive(self.engine.name, False, f"it does not answer: {ails}")
            return SOON if self._failures < 2 else CHECK_SECONDS / 2
        back = not self._alive
        self._failures, self._alive = 0, True
        self._told.alive(self.engine.name, True)
        if back or self._checks % FACTS_EVERY == 0:
            facts = read_facts(self.engine, http=self._asking)
            said = None if facts.kind == "unknown" else facts.kind, facts.model, facts.block_size
            if any(None not in pair and pair[0] != pair[1] for pair in zip(said, self._was, strict=True)):
                self._forget()  # it began anew as another one, and was not missed
            self._was = tuple(was if now is None else now for now, was in zip(said, self._was, strict=True))
            self.kind = facts.kind
            self._told.facts(self.engine.name, facts)
        self._checks = 1 if back else self._checks + 1
        return CHECK_SECONDS

    def _forget(self) -> None:
        if self._tokens is not None:
            self._tokens.forget()

    def _cover(self, answered: Answered) -> None:
        with self._changed:
            lost, self._lost = self._lost, 0
        for _ in range(lost):
            self._told.covered(self.engine.name, "dropped")
        if not self._alive:
            with self._changed:
                self.counts.dropped += 1  # it is said already that it is gone
            return
        detail = ""
        try:
            why_not = self._not_covered(answered)
        except EngineError as error:
            why_not, detail = "failed", str(error)
        if why_not is None:
            self.counts.covered += 1
        else:
            setattr(self.counts, why_not, getattr(self.counts, why_not) + 1)
        self._told.covered(self.engine.name, why_not, detail)

    def _not_covered(self, answered: Answered) -> Uncovered | None:
        """Find a prompt's blocks, and tell of them; why they are not found."""
        size, usage = self._block_size(), answered.usage
        if answered.messages is None:
            return "messages"
        if size is None or self._tokens is None:
            return "size"
        found = covering_of(answered.messages, answered.alignment, self._tokens, size, answered.salt)
        if found is None and self._tokens.renewed():  # parts of it were another model's
            found = covering_of(answered.messages, answered.alignment, self._tokens, size, answered.salt)
        if found is None:
            return "unread"
        if usage is not None and usage.prompt_tokens not in {None, found.tokens}:
            return "unlike"  # tools, or a template's settings: these are not the tokens that were sent
        self._told.cover(answered.alignment, answered.salt, found, None if usage is None else usage.cached_tokens)
        return None
