"""Coverer: of engines that an index elsewhere follows, what only this side knows: where its prompts' blocks stand.

The service that holds the index listens to the engines. What they tell are KV blocks of token ids, and those of a
prompt are known where its text is: here. So this side works them out, after the answer and off the hot path, and tells
the service digests of them; texts and token ids stay here.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from ..errors import IndexFailed, InputError, SettingsError
from ..forking import after_fork
from ..types import Alignment, short
from .covering import Covering
from .engine import Engine, EngineFacts, Level, check_apart
from .known import Known
from .kv import Event
from .shown import shown_url
from .status import EngineStatus


class CoveredIndex(Protocol):
    """An index elsewhere that can be told where prompts stand, such as `RemoteIndex`."""

    @property
    def left_alone(self) -> bool:
        """Whether it is not asked at present, as it failed too often."""
        ...

    def cover(self, alignment: Alignment, covering: Covering, cached_tokens: int | None = None) -> bool:
        """Where a prompt's blocks stand among the KV blocks; whether that is of any use there."""
        ...


@dataclass(slots=True, eq=False)
class _Member(Known):
    """An engine as this side sees it."""

    def status(self) -> EngineStatus:
        """Sizes and events are the service's to know; here they are 0."""
        return EngineStatus(
            name=self.engine.name,
            url=shown_url(self.engine.url),
            alive=self.alive,
            level=self.level,
            why=self.why or self.level_why,
            kind=self.kind,
            capacity_tokens=self.capacity_tokens,
            block_size=self.block_size,
            tree_blocks=0,
            tree_tokens=0,
            kv_blocks=0,
            outstanding_tokens=0,
            waiting=self.facts.waiting,
            requests=0,
            observed=0,
            reported_cached_tokens=0,
            expected_cached_tokens=0,
            events=0,
            lost=0,
            last_event=None,
        )


class Coverer:
    """Engines that an index elsewhere follows. Thread-safe; it chooses no engine, and knows no tree.

    Args:
        engines: to begin with.
        index: is told where prompts stand.
        failed: told of what failed there. Requests go on all the same.
        answered: told that it works.
    """

    def __init__(
        self,
        engines: Sequence[Engine],
        index: CoveredIndex,
        failed: Callable[[Exception], object],
        answered: Callable[[], object] = lambda: None,
    ) -> None:
        self._index = index
        self._failed = failed
        self._answered = answered
        self._members: dict[str, _Member] = {}  # never changed, but replaced: it is read without a lock
        self._renew()
        after_fork(self, Coverer._renew)
        for engine in engines:
            self.add(engine)

    def engines(self) -> tuple[EngineStatus, ...]:
        """How each engine stands, as far as this side can tell."""
        return tuple(member.status() for member in self._members.values())

    def add(self, engine: Engine) -> None:
        """An engine joins.

        Raises:
            SettingsError: there is one of this name, or at this address.
        """
        with self._lock:
            if engine.name in self._members:
                raise SettingsError(f"there is already an engine called {short(engine.name)}")
            check_apart(engine, [member.engine for member in self._members.values()])
            self._members = {**self._members, engine.name: _Member(engine)}

    def remove(self, name: str) -> None:
        """An engine leaves."""
        with self._lock:
            self._members = {other: kept for other, kept in self._members.items() if other != name}

    def block_size(self, name: str) -> int | None:
        """Tokens of an engine's KV blocks, as it was set or as the engine says."""
        member = self._members.get(name)
        return None if member is None else member.block_size

    def alive(self, name: str, alive: bool, why: str = "") -> None:
        """Whether an engine answers here."""
        member = self._members.get(name)
        if member is not None:
            member.alive, member.why = alive, "" if alive else why

    def facts(self, name: str, facts: EngineFacts) -> None:
        """What an engine says of itself."""
        member = self._members.get(name)
        if member is not None:
            member.facts = member.facts.updated(facts)

    def level(self, name: str, level: Level, why: str = "") -> None:
        """How an engine is followed from here: why its prompts are not told of, if so."""
        member = self._members.get(name)
        if member is not None:
            member.level, member.level_why = level, why

    def cover(self, alignment: Alignment, salt: str | None, covering: Covering, cached_tokens: int | None) -> None:  # noqa: ARG002
        """Tell the index; it knows the salt. One that is gone is left alone."""
        if self._index.left_alone:
            return
        try:
            self._index.cover(alignment, covering, cached_tokens)
        except (IndexFailed, InputError) as error:
            self._failed(error)
        else:
            self._answered()

    def matches(self, name: str) -> tuple[int, int]:  # noqa: ARG002
        """The service knows."""
        return 0, 0

    def events(self, name: str, rank: int, events: Sequence[Event]) -> None:
        """Nobody listens here."""

    def lost(self, name: str, rank: int, why: str) -> None:
        """Nobody listens here."""

    def failed(self, alignment: Alignment) -> None:
        """The index has no word for it: what was not cached there is found missing by later reports."""

    def route(self, engine: str | None, tokens: int) -> str | None:  # noqa: ARG002
        """Somebody else chooses."""
        return None

    def _renew(self) -> None:
        self._lock = threading.Lock()
