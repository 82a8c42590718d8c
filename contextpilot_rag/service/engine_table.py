"""Which engines a tenant's requests go to, and what they report. Engines are what clients call them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from .tally import Tally

OTHER = "other"
_EACH = 64  # engines of one tenant that are told apart
_MOST = 20_000  # of all tenants; beyond, the one used longest ago goes
_FRESH_SECONDS = 3_600.0


@dataclass(slots=True)
class Engine:
    """One engine, as one tenant's clients tell.

    Args:
        tally: its requests and reports since the start.
        reported_at: when a report last said what was cached; None: never.
    """

    tally: Tally = field(default_factory=Tally)
    reported_at: float | None = None

    def level(self, now: float) -> Literal["usage", "model"]:
        """How the index is kept in step: by "usage" reports of the last hour, else by its own "model" alone."""
        fresh = self.reported_at is not None and now - self.reported_at <= _FRESH_SECONDS
        return "usage" if fresh else "model"


class Engines:
    """The engines of all tenants. Not thread-safe: the event loop owns it.

    Args:
        clock: seconds that never run backwards.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self._tenants: OrderedDict[str, dict[str | None, Engine]] = OrderedDict()
        self._size = 0

    def add(self, tenant: str, name: str | None, step: Tally) -> None:
        """Add figures to one."""
        engine = self._engine(tenant, name)
        engine.tally.add(step)
        if step.reports:
            engine.reported_at = self.clock()

    def of(self, tenant: str) -> dict[str | None, Engine]:
        """Those of a tenant, by name; None: requests that name none."""
        return dict(self._tenants.get(tenant, {}))

    def all(self) -> list[tuple[str, str | None, Engine]]:
        """Those of all tenants."""
        return [(tenant, name, engine) for tenant, named in self._tenants.items() for name, engine in named.items()]

    def _engine(self, tenant: str, name: str | None) -> Engine:
        named = self._tenants.get(tenant)
        if named is None:
            named = self._tenants[tenant] = {}
        else:
            self._tenants.move_to_end(tenant)
        engine = named.get(name)
        if engine is None:
            if len(named) >= _EACH:
                name = OTHER
            if name not in named:
                self._size += 1
            engine = named.setdefault(name, Engine())
            while self._size > _MOST and len(self._tenants) > 1:
                self._size -= len(self._tenants.popitem(last=False)[1])
        return engine
