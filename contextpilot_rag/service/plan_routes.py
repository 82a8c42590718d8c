"""Large batches as jobs: a batch is sent, asked after, fetched and discarded."""

from __future__ import annotations

from typing import Any

from ..remote.wire_plan import JobOut, JobsOut, PlanIn, PlanOut
from .operation import Answer, Call, Operation
from .plans import Plans
from .problems import Conflict, Malformed, NotFound, Unavailable, Unusable

_NAME = "plan"
_PARAMETERS = {_NAME: ("path", {"type": "string"}, "A job's id.")}
_ID = "Zk3vN0qT5mE1xH8cRw2yLg"
_BATCH = {
    "requests": [
        {"key": "q1", "blocks": [{"id": "a", "tokens": 300}, {"id": "b", "tokens": 200}]},
        {"key": "q2", "blocks": [{"id": "c", "tokens": 250}, {"id": "b", "tokens": 200}, {"id": "a", "tokens": 300}]},
    ],
    "time_budget": 5.0,
    "order_hint": True,
}
_JOB = {"id": _ID, "status": "queued", "requests": 2, "blocks": 5, "tokens": 1250, "namespaces": 1}
_PLAN = {
    "alignments": [
        {
            "request": 0,
            "order": [0, 1],
            "labels": [1, 2],
            "cached_blocks": 0,
            "predicted_cached_tokens": 0,
            "retrieved_cached_tokens": 0,
            "rule": "nothing_gained",
            "key": "q1",
        },
        {
            "request": 1,
            "order": [2, 1, 0],
            "labels": [1, 2, 3],
            "cached_blocks": 2,
            "predicted_cached_tokens": 500,
            "retrieved_cached_tokens": 0,
            "rule": "prefix",
            "key": "q2",
            "order_hint": "Order of relevance, best first: [3] > [2] > [1]",
            "source": 0,
        },
    ],
    "tokens": 1250,
    "predicted_cached_tokens": 500,
    "retrieved_cached_tokens": 0,
    "hit_ratio": 0.4,
    "changed": 1,
    "complete": True,
}


def _plans(call: Call[Any]) -> Plans:
    plans = call.hub.plans
    if plans is None:
        raise Unavailable("this service plans nothing")
    return plans


async def _begin(call: Call[None]) -> Answer:
    job = await _plans(call).submit(call.tenant, call.raw)
    return Answer(job, 202, {"Location": f"/v1/plan/{job.id}"})


async def _list(call: Call[None]) -> JobsOut:
    return JobsOut(_plans(call).jobs(call.tenant))


async def _show(call: Call[None]) -> JobOut:
    return _plans(call).job(call.tenant, call.path[_NAME])


async def _result(call: Call[None]) -> Answer:
    return Answer(_plans(call).result(call.tenant, call.path[_NAME]))


async def _discard(call: Call[None]) -> JobOut:
    return await _plans(call).discard(call.tenant, call.path[_NAME])


OPERATIONS: tuple[Operation, ...] = (
    Operation(
        "POST",
        "/v1/plan",
        "Have a large batch planned, as a job: an order for each request, and the order of sending.",
        _begin,
        body=PlanIn,
        decoded=False,
        answer=JobOut,
        status=202,
        rejections=(Malformed, Unusable, Unavailable),
        example=(_BATCH, _JOB),
        long=True,
    ),
    Operation(
        "GET",
        "/v1/plan",
        "The plans that are under way, or have ended not long ago.",
        _list,
        answer=JobsOut,
        example=(None, {"jobs": [_JOB]}),
    ),
    Operation(
        "GET",
        f"/v1/plan/{{{_NAME}}}",
        "How far a plan is.",
        _show,
        answer=JobOut,
        rejections=(NotFound,),
        example=(None, _JOB),
        parameters=_PARAMETERS,
    ),
    Operation(
        "GET",
        f"/v1/plan/{{{_NAME}}}/result",
        "What came of a plan. It is kept for a while, and may be fetched again.",
        _result,
        answer=PlanOut,
        rejections=(NotFound, Conflict),
        example=(None, _PLAN),
        parameters=_PARAMETERS,
    ),
    Operation(
        "DELETE",
        f"/v1/plan/{{{_NAME}}}",
        "End a plan if it is under way, and forget it with its result.",
        _discard,
        answer=JobOut,
        rejections=(NotFound,),
        example=(None, _JOB | {"status": "cancelled"}),
        parameters=_PARAMETERS,
    ),
)
