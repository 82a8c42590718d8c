"""What a tenant has in the service: to look at, and to be forgotten."""

from __future__ import annotations

from dataclasses import asdict

from ..remote import wire
from .operation import Call, Operation


async def _stats(call: Call[None]) -> wire.StatsOut:
    tenant = call.tenant
    return wire.StatsOut(**asdict(tenant.stats()), tickets=len(tenant.tickets), conversations=len(tenant.ledgers))


async def _forget_all(call: Call[None]) -> wire.Forgotten:
    return wire.Forgotten(call.tenant.forget())


OPERATIONS = (
    Operation(
        "GET",
        "/v1/stats",
        "Counts of the tenant since the service's start, and the sizes of what is kept for it.",
        _stats,
        answer=wire.StatsOut,
        example=(
            None,
            wire.StatsOut(
                1200,
                700,
                5_400_000,
                3_900_000,
                310_000,
                1100,
                5_800_000,
                4_000_000,
                3,
                2,
                8000,
                2_100_000,
                1200,
                40,
                {"prefix": 700, "nothing_gained": 500},
            ),
        ),
    ),
    Operation(
        "DELETE",
        "/v1/namespaces",
        "Forget all of the tenant's namespaces.",
        _forget_all,
        answer=wire.Forgotten,
        example=(None, wire.Forgotten(3)),
    ),
)
