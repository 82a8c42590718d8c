"""What a FakeEngine serves, as a starlette app. Imported only when a server is started."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from ..errors import EngineRefused, EngineUnreachable, InputError
from .answers import Answer
from .facts import version
from .questions import Kind

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from .fake import FakeEngine

MAX_BODY_BYTES = 64 * 2**20
MESSAGES = "/v1/messages"
_ANTHROPIC_ERRORS = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    529: "overloaded_error",
}

Endpoint = Callable[[Request], Awaitable[Response]]


def routes(engine: FakeEngine, dropped: Response) -> Starlette:
    """The app.

    Args:
        engine: whose.
        dropped: closes a connection without an answer.
    """

    def answers(kind: Kind) -> Endpoint:
        async def endpoint(request: Request) -> Response:
            return _Answered(engine, engine.receive(await _body(request), kind))

        return endpoint

    async def models(_: Request) -> Response:
        model = {
            "id": engine.model,
            "object": "model",
            "created": 0,
            "owned_by": "contextpilot-rag",
            "max_model_len": engine.max_model_len,
        }
        return _json({"object": "list", "data": [model]})

    async def health(_: Request) -> Response:
        return Response()

    async def tokenize(request: Request) -> Response:
        return _json(engine.tokenize(await _body(request)))

    async def reset(_: Request) -> Response:
        engine.reset()
        return Response()

    async def metrics(_: Request) -> Response:
        return Response(engine.facts().metrics(), media_type="text/plain; version=0.0.4")

    async def server_info(_: Request) -> Response:
        return _json(engine.facts().server_info())

    async def say_version(_: Request) -> Response:
        return _json({"version": version()})

    async def failed(request: Request, error: Exception) -> Response:
        if isinstance(error, EngineUnreachable | ClientDisconnect):
            return dropped
        say = _messages_error if request.url.path == MESSAGES else _error
        if isinstance(error, EngineRefused):
            return say(str(error), error.status or 500)
        if isinstance(error, HTTPException):
            return say(error.detail, error.status_code)
        return say(str(error), 400)

    own = [
        Route("/version", say_version),
        Route("/reset_prefix_cache", reset, methods=["POST"]),
    ]
    if engine.dialect == "sglang":
        own = [
            Route("/server_info", server_info),
            Route("/get_server_info", server_info),  # its older name
            Route("/flush_cache", reset, methods=["GET", "POST"]),
            Route("/v1/tokenize", tokenize, methods=["POST"]),
        ]
    return Starlette(
        routes=[
            Route("/v1/chat/completions", answers("chat"), methods=["POST"]),
            Route("/v1/completions", answers("completion"), methods=["POST"]),
            Route("/v1/responses", answers("response"), methods=["POST"]),
            Route(MESSAGES, answers("message"), methods=["POST"]),
            Route("/v1/models", models),
            Route("/health", health),
            Route("/metrics", metrics),
            Route("/tokenize", tokenize, methods=["POST"]),
            *own,
        ],
        exception_handlers=dict.fromkeys(
            (InputError, EngineRefused, EngineUnreachable, ClientDisconnect, HTTPException), failed
        ),
    )


class _Answered(Response):
    """An answer, whole or in chunks, after the engine's wait for it."""

    def __init__(self, engine: FakeEngine, answer: Answer) -> None:
        super().__init__()
        self._engine = engine
        self._answer = answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        engine, answer = self._engine, self._answer
        with engine.at_work():
            try:
                if answer.stream:
                    await StreamingResponse(self._events(), media_type="text/event-stream")(scope, receive, send)
                else:
                    await self._prefilled()
                    await _json(answer.completion())(scope, receive, send)
            finally:
                engine.prefilled(answer)  # also where nobody waits for it any more

    async def _prefilled(self) -> None:
        if self._answer.wait_seconds > 0:
            await self._engine.sleep(self._answer.wait_seconds)
        self._engine.prefilled(self._answer)

    async def _events(self) -> AsyncIterator[bytes]:
        await self._prefilled()
        named = False
        for chunk in self._answer.chunks():
            named = "type" in chunk
            yield _event(chunk)
        if not named:
            yield b"data: [DONE]\n\n"


def _event(chunk: Mapping[str, Any]) -> bytes:
    """A server-sent event. The events of a response and of messages have names."""
    name = f"event: {chunk['type']}\n" if "type" in chunk else ""
    return name.encode() + b"data: " + msgspec.json.encode(chunk) + b"\n\n"


async def _body(request: Request) -> bytes:
    """The whole body. One that is too large is still read on for a while, or its sender would not hear the answer."""
    kept: list[bytes] = []
    size = 0
    async for chunk in request.stream():
        size += len(chunk)
        if size <= MAX_BODY_BYTES:
            kept.append(chunk)
        elif size <= 4 * MAX_BODY_BYTES:
            kept.clear()
        else:
            raise ClientDisconnect  # enough: the connection is closed
    if size > MAX_BODY_BYTES:
        raise HTTPException(413, f"the body is larger than {MAX_BODY_BYTES} bytes")
    return b"".join(kept)


def _json(value: object, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status, media_type="application/json")


def _error(message: str, status: int) -> Response:
    kind = "BadRequestError" if status < 500 else "InternalServerError"
    return _json({"error": {"message": message, "type": kind, "param": None, "code": status}}, status)


def _messages_error(message: str, status: int) -> Response:
    kind = _ANTHROPIC_ERRORS.get(status, "invalid_request_error" if status < 500 else "api_error")
    return _json({"type": "error", "error": {"type": kind, "message": message}}, status)
