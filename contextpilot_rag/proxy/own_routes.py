"""What the proxy answers itself, under ``/contextpilot/``. Every other path is the upstream's."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from email.utils import formatdate
from typing import Any, Protocol

import msgspec

from ..replicas.status import ReplicaStatus
from . import exposition
from .counts import Counts
from .heads import Headers
from .problems import Refused

logger = logging.getLogger("contextpilot_rag")

Receive = Callable[[], Awaitable[Any]]
Send = Callable[[dict[str, Any]], Awaitable[None]]
App = Callable[[Mapping[str, Any], Receive, Send], Awaitable[None]]

UNDER = b"/contextpilot/"
_JSON = "application/json"
_SAFE = ((b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff"))


@dataclass(frozen=True, slots=True)
class Standing:
    """How an upstream stands.

    Args:
        name: of it.
        alive: whether it answers, as far as is known.
        level: how its cache is followed.
        why: why it is not alive, or not followed by its events; empty: nothing is wrong.
    """

    name: str
    alive: bool = True
    level: str = "model"
    why: str = ""


class Operators(Protocol):
    """Says who may see what operators see."""

    def operator(self, headers: Headers) -> bool:
        """Whether who asks may.

        Raises:
            Refused: it is not clear who asks, or nobody that may ask anything.
        """
        ...


class NotOurs(Refused):
    """Nothing is at this path."""

    status = 404


class NotAllowed(Refused):
    """Who asks may not see this."""

    status = 403
    kind = "permission_error"


class NotThatWay(Refused):
    """The path is there, to be read."""

    status = 405


class OwnRoutes:
    """An ASGI app: answers the proxy's own paths, and hands on all others.

    Args:
        app: answers the others.
        counts: of the proxy.
        standing: how the upstreams stand.
        operators: who may see metrics and upstreams.
        closed: metrics and upstreams are for operators.
        replica: how it stands to a log; None: nothing is to be said of one.

    Attributes:
        draining: the proxy ends, and is no more ready.
    """

    def __init__(
        self,
        app: App,
        counts: Counts,
        standing: Callable[[], Awaitable[Sequence[Standing]]],
        operators: Operators,
        *,
        closed: bool = True,
        replica: Callable[[], ReplicaStatus | None] = lambda: None,
    ) -> None:
        self._replica = replica
        self._app = app
        self._counts = counts
        self._standing = standing
        self._operators = operators
        self._closed = closed
        self.draining = False

    async def __call__(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        """Answer one request, as ASGI has it."""
        path = scope["raw_path"]
        if not path.startswith(UNDER):
            await self._app(scope, receive, send)
            return
        headers: dict[str, str] = {}
        try:
            status, media, body = await self._answer(path.partition(b"?")[0], scope)
        except Refused as error:
            status, media, body = error.status, _JSON, msgspec.json.encode(error.problem())
            headers = error.headers
        except Exception:
            logger.exception("%s failed", path.decode("latin-1"))
            status, media, body = (
                500,
                _JSON,
                msgspec.json.encode(Refused("the proxy failed; its log says why").problem()),
            )
        answer = [
            (b"date", formatdate(usegmt=True).encode()),
            (b"content-type", media.encode()),
            (b"content-length", b"%d" % len(body)),
            *_SAFE,
        ]
        answer += [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
        await send({"type": "http.response.start", "status": status, "headers": answer})
        await send({"type": "http.response.body", "body": body})

    async def _answer(self, path: bytes, scope: Mapping[str, Any]) -> tuple[int, str, bytes]:
        """Status, type and body."""
        name = path.removeprefix(UNDER)
        if name not in {b"health", b"ready", b"metrics", b"upstreams"}:
            raise NotOurs("the proxy has /contextpilot/health, /ready, /metrics and /upstreams")
        if scope["method"] not in {"GET", "HEAD"}:
            raise NotThatWay("this path takes GET", headers={"allow": "GET, HEAD"})
        if name == b"health":
            return 200, _JSON, msgspec.json.encode({"status": "draining" if self.draining else "alive"})
        standing = await self._standing()
        if name == b"ready":
            alive = sum(one.alive for one in standing)
            ready = alive > 0 and not self.draining
            state = "draining" if self.draining else "ready" if ready else "no upstream answers"
            return (200 if ready else 503), _JSON, msgspec.json.encode({"status": state, "alive": alive})
        if not self._operators.operator(scope["headers"]) and self._closed:
            raise NotAllowed("this takes an operator's key")
        if name == b"upstreams":
            return 200, _JSON, msgspec.json.encode({"upstreams": standing})
        shown = await asyncio.to_thread(exposition.text, self._counts, standing, self._replica())
        return 200, exposition.MEDIA, shown
