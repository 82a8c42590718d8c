"""Whether the service lives, and whether it is ready."""

from __future__ import annotations

from ..remote import wire
from .hub import State
from .operation import Call, Operation
from .problems import Unavailable


async def _alive(call: Call[None]) -> wire.HealthOut:
    return _health(call)


async def _ready(call: Call[None]) -> wire.HealthOut:
    if call.hub.state is not State.READY:
        raise Unavailable(f"the service is {call.hub.state.value}")
    return _health(call)


def _health(call: Call[None]) -> wire.HealthOut:
    replicas = call.hub.replicas
    if replicas is None:
        return wire.HealthOut(call.hub.state.value)
    return wire.HealthOut(call.hub.state.value, "joined" if replicas.status().joined else "alone")


OPERATIONS = (
    Operation(
        "GET",
        "/healthz",
        "Whether the service lives.",
        _alive,
        answer=wire.HealthOut,
        example=(None, wire.HealthOut("ready")),
        open=True,
    ),
    Operation(
        "GET",
        "/readyz",
        "Whether the service answers requests: not while it starts, and not while it ends. A replica that has lost the "
        "others does.",
        _ready,
        answer=wire.HealthOut,
        rejections=(Unavailable,),
        example=(None, wire.HealthOut("ready")),
        open=True,
    ),
)
