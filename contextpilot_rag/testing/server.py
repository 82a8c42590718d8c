"""The FakeEngine over HTTP on the loopback interface: a starlette app in uvicorn, in a daemon thread.

Imports both, which are an extra; `FakeEngine` imports this only when a server is started.
"""

from __future__ import annotations

import asyncio
import os
import socket
import threading
import time
from typing import TYPE_CHECKING

import uvicorn
from starlette.responses import Response

from ..errors import EngineUnavailable
from .routes import routes

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from .fake import FakeEngine

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
        self._inner = routes(engine, self._dropped)
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
