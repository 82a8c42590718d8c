"""Operation: one thing that can be asked of the service; routes and the OpenAPI document come from the same table."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import msgspec

from ..remote import wire
from .auth import Caller
from .hub import Hub
from .problems import Rejected
from .tenant import Tenant

BodyT = TypeVar("BodyT")


@dataclass(frozen=True, slots=True)
class Call(Generic[BodyT]):
    """A request that passed authentication, rate, limits and the check against its type.

    Args:
        hub: the running service.
        caller: who asks.
        body: decoded; None where the operation takes none.
        raw: the body as it came.
        path: path parameters, unquoted.
        query: query parameters.
    """

    hub: Hub
    caller: Caller
    body: BodyT
    raw: bytes | bytearray
    path: Mapping[str, str]
    query: Mapping[str, str]

    @property
    def tenant(self) -> Tenant:
        """The caller's."""
        return self.hub.service.tenant(self.caller.tenant)

    async def caught_up(self, *bodies: wire.AlignIn | wire.ObserveIn | wire.CoverIn) -> None:
        """Wait a little, if a body names something that another replica may have told and is not known here yet."""
        replicas, tenant = self.hub.replicas, self.tenant
        if replicas is not None and any(map(tenant.misses, bodies)):
            await replicas.catch_up(lambda: not any(map(tenant.misses, bodies)))


@dataclass(frozen=True, slots=True)
class Answer:
    """What is sent back, where it is not simply a struct with the operation's status.

    Args:
        body: a struct, sent as JSON; or bytes, as they are; or None.
        status: HTTP status.
        headers: besides those that every answer has; several values are several lines.
        media: the content type.
    """

    body: msgspec.Struct | bytes | bytearray | None
    status: int = 200
    headers: Mapping[str, str | tuple[str, ...]] = field(default_factory=dict)
    media: str = "application/json"


@dataclass(frozen=True, slots=True)
class Operation:
    """One method of one path.

    Args:
        method: of HTTP.
        path: with parameters in braces.
        summary: one line.
        handler: answers it; what it raises as `Rejected` is sent as a problem.
        body: type of the body; None: none is taken. Bodies are JSON.
        decoded: False: the handler gets the body raw only; it is not checked here.
        answer: type of the answer; None: no JSON.
        status: of success.
        rejections: what it may be answered with besides (401, 413 and 429 are known of all).
        example: of the body, and of the answer.
        parameters: path and query parameters, name: (where, schema, description).
        open: needs no key.
        operator: needs an operator's key.
        free: is not counted for the rate.
        always: is answered while the service starts or drains, too.
        long: the body may be as long as a plan's.
        media: the content type of success, where it is no JSON.
    """

    method: str
    path: str
    summary: str
    handler: Callable[[Call[Any]], Awaitable[msgspec.Struct | Answer]]
    body: Any = None
    decoded: bool = True
    answer: Any = None
    status: int = 200
    rejections: tuple[type[Rejected], ...] = ()
    example: tuple[Any, Any] = (None, None)
    parameters: Mapping[str, tuple[str, Mapping[str, Any], str]] = field(default_factory=dict)
    open: bool = False
    operator: bool = False
    free: bool = False
    always: bool = False
    long: bool = False
    media: str = "application/json"
