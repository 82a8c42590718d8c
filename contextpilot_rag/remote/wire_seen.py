"""What the service tells of engines, over the wire."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct


class EngineOut(Struct):
    """One engine, as this tenant's requests name it. Tokens are sums since the service's start."""

    name: Annotated[str | None, Meta(description="Null: requests that name no engine.")]
    level: Annotated[
        Literal["usage", "model"],
        Meta(description="What keeps the index in step: usage reports of the last hour, or nothing but its own model."),
    ]
    requests: int
    block_tokens: int
    predicted_cached_tokens: int
    retrieved_cached_tokens: int
    reports: Annotated[int, Meta(description="Usage reports that say what was cached.")]
    cached_not_reported: Annotated[int, Meta(description="Usage reports that do not say what was cached.")]
    reported_prompt_tokens: int
    reported_cached_tokens: int
    reported_predicted_tokens: Annotated[
        int,
        Meta(description="What had been predicted for the reported requests; the calibration is reported over this."),
    ]
    seconds_since_report: Annotated[float | None, Meta(description="Null: none yet.")]


class FollowedEngineOut(Struct, omit_defaults=True):
    """One engine that the index is kept in step with. Some of it is for operators only."""

    name: str
    alive: Annotated[bool, Meta(description="Whether it answers the service.")]
    level: Annotated[
        Literal["events", "usage", "model"],
        Meta(description="What keeps the index in step: its KV-cache events, usage reports, or only its size."),
    ]
    kind: str = "unknown"
    capacity_tokens: int | None = None
    block_size: Annotated[int | None, Meta(description="Tokens of a KV block.")] = None
    url: Annotated[str | None, Meta(description="For operators.")] = None
    why: Annotated[
        str | None, Meta(description="For operators: why it does not answer, or is not followed by its events.")
    ] = None
    events: Annotated[int | None, Meta(description="For operators: events that it told.")] = None
    lost: Annotated[int | None, Meta(description="For operators: how often all that it had told was dropped.")] = None
    seconds_since_event: Annotated[float | None, Meta(description="For operators.")] = None


class EnginesOut(Struct, omit_defaults=True):
    """The tenant's engines, the busiest first; and those that the service follows by itself."""

    engines: list[EngineOut]
    followed: Annotated[
        list[FollowedEngineOut], Meta(description="One pool for all tenants; by the names that the operator gave them.")
    ] = []
