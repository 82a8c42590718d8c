"""What the index is asked all the time: align, report what was sent and what was cached, predict."""

from __future__ import annotations

from ..remote import wire
from .operation import Call, Operation
from .problems import Conflict, Malformed, NotFound, Unusable

_BLOCKS = [
    wire.BlockIn(id="handbook#12", hash="8f14e45fceea167a5a36dedd4bea2543", tokens=310),
    wire.BlockIn(id="handbook#7", tokens=280),
    wire.BlockIn(text="Refunds are paid within fourteen days."),
]
_NAMESPACE = wire.NamespaceIn(model="qwen3-8b", corpus="handbook")
ALIGNMENT = wire.AlignIn(_BLOCKS, _NAMESPACE, key="question-17", engine="engine-a")
_TICKET = "u5Q0m3yXyJb2y7w3rJbK9A"
_OBSERVED = wire.ObserveIn(_TICKET, wire.UsageIn(1200, None, 80, prompt_tokens_details=wire.UsageDetailsIn(256)))
_COVERED = wire.CoverIn(_TICKET, bytes(range(48)), bytes(range(48, 96)), [12, 20, 30, 38], 50, 16, 32)
ALIGNED = wire.AlignOut(
    ticket=_TICKET,
    order=[1, 0, 2],
    labels=[1, 2, 3],
    cached_blocks=1,
    predicted_cached_tokens=280,
    retrieved_cached_tokens=0,
    rule="prefix",
    reason="the heaviest cached prefix that these blocks share goes first",
    key="question-17",
    cache_salt="5mU0l8mS2Qx0bS0lq3m9n1X4v7r2c6t8y5z1w3e9k0Q",
)


async def _align(call: Call[wire.AlignIn]) -> wire.AlignOut:
    await call.caught_up(call.body)
    return call.tenant.align(call.body)


async def _sent(call: Call[wire.SentIn]) -> wire.SentOut:
    return call.tenant.sent(call.body)


async def _predict(call: Call[wire.AlignIn]) -> wire.PredictOut:
    return call.tenant.predict(call.body)


async def _cover(call: Call[wire.CoverIn]) -> wire.CoverOut:
    followed = call.hub.followed
    await call.caught_up(call.body)
    taken = call.tenant.cover(call.body, None if followed is None else followed.cover)
    if taken is None:
        raise NotFound("ticket: not known, or not any more")
    return taken


async def _observe(call: Call[wire.ObserveIn]) -> wire.ObserveOut:
    await call.caught_up(call.body)
    counted = call.tenant.observe(call.body)
    if counted is None:
        raise NotFound("ticket: not known, or not any more")
    return counted


OPERATIONS = (
    Operation(
        "POST",
        "/v1/align",
        "Choose the order of a request's blocks, and take it as sent.",
        _align,
        body=wire.AlignIn,
        answer=wire.AlignOut,
        rejections=(Malformed, Conflict, Unusable),
        example=(ALIGNMENT, ALIGNED),
    ),
    Operation(
        "POST",
        "/v1/sent",
        "Take a request as sent in an order that was chosen elsewhere: a plan's.",
        _sent,
        body=wire.SentIn,
        answer=wire.SentOut,
        rejections=(Malformed, Conflict, Unusable),
        example=(wire.SentIn(_BLOCKS, [2, 0, 1], _NAMESPACE), wire.SentOut(_TICKET)),
    ),
    Operation(
        "POST",
        "/v1/observe",
        "Report what the engine said it had cached of a request: its own usage object, or the three numbers. A second "
        "report on a ticket changes nothing.",
        _observe,
        body=wire.ObserveIn,
        answer=wire.ObserveOut,
        rejections=(Malformed, NotFound, Unusable),
        example=(_OBSERVED, wire.ObserveOut(counted=True)),
    ),
    Operation(
        "POST",
        "/v1/cover",
        "Tell where the blocks of an answered prompt stand among the engine's KV blocks, so that its cache events move "
        "the index. For a service that follows engines; digests only.",
        _cover,
        body=wire.CoverIn,
        answer=wire.CoverOut,
        rejections=(Malformed, NotFound, Unusable),
        example=(_COVERED, wire.CoverOut(taken=False)),
    ),
    Operation(
        "POST",
        "/v1/predict",
        "How many tokens would be cached if a request were sent now. Changes nothing.",
        _predict,
        body=wire.AlignIn,
        answer=wire.PredictOut,
        rejections=(Malformed, Unusable),
        example=(ALIGNMENT, wire.PredictOut(280)),
    ),
)
