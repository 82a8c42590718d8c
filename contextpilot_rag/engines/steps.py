"""What a `Feed` says is to be done, and what it counts."""

from __future__ import annotations

from dataclasses import dataclass

from .kv import Batch


@dataclass(frozen=True, slots=True)
class Pass:
    """Tell these events: they are next."""

    number: int
    batch: Batch


@dataclass(frozen=True, slots=True)
class Ask:
    """Ask the engine for a replay, and leave earlier ones alone.

    Args:
        ask: its number, to be given with what comes of it.
        start: the first message to ask for.
    """

    ask: int
    start: int


@dataclass(frozen=True, slots=True)
class Lost:
    """Nothing that was told before holds any more."""

    why: str


@dataclass(frozen=True, slots=True)
class Unanswered:
    """A replay was not answered; leave it alone."""

    ask: int


@dataclass(frozen=True, slots=True)
class InStep:
    """From here on nothing is missing.

    Args:
        complete: since the engine's start.
    """

    complete: bool


Action = Pass | Ask | Lost | Unanswered | InStep


@dataclass(slots=True)
class FeedCounts:
    """What happened: messages passed on, doubled ones, gaps, replays asked for, histories lost, restarts seen."""

    passed: int = 0
    duplicates: int = 0
    gaps: int = 0
    replays: int = 0
    lost: int = 0
    restarts: int = 0
