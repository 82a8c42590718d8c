"""Who is told of engines, to keep something in step with them: a fleet of trees, a service, or a client of one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ..types import Alignment
from .covering import Covering
from .engine import Engine, EngineFacts, Level
from .kv import Event
from .status import EngineStatus


class Followed(Protocol):
    """What those who follow engines tell, each from a thread of its own, and what they ask.

    Who has a method ``flowing(name, rank)`` as well is told when a rank's past is told, and what it tells is new; and
    who has ``whole(name, rank)``, when that was all since its start.
    """

    def engines(self) -> tuple[EngineStatus, ...]:
        """How each engine stands."""
        ...

    def block_size(self, name: str) -> int | None:
        """Tokens of an engine's KV blocks, as far as they are known."""
        ...

    def matches(self, name: str) -> tuple[int, int]:
        """Of an engine's answered prompts: how many it told of as expected, and how many it never told of."""
        ...

    def alive(self, name: str, alive: bool, why: str = "") -> None:
        """Whether an engine answers, and why not. Told again and again."""
        ...

    def facts(self, name: str, facts: EngineFacts) -> None:
        """What an engine says of itself."""
        ...

    def level(self, name: str, level: Level, why: str = "") -> None:
        """How an engine is followed, and why not by its events. Told with each answer, so it has to be quick."""
        ...

    def events(self, name: str, rank: int, events: Sequence[Event]) -> None:
        """An engine told of its cache."""
        ...

    def lost(self, name: str, rank: int, why: str) -> None:
        """What was known of a rank's cache is worth nothing any more."""
        ...

    def cover(self, alignment: Alignment, salt: str | None, covering: Covering, cached_tokens: int | None) -> None:
        """Where a prompt's blocks stand among the KV blocks of the engine that answered it."""
        ...


class Pooled(Followed, Protocol):
    """What a pilot's pool of engines needs besides."""

    def add(self, engine: Engine) -> None:
        """An engine joins."""
        ...

    def remove(self, name: str) -> None:
        """An engine leaves."""
        ...

    def failed(self, alignment: Alignment) -> None:
        """A request did not get through."""
        ...

    def route(self, engine: str | None, tokens: int) -> str | None:
        """Where a conversation goes on; None: somebody else chooses."""
        ...
