"""App: the service as ASGI. One look-up, one check after another, one answer; problems as RFC 9457 has them.

No framework: paths must be split before they are decoded, every refusal is a problem, and a request should cost as
little as it can on the machine that it shares with an engine.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import msgspec

from .body import ClientGoneError, Receive, linger
from .endpoint import Endpoint
from .heads import LoopbackHosts, wanted
from .hub import Hub, State
from .operation import Answer, Operation
from .problems import Failed, MethodNotAllowed, Rejected, TooLarge, Unauthorized
from .refused import Refusals
from .routes import Routes

logger = logging.getLogger("contextpilot_rag")

Send = Callable[[dict[str, Any]], Awaitable[None]]
_LINGER_BYTES = 32 * 2**20  # of a refused body that are read on, so that its sender hears why
_LINGER_SECONDS = 2.0
_SAFE = ((b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff"))
_JSON = ((b"content-type", b"application/json"), *_SAFE)
_CLOSE = ((b"connection", b"close"),)
_UNREAD = frozenset({408, 413})  # answered while the body is still on its way: nothing can follow it


class App:
    """Answers requests.

    Args:
        hub: the running service.
        operations: what can be asked of it.
    """

    def __init__(self, hub: Hub, operations: Sequence[Operation]) -> None:
        self._hub = hub
        self._routes = Routes([(operation, Endpoint(operation, hub)) for operation in operations])
        self._encode = msgspec.json.Encoder().encode
        self._refusals = Refusals()
        self._hosts = None if hub.settings.keys is not None else LoopbackHosts()

    async def __call__(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        """Answer one request, as ASGI has it."""
        started = time.perf_counter()
        name, kind = "none", None
        head: dict[bytes, bytes] = {}
        try:
            head = wanted(scope["headers"])
            if self._hosts is not None:
                self._hosts.check(head.get(b"host"))
            endpoint, path = self._routes.find(scope["method"], scope["raw_path"])
            name = endpoint.name
            tracer = self._hub.tracer
            with nullcontext() if tracer is None else tracer.span(name, head):
                given = await endpoint.answer(head, path, scope["query_string"], receive)
            answer = given if isinstance(given, Answer) else Answer(given, endpoint.operation.status)
        except ClientGoneError:
            return
        except asyncio.CancelledError:
            if self._hub.state is State.DRAINING:  # time is up, and nobody is connected any more
                return
            raise
        except MethodNotAllowed as error:
            kind = error.kind
            answer = _allowed(error) if scope["method"] == "OPTIONS" else problem(error)
        except Rejected as error:
            kind = error.kind
            answer = problem(error)
            if isinstance(error, Unauthorized):
                client = scope.get("client")
                self._refusals.add(client[0] if client else "somebody", shown=b"authorization" in head)
        except Exception:
            # Never for what was sent: that is checked. Once a traceback, and nothing of it to the client.
            logger.exception("%s failed", name)
            kind = "failed"
            answer = problem(Failed("the service failed; its log says why"))
        if self._hub.metrics is not None:
            self._hub.metrics.took(name, time.perf_counter() - started, answer.status, kind)
        await self._send(answer, receive, send)

    async def _send(self, answer: Answer, receive: Receive, send: Send) -> None:
        given = answer.body
        body = given if isinstance(given, bytes | bytearray) else b"" if given is None else self._encode(given)
        headers: list[tuple[bytes, bytes]]
        if answer.status == 204:
            headers = []
        elif answer.media == "application/json":
            headers = [*_JSON, (b"content-length", b"%d" % len(body))]
        else:
            headers = [(b"content-type", answer.media.encode()), *_SAFE, (b"content-length", b"%d" % len(body))]
        if answer.headers:
            for name, value in answer.headers.items():
                values = (value,) if isinstance(value, str) else value
                headers += [(name.lower().encode(), each.encode("latin-1")) for each in values]
        if answer.status in _UNREAD:
            headers += _CLOSE
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        if answer.status == TooLarge.status:
            await send({"type": "http.response.body", "body": body, "more_body": True})
            await linger(receive, _LINGER_BYTES, _LINGER_SECONDS)
            body = b""
        await send({"type": "http.response.body", "body": body})


def problem(error: Rejected) -> Answer:
    """What is sent instead of a result."""
    return Answer(error.problem(), error.status, error.headers, "application/problem+json")


def _allowed(error: MethodNotAllowed) -> Answer:
    return Answer(None, 204, error.headers)
