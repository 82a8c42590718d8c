"""Watching: how well one engine can be followed at present, and what is to be said about it aloud, once an outage."""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable
from typing import Literal

from ..types import Usage
from .engine import Engine, Level

_RECENT = 32  # reports that are looked back on
_ENOUGH = 8  # prompts before it is judged whether their tokens are the engine's
_AHEAD = 64  # requests that may be told of before they are answered
_ALIKE = 0.5  # of them at least
_COVERED = 16  # answered requests of which it is looked at whether they could be followed
_SOME = 4  # of them before it is judged

NO_EVENTS = (
    "requests were answered for {seconds:.0f} s and no cache event came; is the engine started with cache events on, "
    "and at this address?"
)
UNLIKE = (
    "most prompts are not what the engine caches; is it the same tokenizer and chat template, and is the cache salt "
    "sent (extra_body=prompt.extra_body)?"
)

Uncovered = Literal["unlike", "unread", "failed", "size", "messages", "dropped"]
"""Why an answered prompt could not be found among the engine's KV blocks."""

UNCOVERED: dict[Uncovered, str] = {
    "unlike": "most prompts have another number of tokens than the engine reports: they were sent with a history that "
    "was not given (say what was sent, observe(..., messages=...)), or with tools or template settings, which cannot "
    "be told",
    "unread": "the blocks of most prompts are not found in the messages that were sent; if those are not "
    "alignment.messages(), say what was sent, observe(..., messages=...)",
    "failed": "it does not say the token ids of prompts (/tokenize fails); give the pilot its tokenizer, "
    "ContextPilot(tokenizer=...)",
    "size": "the size of its KV blocks is not known (is its /metrics open?); give Engine(block_size=...)",
    "messages": "the messages of most requests are not known; make them with alignment.messages(), or say what was "
    "sent, observe(..., messages=...)",
    "dropped": "more prompts are answered than their token ids can be asked for; give the pilot its tokenizer, "
    "ContextPilot(tokenizer=...)",
}


class Watching:
    """Of one engine. Thread-safe; does nothing by itself.

    Args:
        engine: which.
        clock: seconds that never run backwards.
        patience: seconds after which silence is spoken of.
        covers: prompts are to be found among its KV blocks, though somebody else listens to its events.

    >>> watching = Watching(Engine("http://127.0.0.1:8000"), lambda: 0.0)
    >>> watching.level
    'model'
    >>> watching.answered(Usage(prompt_tokens=100, cached_tokens=0), 16)
    >>> watching.level
    'usage'
    """

    def __init__(
        self, engine: Engine, clock: Callable[[], float], patience: float = 10.0, *, covers: bool = False
    ) -> None:
        self._engine = engine
        self._clock = clock
        self._patience = patience
        self._lock = threading.Lock()
        self._in_step: set[int] = set()
        self._broken: dict[int, str] = {}
        self._since_reported = _RECENT
        self._quiet_since: float | None = None  # when the first request was answered that no event has told of
        self._silent = False
        self._ahead = 0  # events that no answer was credited with yet
        self._looked_at = self._alike = 0.0
        self._judged = 0, 0
        self._covers = covers or bool(engine.events)
        self._covered: deque[Uncovered | None] = deque(maxlen=_COVERED)  # None: it was
        self._detail = ""
        self._said: str | None = None

    @property
    def level(self) -> Level:
        """How it is followed at present."""
        return "events" if self._engine.events and not self.why else self.otherwise

    @property
    def otherwise(self) -> Level:
        """How it is followed where its events do not tell enough."""
        return "usage" if self._since_reported < _RECENT else "model"

    @property
    def why(self) -> str:
        """Why it is not followed by its events, or prompts are not found there; empty: it is well, or nobody asked."""
        with self._lock:
            return self._why()

    def answered(self, usage: Usage | None, block_size: int | None) -> None:
        """A request was answered."""
        with self._lock:
            reported = usage is not None and usage.cached_tokens is not None
            self._since_reported = 0 if reported else min(_RECENT, self._since_reported + 1)
            if self._quiet_since is None and usage is not None and usage.prompt_tokens is not None:
                new = usage.prompt_tokens - (usage.cached_tokens or 0)
                # A hit is silent, and so may be a request that fills less than a KV block.
                if usage.cached_tokens is not None and new >= 2 * (block_size or 512):
                    if self._ahead:  # an engine tells of a prompt before it has answered it
                        self._ahead -= 1
                    else:
                        self._quiet_since = self._clock()

    def event(self, count: int = 1) -> None:
        """The engine told of something.

        Args:
            count: of its events.
        """
        with self._lock:
            self._quiet_since, self._silent = None, False
            self._ahead = min(_AHEAD, self._ahead + count)

    def flowing(self, rank: int) -> None:
        """A rank's events are complete."""
        with self._lock:
            self._in_step.add(rank)
            self._broken.pop(rank, None)

    def broken(self, rank: int, why: str) -> None:
        """A rank's events cannot be had, or not understood."""
        with self._lock:
            self._in_step.discard(rank)
            self._broken[rank] = why

    def judged(self, matched: int, mismatched: int) -> None:
        """How many prompts' token ids were found to be the engine's so far, and how many were not."""
        with self._lock:
            if matched < self._judged[0] or mismatched < self._judged[1]:  # counted anew
                self._judged = 0, 0
            new = matched - self._judged[0], mismatched - self._judged[1]
            self._judged = matched, mismatched
            fading = 0.95 ** sum(new)
            self._alike = self._alike * fading + new[0]
            self._looked_at = self._looked_at * fading + sum(new)

    def covered(self, why_not: Uncovered | None = None, detail: str = "") -> None:
        """An answered prompt was found among the engine's KV blocks, or was not.

        Args:
            why_not: None: it was.
            detail: what is to be said besides.
        """
        with self._lock:
            self._covered.append(why_not)
            if why_not is not None:
                self._detail = detail

    def gone(self) -> None:
        """The engine does not answer; when it comes back, all begins anew."""
        with self._lock:
            self._in_step.clear()
            self._broken.clear()
            self._quiet_since, self._silent, self._said, self._ahead = None, False, None, 0
            self._since_reported = _RECENT
            self._looked_at = self._alike = 0.0
            self._covered.clear()

    def to_say(self) -> tuple[bool, str] | None:
        """What has to be said now, and whether it is a complaint (or that all is well again). Each is given once."""
        with self._lock:
            if self._quiet_since is not None and self._clock() - self._quiet_since >= self._patience:
                self._silent = True
            why = self._why(speaking=True)
            if why == (self._said or ""):
                return None
            had, self._said = self._said, why or None
            if why:
                return True, why
            return (False, "followed by its cache events again") if had else None

    def _why(self, *, speaking: bool = False) -> str:
        if not self._engine.events:
            return self._uncovered() if self._covers else ""
        if self._broken:
            return next(iter(self._broken.values()))
        if self._silent:
            return NO_EVENTS.format(seconds=self._patience)
        if self._looked_at >= _ENOUGH and self._alike < _ALIKE * self._looked_at:
            return UNLIKE
        if len(self._in_step) < self._engine.ranks and not speaking:
            return "its cache events are not there yet"
        return self._uncovered()

    def _uncovered(self) -> str:
        """Why most prompts are not found. Few of them say nothing: one may be a special case."""
        reasons = Counter(reason for reason in self._covered if reason is not None)
        if len(self._covered) < _SOME or 2 * reasons.total() <= len(self._covered):
            return ""
        (reason, _) = reasons.most_common(1)[0]
        detail = f" ({self._detail})" if reason == "failed" and self._detail else ""
        return UNCOVERED[reason] + detail
