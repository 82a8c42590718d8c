"""EnginePool: the engines that a pilot sends to, as its user sees them."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from ..errors import InputError, SettingsError
from ..types import Alignment, Usage, short
from .coverer import CoveredIndex, Coverer
from .engine import Engine, EngineLike, engine_of, quiet
from .followed import Pooled
from .follower import FollowerCounts
from .following import Following
from .sockets import check_zmq
from .status import EngineStatus

logger = logging.getLogger("contextpilot_rag")

NO_ENGINES = "this pilot follows no engines; give it some when it is made, ContextPilot(engines=[...])"


class EnginePool:
    """``pilot.engines``: what is known of each engine. Iterates over their `EngineStatus`; ``[name]`` is one of them.

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
        if elsewhere and len(engines) > 1:
            logger.info("the service chooses no engine, so alignments name none: send to your router")
        if any(engine.events for engine in engines):
            check_zmq()
        self._engines = {engine.name: engine for engine in engines}
        self._following = Following(fleet, tokenizer, elsewhere=elsewhere)
        for engine in engines:
            self._following.add(engine)

    def __iter__(self) -> Iterator[EngineStatus]:
        return map(self._counted, self.fleet.engines())

    def __getitem__(self, name: str) -> EngineStatus:
        """How one engine stands.

        Raises:
            InputError: there is none of this name.
        """
        found = next((status for status in self.fleet.engines() if status.name == name), None)
        if found is None:
            raise self._unknown(name)
        return self._counted(found)

    def __len__(self) -> int:
        return len(self._engines)

    def __repr__(self) -> str:
        return f"<EnginePool: {', '.join(f'{one.name} ({one.level})' for one in self)}>"

    def url(self, alignment: Alignment) -> str:
        """The address that a request should be sent to, as OpenAI clients expect it, with /v1.

        Where the index failed, the alignment names no engine, and where one has left, the name means nothing any more:
        then one is chosen by how much they have to do.

        Args:
            alignment: what ``align`` returned.

        Raises:
            InputError: there is no engine to choose, or it is not chosen here; or that is no alignment.
        """
        _check(alignment, "url")
        engines = self._engines
        engine = engines.get(alignment.engine or "")
        if engine is None and not self._elsewhere:
            engine = engines.get(self.fleet.route(None, alignment.request.tokens) or "")
        if engine is not None:
            return engine.url
        if not engines:
            raise InputError(NO_ENGINES)
        if not self._elsewhere:
            raise InputError('routing="external": somebody else chooses the engine; send to your router')
        if len(engines) > 1:
            raise InputError("the service does not say which engine a request should go to; send to your router")
        return next(iter(engines.values())).url

    def add(self, engine: EngineLike) -> None:
        """An engine joins. It is warmed gradually.

        Raises:
            SettingsError: it is none, or there is one of this name.
            MissingPackage: it has events, and pyzmq is not installed. Nothing has changed then.
        """
        made = engine_of(engine)
        made = quiet(made) if self._elsewhere else made
        if made.events:
            check_zmq()
        self.fleet.add(made)
        self._engines = {**self._engines, made.name: made}
        self._following.add(made)

    def remove(self, name: str) -> None:
        """An engine leaves; what was known of it goes.

        Raises:
            InputError: there is none of this name.
        """
        if not isinstance(name, str) or name not in self._engines:
            raise self._unknown(name)
        self._engines = {other: engine for other, engine in self._engines.items() if other != name}
        self._following.remove(name)
        self.fleet.remove(name)

    def failed(self, alignment: Alignment) -> None:
        """A request did not get through, so that its prompt is not in the engine's cache, nor on its way there.

        The engine is asked at once whether it is there; without this it is found out within 5 seconds or so.

        Args:
            alignment: what ``align`` returned.

        Raises:
            InputError: that is no alignment.
        """
        _check(alignment, "failed")
        self.fleet.failed(alignment)
        self._following.failed(alignment.engine)

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

    def _counted(self, status: EngineStatus) -> EngineStatus:
        """With what was done about its prompts."""
        counts = self._following.counts(status.name)
        return replace(status, covered=counts.covered, uncovered=counts.uncovered)

    def _unknown(self, name: object) -> InputError:
        known = f"there are {', '.join(self._engines)}" if self._engines else "there is none"
        return InputError(f"no engine is called {short(name)}; {known}")


def _check(alignment: object, what: str) -> None:
    if not isinstance(alignment, Alignment):
        raise InputError(f"engines.{what} takes what align returned, not {type(alignment).__name__}")


class NoEngines(EnginePool):
    """The pool of a pilot that was given no engines: an empty one, and it stays so."""

    def __init__(self) -> None:
        super().__init__((), Coverer((), cast("CoveredIndex", None), lambda _: None))

    def add(self, engine: EngineLike) -> None:  # noqa: ARG002
        """It cannot be said any more.

        Raises:
            SettingsError: always; the index was made to follow none.
        """
        raise SettingsError(
            "this pilot was made to follow no engines; ContextPilot(engines=[]) is one that they can join"
        )
