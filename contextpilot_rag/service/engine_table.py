"""Which engines a tenant's requests go to, and what they report. Engines are what clients call them."""

from __future__ import annotations

from collections import OrderedDict
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
    """The engines of all tenants. Not thread-safe: the event loop owns it."""

    def __init__(self) -> None:
        self._tenants: OrderedDict[str, dict[str | None, Engine]] = OrderedDict()
        self._size = 0

    def add(self, tenant: str, name: str | None, step: Tally, reported_at: float | None = None) -> None:
        """Add figures to one.

        Args:
            tenant: whose requests they are.
            name: the engine's.
            step: the figures.
            reported_at: when the last report among them came that says what was cached.
        """
        engine = self._engine(tenant, name)
        engine.tally.add(step)
        if reported_at is not None:
            engine.reported_at = reported_at

    def drop(self, tenant: str) -> None:
        """Forget those of a tenant that is no more: a later one of its name is somebody else."""
        self._size -= len(self._tenants.pop(tenant, ()))

    def of(self, tenant: str) -> dict[str | None, Engine]:
        """Those of a tenant, by name; None: requests that name none."""
        return dict(self._tenants.get(tenant, {}))

    def find(self, tenant: str, name: str | None) -> Engine | None:
        """One of them."""
        return self._tenants.get(tenant, {}).get(name)

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
