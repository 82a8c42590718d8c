"""Plans over the wire: a batch that is worked on as a job, and what comes of it."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from .wire import BlockIn, BudgetIn, Key, NamespaceIn

Status = Literal["queued", "running", "done", "failed", "cancelled"]
JobId = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_-]{22}$(?!\n)", description="Names a job; nobody can guess it.")]


class PlanRequestIn(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """One request of a plan: its blocks, best first."""

    blocks: list[BlockIn]
    namespace: NamespaceIn = NamespaceIn()
    budget: BudgetIn = BudgetIn()
    key: Key = None


class PlanIn(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Requests that are all known before the first is sent. Nothing is taken as sent: report that as `SentIn`."""

    requests: list[PlanRequestIn]
    time_budget: Annotated[
        Annotated[float, Meta(ge=0, le=10**9)] | None,
        Meta(
            description="Seconds to search for; the best plan found by then is given. Null: until all was tried once."
        ),
    ] = None
    ceiling: Annotated[
        bool,
        Meta(description="Also work out what no plan can pass: takes time by the square of the number of requests."),
    ] = False
    from_cache: Annotated[
        bool, Meta(description="Start from what is believed to be cached, and not from an empty cache.")
    ] = False
    order_hint: Annotated[
        bool | Literal["order", "best"],
        Meta(
            description="How a changed order is told: by all labels (`order`, or true), or by the best block's "
            "(`best`). False: it is not."
        ),
    ] = False


class ProgressOut(Struct):
    """What is being done, how much of it is done, and how much there is at most."""

    what: str
    done: int
    total: int


class JobOut(Struct, omit_defaults=True):
    """A plan that is being worked on, or was."""

    id: JobId
    status: Status
    requests: int
    blocks: Annotated[int, Meta(description="Of all requests together; repeated within a request, they count once.")]
    tokens: int
    namespaces: int
    progress: ProgressOut | None = None
    reason: Annotated[str | None, Meta(description="Why it failed.")] = None
    result_bytes: Annotated[int | None, Meta(description="Size of the result, once there is one.")] = None


class JobsOut(Struct):
    """The caller's jobs, the oldest first."""

    jobs: list[JobOut]


class PlannedOut(Struct, omit_defaults=True):
    """The order chosen for one request of a plan."""

    request: Annotated[int, Meta(description="Position of the request in what was sent.")]
    order: Annotated[
        list[int], Meta(description="Positions in the request's blocks, in prompt order; repeated blocks once.")
    ]
    labels: Annotated[list[int], Meta(description="The label of each of them.")]
    cached_blocks: int
    predicted_cached_tokens: int
    retrieved_cached_tokens: int
    rule: str
    key: str | int | None = None
    order_hint: str | None = None
    merged: Annotated[
        dict[int, int], Meta(description="Position of a block that repeats another: position of the other.")
    ] = {}
    source: Annotated[
        int | None,
        Meta(description="Position in this plan of the request that computes what this one is to find cached."),
    ] = None


class PlanOut(Struct, omit_defaults=True):
    """A whole batch, in the order of sending."""

    alignments: list[PlannedOut]
    tokens: Annotated[int, Meta(description="Of all blocks.")]
    predicted_cached_tokens: int
    retrieved_cached_tokens: Annotated[int, Meta(description="Found if all were sent as retrieved.")]
    hit_ratio: Annotated[float, Meta(description="Predicted cached tokens over tokens.")]
    changed: Annotated[int, Meta(description="Requests whose order is not the retriever's.")]
    complete: Annotated[bool, Meta(description="False: the time was up before everything was tried.")]
    ceiling_tokens: Annotated[int | None, Meta(description="No plan of this batch can find more cached.")] = None
