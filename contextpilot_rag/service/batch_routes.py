"""Several requests at once. All are checked before the first is aligned, and nobody else waits for all of them.

Batches of several tenants go on request by request in turn.
"""

from __future__ import annotations

import msgspec

from ..remote import wire
from .blocks import Distinct
from .decoding import decode
from .index_routes import ALIGNED, ALIGNMENT
from .large import check_count, condensed
from .loop_work import Slices
from .operation import Call, Operation
from .problems import Conflict, Malformed, TooLarge, Unusable
from .tenant import Tenant


class _Request(msgspec.Struct, gc=False):
    """A request that was not looked into; what is none is found at once."""

    blocks: msgspec.Raw


class _Counted(msgspec.Struct, forbid_unknown_fields=True):
    """A batch whose requests are counted: so many small ones that they are too many are not all kept first."""

    requests: list[_Request]


class _Raw(msgspec.Struct, forbid_unknown_fields=True):
    """A batch whose requests were not looked into."""

    requests: list[msgspec.Raw]


_counted = msgspec.json.Decoder(_Counted)
_batch = msgspec.json.Decoder(_Raw)
_request = msgspec.json.Decoder(wire.AlignIn)


async def _align(call: Call[None]) -> wire.BatchOut:
    most = call.hub.settings.max_batch
    asked = len(decode(_counted, call.raw).requests)
    if asked > most:
        raise TooLarge(f"{asked} requests; at most {most} are taken")
    raws = decode(_batch, bytes(call.raw)).requests  # which are parts of it, and shall not change
    if call.hub.rates is not None:
        call.hub.rates.take(call.caller, len(raws), counted=1)  # when it came
    tenant = call.tenant
    requests: list[tuple[wire.AlignIn, Distinct]] = []
    try:
        await _check(call, tenant, raws, requests)
        await call.caught_up(*[given for given, _ in requests])
        return wire.BatchOut(await _answer(call, tenant, requests))
    finally:
        for given, _ in requests:
            if given.ticket is not None:
                tenant.tickets.let_go(given.ticket)


async def _check(
    call: Call[None], tenant: Tenant, raws: list[msgspec.Raw], requests: list[tuple[wire.AlignIn, Distinct]]
) -> None:
    """All requests, and their blocks; their tickets are set aside, so that what is sound now will be."""
    slices, batches, most = Slices(), call.hub.batches, call.hub.settings.max_blocks
    for place, raw in enumerate(raws):
        async with batches.turn(tenant):
            slices.resume()
            try:
                check_count(raw, most)
                given = decode(_request, raw)
                await condensed(raw, given.blocks)
                requests.append((given, tenant.checked(given)))
            except (Malformed, Unusable, TooLarge, Conflict) as error:
                raise type(error)(f"requests[{place}]: {error}") from None
            await slices.next()


async def _answer(
    call: Call[None], tenant: Tenant, requests: list[tuple[wire.AlignIn, Distinct]]
) -> list[wire.AlignOut]:
    slices, batches, answers = Slices(), call.hub.batches, []
    for given, found in requests:
        async with batches.turn(tenant):
            slices.resume()
            answers.append(tenant.align(given, found))
            await slices.next()
    return answers


OPERATIONS = (
    Operation(
        "POST",
        "/v1/align/batch",
        "Align several requests, one after another; the answers come in the order asked. One that cannot be aligned is "
        "a refusal of all, and changes nothing. Counts as many requests for the rate as it holds.",
        _align,
        body=wire.BatchIn,
        decoded=False,
        answer=wire.BatchOut,
        rejections=(Malformed, Conflict, Unusable),
        example=(wire.BatchIn([ALIGNMENT]), wire.BatchOut([ALIGNED])),
    ),
)
