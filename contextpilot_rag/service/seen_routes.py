"""What the service shows of itself: the status page, metrics, engines."""

from __future__ import annotations

import asyncio
from datetime import datetime, timezone

from ..remote.wire_seen import EngineOut, EnginesOut, FollowedEngineOut
from . import exposition, page
from .audit import audit
from .engine_table import Engine
from .engine_watch import FollowedEngine
from .metrics import Metrics
from .operation import Answer, Call, Operation
from .problems import Forbidden, NotFound


async def _page(call: Call[None]) -> Answer:
    hub = call.hub
    sizes = await exposition.sizes_of(hub)
    figures = await page.Figures.of(
        _metrics(call),
        sizes,
        datetime.now(timezone.utc),
        keeps=hub.settings.state is not None,
        keyed=hub.settings.keys is not None,
        followed=await exposition.followed_of(hub),
        replica=exposition.replica_of(hub),
    )
    return Answer(await asyncio.to_thread(page.render, figures), headers=page.HEADERS, media=page.MEDIA)


async def _exposition(call: Call[None]) -> Answer:
    hub, caller = call.hub, call.caller
    if not caller.operator:
        if hub.rates is not None:  # free for operators alone
            hub.rates.take(caller)
        if hub.settings.operator_metrics:
            audit("operator's act", caller, operation="GET /metrics", result="refused")
            raise Forbidden("metrics take an operator's key")
    return Answer(await exposition.text(hub, _metrics(call)), media=exposition.MEDIA)


async def _engines(call: Call[None]) -> EnginesOut:
    metrics = _metrics(call)
    known = metrics.engines.of(call.caller.tenant)
    now = metrics.clock()
    followed = await exposition.followed_of(call.hub)
    return EnginesOut(
        sorted(
            (_engine(name, engine, now) for name, engine in known.items()),
            key=lambda engine: (-engine.requests, engine.name or ""),
        ),
        [_followed(engine, operator=call.caller.operator) for engine in followed.engines],
    )


def _followed(engine: FollowedEngine, *, operator: bool) -> FollowedEngineOut:
    found = FollowedEngineOut(
        engine.name, engine.alive, engine.level, engine.kind, engine.capacity_tokens, engine.block_size
    )
    if operator:
        found.url, found.why = engine.url, engine.why or None
        found.events, found.lost = engine.counts.events, engine.lost
        found.seconds_since_event = None if engine.last_event is None else round(engine.last_event, 3)
    return found


def _engine(name: str | None, engine: Engine, now: float) -> EngineOut:
    tally = engine.tally
    return EngineOut(
        name=name,
        level=engine.level(now),
        requests=tally.requests,
        block_tokens=tally.block_tokens,
        predicted_cached_tokens=tally.predicted,
        retrieved_cached_tokens=tally.retrieved,
        reports=tally.reports,
        cached_not_reported=tally.not_reported,
        reported_prompt_tokens=tally.reported_prompt,
        reported_cached_tokens=tally.reported_cached,
        reported_predicted_tokens=tally.reported_predicted,
        seconds_since_report=None if engine.reported_at is None else round(now - engine.reported_at, 3),
    )


def _metrics(call: Call[None]) -> Metrics:
    if call.hub.metrics is None:
        raise NotFound("this service counts nothing")
    return call.hub.metrics


OPERATIONS = (
    Operation(
        "GET",
        "/",
        "Status page: what the cache saved in the last hour, for people.",
        _page,
        operator=True,
        free=True,
        always=True,
        media=page.MEDIA,
    ),
    Operation(
        "GET",
        "/metrics",
        "Metrics for Prometheus. Takes an operator's key, unless operator_metrics is off; then any key.",
        _exposition,
        rejections=(Forbidden,),
        free=True,
        always=True,
        media=exposition.MEDIA,
    ),
    Operation(
        "GET",
        "/v1/engines",
        "The tenant's engines: what went to them, and what they report; and those that the service follows.",
        _engines,
        answer=EnginesOut,
        example=(
            None,
            EnginesOut(
                [EngineOut("vllm-0", "usage", 1200, 5_400_000, 3_900_000, 310_000, 1180, 0, 5_800_000, 4_000_000,
                           3_850_000, 0.8)],
                [FollowedEngineOut("vllm-0", True, "events", "vllm", 419_280, 16)],
            ),
        ),
    ),
)  # fmt: skip
