"""Server: an app on a socket, from its start to its orderly end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from email.utils import formatdate
from pathlib import Path
from typing import Any, Protocol

import uvicorn
from uvicorn.server import ServerState

from .listening import Place, check_address, listening
from .loop_work import ended
from .protocol import Connection, Limits
from .tls import Tls

logger = logging.getLogger("contextpilot_rag")
_TICK_SECONDS = 0.5  # how often the Date header is renewed
_FLUSH_SECONDS = 1.0
_LOOK_SECONDS = 0.02  # how often a drain looks whether all is done


class Serving(Place, Limits, Protocol):
    """The settings that a server has."""

    @property
    def tls_certificate(self) -> Path | None:
        """PEM file; None: no TLS."""
        ...

    @property
    def tls_key(self) -> Path | None:
        """PEM file."""
        ...

    @property
    def drain_seconds(self) -> float:
        """Requests under way have so long to end."""
        ...


class Lived(Protocol):
    """What is served: a service, a proxy, or both."""

    @property
    def settings(self) -> Serving:
        """In force."""
        ...

    @property
    def closed(self) -> str:
        """Why others must not reach it, in words; empty: they may."""
        ...

    @property
    def connection(self) -> type[Connection]:
        """What makes requests of bytes."""
        ...

    @property
    def dated(self) -> bool:
        """Answers need a Date header; those that come from elsewhere have one."""
        ...

    def app(self) -> Any:  # noqa: ANN401
        """What answers them, as ASGI has it. Asked for once."""
        ...

    async def start(self) -> None:
        """Get ready to answer.

        Raises:
            ContextPilotError: it cannot.
        """
        ...

    def drain(self) -> None:
        """Take nothing new from now on."""
        ...

    async def stop(self) -> None:
        """Come to an end: no request is under way any more."""
        ...

    def reload(self) -> None:
        """Files may have changed."""
        ...

    def refused(self, status: int, kind: str) -> None:
        """A connection refused something that is no request, or no whole one; it never got to the app."""
        ...


class Server:
    """Serves one service or proxy.

    Args:
        life: what is served.

    Raises:
        SettingsError: it may not, or cannot, listen there.
    """

    def __init__(self, life: Lived) -> None:
        self._life = life
        self._settings = life.settings
        check_address(self._settings, life.closed)
        self._config = uvicorn.Config(
            life.app(),
            interface="asgi3",
            http=life.connection,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
        )
        self._config.load()
        self._state = ServerState()
        self._stopped = False
        self._tls = Tls.of(self._settings.tls_certificate, self._settings.tls_key)
        self._socket = listening(self._settings, life.closed)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ending: asyncio.Event | None = None

    @property
    def address(self) -> str:
        """Where it listens, as a URL."""
        host, port = self._socket.getsockname()[:2]
        scheme = "http" if self._tls is None else "https"
        return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"

    @property
    def connections(self) -> int:
        """How many clients are connected."""
        return len(self._state.connections)

    async def serve(self, ready: Callable[[], None] = lambda: None) -> None:
        """Serve until `stop`; then end what is under way, and what is served.

        Args:
            ready: called when requests are answered.

        Raises:
            ContextPilotError: a part of it cannot be started.
        """
        loop = self._loop = asyncio.get_running_loop()
        ending = self._ending = asyncio.Event()
        if self._stopped:
            ending.set()
        self._renew_date()
        tls = None if self._tls is None else self._tls.context
        patience = None if self._tls is None else self._settings.header_seconds
        server = await loop.create_server(self._protocol, sock=self._socket, ssl=tls, ssl_handshake_timeout=patience)
        ticking = loop.create_task(self._tick())
        try:
            await self._life.start()
            if not ending.is_set():
                ready()
            await ending.wait()
        finally:
            self._life.drain()
            await self._drain()
            server.close()
            await self._close()
            await ended(ticking)
            await self._life.stop()

    def stop(self) -> None:
        """Begin the end; from any thread, and before it has begun, too."""
        self._stopped = True
        if self._loop is not None and self._ending is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._ending.set)

    def reload(self) -> None:
        """Have files read again; from any thread."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._reload)

    def _reload(self) -> None:
        if self._tls is not None:
            self._tls.reload()
        self._life.reload()

    async def _drain(self) -> None:
        """Wait for the requests under way; new ones are refused, and whoever asks hears why."""
        seconds = self._settings.drain_seconds
        if not await self._until(lambda: not self._state.tasks, seconds):
            logger.warning(
                "%d requests were not answered within %g s (--drain-seconds)", len(self._state.tasks), seconds
            )

    async def _close(self) -> None:
        """Close all connections: those that can be flushed first, the others as they are."""
        await asyncio.sleep(_LOOK_SECONDS)  # those that were accepted a moment ago, and are none yet
        for connection in list(self._state.connections):
            connection.shutdown()
        await self._until(lambda: not self._state.connections, 0 if self._state.tasks else _FLUSH_SECONDS)
        for connection in list(self._state.connections):
            connection.transport.abort()
        for task in list(self._state.tasks):
            task.cancel()
        await asyncio.gather(*self._state.tasks, return_exceptions=True)

    async def _until(self, condition: Callable[[], bool], seconds: float) -> bool:
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        while not condition() and loop.time() < until:  # noqa: ASYNC110  nothing tells
            await asyncio.sleep(_LOOK_SECONDS)
        return condition()

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(_TICK_SECONDS)
            self._renew_date()

    def _renew_date(self) -> None:
        if self._life.dated:
            self._state.default_headers = [(b"date", formatdate(usegmt=True).encode())]

    def _protocol(self) -> Connection:
        return self._life.connection(self._settings, self._config, self._state, self._life.refused)
