"""The FakeEngine over HTTP on the loopback interface: a starlette app in uvicorn, in a daemon thread.

Imports both, which are an extra; `FakeEngine` imports this only when a server is started.
"""

from __future__ import annotations

import asyncio
import os
import socket
import threading
import time
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from ..errors import EngineRefused, EngineUnavailable, EngineUnreachable, InputError

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

    from .fake import FakeEngine

MAX_BODY_BYTES = 64 * 2**20
START_SECONDS = 10.0
STOP_SECONDS = 10.0


class LoopbackServer:
    """Serves an engine on 127.0.0.1 from when it is made until `stop`.

    Raises:
        EngineUnavailable: the port is taken, or the server does not start.
    """

    def __init__(self, engine: FakeEngine, port: int = 0) -> None:
        self._socket = _listening(port)
        self.address = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self._loop: asyncio.AbstractEventLoop | None = None
        self._running: set[asyncio.Task[object]] = set()
        config = uvicorn.Config(
            self._app,
            interface="asgi3",
            loop="asyncio",
            http="h11",
            ws="none",
            lifespan="off",
            log_config=None,  # a library leaves the logging of its process alone
            access_log=False,
            proxy_headers=False,
            timeout_graceful_shutdown=1,
        )
        self._server = uvicorn.Server(config)
        self._dropped = _Dropped(self._server)
        self._inner = _app(engine, self._dropped)
        self._thread = threading.Thread(target=self._run, name="FakeEngine", daemon=True)
        self._thread.start()
        deadline = time.monotonic() + START_SECONDS
        while not self._server.started:
            self._thread.join(0.002)
            if not self._thread.is_alive() or time.monotonic() > deadline:
                self._server.should_exit = True
                raise EngineUnavailable(f"the FakeEngine's server did not start on {self.address}")

    def stop(self) -> None:
        """End the server; requests in progress are cut off."""
        loop = self._loop
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(self._cut_off)
        self._server.should_exit = True
        self._thread.join(STOP_SECONDS)
        if self._thread.is_alive():
            raise EngineUnavailable(f"the FakeEngine's server on {self.address} did not end in {STOP_SECONDS} s")

    def _run(self) -> None:
        with self._socket:
            asyncio.run(self._serve())

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        await self._server.serve(sockets=[self._socket])

    def _cut_off(self) -> None:
        for task in self._running:
            task.cancel()

    async def _app(self, scope: Scope, receive: Receive, send: Send) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101  uvicorn runs each request in one
        self._running.add(task)
        try:
            await self._inner(scope, receive, send)
        except asyncio.CancelledError:
            # Only stop() cancels. Ended here, uvicorn has no error to log for it.
            await self._dropped(scope, receive, send)
        finally:
            self._running.discard(task)


class _Dropped(Response):
    """No answer: the connection is closed. ASGI has no word for it, so that it is done behind uvicorn's back."""

    def __init__(self, server: uvicorn.Server) -> None:
        super().__init__()
        self._server = server

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        for connection in list(self._server.server_state.connections):
            if getattr(connection, "client", None) == tuple(scope["client"]):
                connection.transport.abort()
        while (await receive())["type"] != "http.disconnect":
            pass


def _app(engine: FakeEngine, dropped: Response) -> ASGIApp:
    async def chat(request: Request) -> Response:
        answer = engine.receive(await _body(request))

        async def prefilled() -> None:
            try:
                if answer.wait_seconds > 0:
                    await engine.sleep(answer.wait_seconds)
            finally:
                engine.prefilled(answer)

        if answer.stream:

            async def events() -> AsyncIterator[bytes]:
                await prefilled()
                for chunk in answer.chunks():
                    yield b"data: " + msgspec.json.encode(chunk) + b"\n\n"
                yield b"data: [DONE]\n\n"

            return StreamingResponse(events(), media_type="text/event-stream")
        await prefilled()
        return _json(answer.completion())

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

    async def failed(_: Request, error: Exception) -> Response:
        if isinstance(error, EngineUnreachable | ClientDisconnect):
            return dropped
        if isinstance(error, EngineRefused):
            return _error(str(error), error.status or 500)
        if isinstance(error, HTTPException):
            return _error(error.detail, error.status_code)
        return _error(str(error), 400)

    return Starlette(
        routes=[
            Route("/v1/chat/completions", chat, methods=["POST"]),
            Route("/v1/models", models),
            Route("/health", health),
            Route("/tokenize", tokenize, methods=["POST"]),
            Route("/reset_prefix_cache", reset, methods=["POST"]),
        ],
        exception_handlers=dict.fromkeys(
            (InputError, EngineRefused, EngineUnreachable, ClientDisconnect, HTTPException), failed
        ),
    )


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


def _listening(port: int) -> socket.socket:
    # asyncio sends small packets at once only on sockets that say they are TCP; else each answer waits some 40 ms.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        if os.name == "posix":  # elsewhere it would let two servers share a port
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", port))
    except (OSError, OverflowError, TypeError) as error:
        listener.close()
        raise EngineUnavailable(f"the FakeEngine's server cannot have port {port!r} of 127.0.0.1: {error}") from error
    return listener
