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


class EnginesOut(Struct):
    """The tenant's engines, the busiest first."""

    engines: list[EngineOut]
