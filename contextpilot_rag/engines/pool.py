"""EnginePool: the engines that a pilot sends to, as its user sees them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..errors import InputError
from ..types import Alignment, Usage, short
from .engine import Engine, EngineLike, engine_of, quiet
from .followed import Pooled
from .follower import FollowerCounts
from .following import Following
from .status import EngineStatus


class EnginePool:
    """``pilot.engines``: what is known of each engine. Iterates over their `EngineStatus`.

    Args:
        engines: to begin with.
        fleet: knows the same engines: what their caches hold, or whom to tell about it.
        tokenizer: makes token ids of messages; None: the engines are asked.
        elsewhere: their events are listened to elsewhere.
    """

    def __init__(
        self,
        engines: Sequence[Engine],
        fleet: Pooled,
        tokenizer: object = None,
        *,
        elsewhere: bool = False,
    ) -> None:
        self.fleet = fleet
        self._elsewhere = elsewhere
        self._engines = {engine.name: engine for engine in engines}
        self._following = Following(fleet, tokenizer, elsewhere=elsewhere)
        for engine in engines:
            self._following.add(engine)

    def __iter__(self) -> Iterator[EngineStatus]:
        return iter(self.fleet.engines())

    def __len__(self) -> int:
        return len(self._engines)

    def __repr__(self) -> str:
        return f"<EnginePool: {', '.join(f'{one.name} ({one.level})' for one in self)}>"

    def url(self, alignment: Alignment) -> str:
        """The address that a request should be sent to, as OpenAI clients expect it, with /v1.

        Args:
            alignment: what ``align`` returned.

        Raises:
            InputError: there is no engine to choose.
        """
        engine = self._engines.get(alignment.engine or "") or next(iter(self._engines.values()), None)
        if engine is None:
            raise InputError("this pilot knows no engine: give it some, ContextPilot(engines=[...])")
        return engine.url

    def add(self, engine: EngineLike) -> None:
        """An engine joins. It is warmed gradually.

        Raises:
            SettingsError: it is none, or there is one of this name.
        """
        made = engine_of(engine)
        made = quiet(made) if self._elsewhere else made
        self.fleet.add(made)
        self._engines = {**self._engines, made.name: made}
        self._following.add(made)

    def remove(self, name: str) -> None:
        """An engine leaves; what was known of it goes.

        Raises:
            InputError: there is none of this name.
        """
        if name not in self._engines:
            raise InputError(f"no engine is called {short(name)}; there are {', '.join(self._engines)}")
        self._engines = {other: engine for other, engine in self._engines.items() if other != name}
        self._following.remove(name)
        self.fleet.remove(name)

    def failed(self, alignment: Alignment) -> None:
        """A request did not get through, so that its prompt is not in the engine's cache, nor on its way there.

        Args:
            alignment: what ``align`` returned.
        """
        self.fleet.failed(alignment)

    def answered(
        self,
        alignment: Alignment,
        messages: Sequence[Mapping[str, Any]] | None,
        salt: str | None,
        usage: Usage | None,
    ) -> None:
        """A request was answered; ``pilot.observe`` says so. Returns at once."""
        self._following.answered(alignment, messages, salt, usage)

    def counts(self, name: str) -> FollowerCounts:
        """What was done to find the tokens of the prompts that an engine answered.

        Args:
            name: of the engine. Where somebody else chooses engines, the first that is alive tells the tokens of all.
        """
        return self._following.counts(name)

    def drained(self, timeout: float = 10.0) -> bool:
        """Wait until all that was answered and all that engines told is taken in, for tests and measurements.

        Returns:
            Whether it was, in so many seconds.
        """
        return self._following.drained(timeout)

    def close(self) -> None:
        """Follow the engines no longer. The pilot goes on, with what it knows."""
        self._following.close()
