"""Hub: the parts of a running service, in one place for whoever answers a request."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol

from .auth import Caller, Gate
from .core import Service
from .engine_watch import EngineWatch
from .loads import Loads
from .metrics import Metrics
from .plan_slots import Slots
from .plans import Plans
from .replicas import Replicas
from .settings import ServiceSettings
from .snapshot import Snapshots


class State(str, Enum):
    """What the service can do now."""

    STARTING = "starting"
    READY = "ready"
    DRAINING = "draining"


class Rates(Protocol):
    """Counts what a tenant asks for."""

    def take(self, caller: Caller, cost: int = 1, *, counted: int = 0) -> None:
        """Count so many requests, but for those of them that were counted just before.

        Raises:
            TooMany: over the tenant's rate.
        """
        ...


class Tracer(Protocol):
    """Makes spans."""

    def span(self, operation: str, headers: Mapping[bytes, bytes]) -> AbstractContextManager[Any]:
        """A span around an operation, within the trace that the headers name."""
        ...


@dataclass(slots=True)
class Hub:
    """The running service.

    Args:
        settings: in force.
        service: tenants and their indexes.
        gate: who may ask.
        state: what it can do now.
        rates: what each tenant may ask for; None: no limit.
        metrics: told of each answer, and of all that the service does.
        tracer: spans around operations.
        plans: large batches that are worked on beside the requests.
        snapshots: what is kept on disk; None: nothing.
        replicas: the replica of a log that others read, too; None: this is the only one.
        followed: the engines that the index is kept in step with; None: none.
        loads: bytes that each tenant has on their way.
        batches: whose is worked on: one request of one batch at a time, for more would be several slices between two
            requests that came alone.
    """

    settings: ServiceSettings
    service: Service
    gate: Gate
    state: State = State.STARTING
    rates: Rates | None = None
    metrics: Metrics | None = None
    tracer: Tracer | None = None
    plans: Plans | None = None
    snapshots: Snapshots | None = None
    replicas: Replicas | None = None
    followed: EngineWatch | None = None
    batches: Slots = field(default_factory=lambda: Slots(1))
    loads: Loads = field(init=False)

    def __post_init__(self) -> None:
        self.loads = Loads(self.settings)
