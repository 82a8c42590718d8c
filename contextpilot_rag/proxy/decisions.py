"""Decisions: what the rewriter asks of its memory, and of the other replicas that share it, if there are any."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

from ..failing import Failures
from ..identity import secret_salt
from ..replicas.sinks import Carrier
from .memory import Decision, Memory
from .settings import ProxySettings
from .shared import Shared


@dataclass(frozen=True, slots=True)
class Others:
    """The replicas that a proxy shares its decisions with.

    Args:
        replica: its own part in their log.
        tenants: those that there are; None: any name is one.
        secret: that all have.
    """

    replica: Carrier
    tenants: Callable[[], Collection[str] | None] = lambda: None
    secret: str = ""


class Decisions:
    """What was decided before, here or elsewhere. One event loop owns it, between `start` and `stop`.

    Args:
        settings: of the proxy.
        clock: seconds that never run backwards.
        failures: counts what goes wrong.
        others: share it; None: nobody does.

    Attributes:
        keyed: part of what all keys are made of, so that nobody who reads the log can tell by trying what was said.
    """

    def __init__(
        self, settings: ProxySettings, clock: Callable[[], float], failures: Failures, others: Others | None = None
    ) -> None:
        self._memory = Memory(settings.max_memory, settings.memory_seconds, clock)
        self._names = frozenset(engine.name for engine in settings.engines)
        self._failures = failures
        self._shared = None if others is None else Shared(self._memory, others.replica, others.tenants)
        self.keyed = "" if others is None else secret_salt(b"proxy decisions v1", (), others.secret)

    async def start(self) -> None:
        """Come to know what others decided, and let them know."""
        if self._shared is not None:
            await self._shared.start()

    def stop(self) -> None:
        """Let them know no more."""
        if self._shared is not None:
            self._shared.stop()

    def regrouped(self) -> None:
        """There may be other tenants than before."""
        if self._shared is not None:
            self._shared.look_again()

    def forget(self, tenant: str) -> None:
        """Forget what was decided for a tenant, here and elsewhere."""
        if self._shared is None:
            self._memory.forget_all(tenant)
        else:
            self._shared.forget(tenant)

    def put(self, tenant: str, key: bytes, decision: Decision) -> None:
        """Remember what is decided for a message."""
        self._memory.put(key, decision, tenant)

    def went(self, tenant: str, key: bytes, engine: str) -> None:
        """Remember where a conversation went, if there is more than one place where it can go."""
        if len(self._names) > 1:
            known = self._memory.get(key, tenant) or Decision()
            self._memory.put(key, replace(known, engine=engine), tenant)

    async def where(self, tenant: str, keys: Sequence[bytes], *, old: bool) -> tuple[str | None, bool]:
        """Where a conversation went so far, and whether what others tell was waited for.

        Args:
            tenant: whose it is.
            keys: of its messages.
            old: some of it was answered before.
        """
        engine = self._engine(tenant, keys)
        if engine is not None or not old or len(self._names) < 2:
            return engine, False
        await self._caught_up(lambda: self._engine(tenant, keys) is not None)
        return self._engine(tenant, keys), True

    async def before(self, tenant: str, key: bytes, engine: str | None, *, wait: bool) -> Decision | None:
        """What was decided for a message.

        Args:
            tenant: whose it is.
            key: of the message.
            engine: where its conversation went last, which counts for more than where this message did.
            wait: it was answered before, if not here then elsewhere just now.
        """
        found = self._memory.get(key, tenant)
        if wait and (found is None or found.order is None):
            await self._caught_up(lambda: self._memory.get(key, tenant) is not None)
            found = self._memory.get(key, tenant)
        if found is None:
            return None
        return replace(found, engine=engine or (found.engine if found.engine in self._names else None))

    def _engine(self, tenant: str, keys: Sequence[bytes]) -> str | None:
        """Where a conversation went so far; other replicas may know other upstreams."""
        for key in reversed(keys):
            decided = self._memory.get(key, tenant)
            if decided is not None and decided.engine in self._names:
                return decided.engine
        return None

    async def _caught_up(self, enough: Callable[[], bool]) -> None:
        if self._shared is None:
            return
        try:
            await self._shared.catch_up(enough)
        except Exception as error:  # noqa: BLE001  fails open: it goes as it would without the others
            self._failures.note(error)
