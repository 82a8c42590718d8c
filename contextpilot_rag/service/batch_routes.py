"""Several requests at once. All are checked before the first is aligned, and nobody else waits for all of them.

Batches of several tenants go on request by request in turn.
"""

from __future__ import annotations

import msgspec

from ..remote import wire
from .decoding import decode
from .index_routes import ALIGNED, ALIGNMENT
from .large import check_count, condensed
from .operation import Call, Operation
from .problems import Conflict, Malformed, TooLarge, Unusable
from .turns import Turns


class _Raw(msgspec.Struct, forbid_unknown_fields=True):
    """A batch whose requests were not looked into."""

    requests: list[msgspec.Raw]


_batch = msgspec.json.Decoder(_Raw)
_request = msgspec.json.Decoder(wire.AlignIn)


async def _align(call: Call[None]) -> wire.BatchOut:
    raws = decode(_batch, call.raw).requests
    most = call.hub.settings.max_batch
    if len(raws) > most:
        raise TooLarge(f"{len(raws)} requests; at most {most} are taken")
    if call.hub.rates is not None:
        call.hub.rates.take(call.caller, len(raws), counted=1)  # when it came
    turns, batches, tenant = Turns(), call.hub.batches, call.tenant
    requests = []
    for place, raw in enumerate(raws):
        async with batches.turn(tenant):
            try:
                check_count(raw, call.hub.settings.max_blocks)
                given = decode(_request, raw)
                await condensed(raw, given.blocks)
                requests.append((given, tenant.checked(given)))
            except Malformed as error:
                raise Malformed(f"requests[{place}]: {error}") from None
            except Unusable as error:
                raise Unusable(f"requests[{place}]: {error}") from None
            except TooLarge as error:
                raise TooLarge(f"requests[{place}]: {error}") from None
            await turns.next()
    _check_tickets([given for given, _ in requests])
    answers = []
    for given, found in requests:
        async with batches.turn(tenant):
            answers.append(tenant.align(given, found))
            await turns.next()
    return wire.BatchOut(answers)


def _check_tickets(requests: list[wire.AlignIn]) -> None:
    """A ticket stands for one request, within a batch, too."""
    known: dict[str, wire.AlignIn] = {}
    for place, given in enumerate(requests):
        if given.ticket is not None and known.setdefault(given.ticket, given) != given:
            raise Conflict(f"requests[{place}]: its ticket stands for another request of this batch")


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
