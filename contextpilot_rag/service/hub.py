"""Hub: the parts of a running service, in one place for whoever answers a request."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from .auth import Gate
from .core import Service
from .settings import ServiceSettings


class State(str, Enum):
    """What the service can do now."""

    STARTING = "starting"
    READY = "ready"
    DRAINING = "draining"


@dataclass(slots=True)
class Hub:
    """The running service.

    Args:
        settings: in force.
        service: tenants and their indexes.
        gate: who may ask.
        state: what it can do now.
    """

    settings: ServiceSettings
    service: Service
    gate: Gate
    state: State = State.STARTING
