"""Server: the app on a socket, from its start to its orderly end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from email.utils import formatdate

import uvicorn
from uvicorn.server import ServerState

from .app import App
from .hub import State
from .life import Life
from .listening import check_address, listening
from .protocol import Connection
from .table import operations

logger = logging.getLogger("contextpilot_rag")
_TICK_SECONDS = 0.5  # how often the Date header is renewed
_LOOK_SECONDS = 0.02  # how often a drain looks whether all is done


class Server:
    """Serves one service.

    Args:
        life: the service.

    Raises:
        SettingsError: it may not, or cannot, listen there.
    """

    def __init__(self, life: Life) -> None:
        self._life = life
        self._settings = life.hub.settings
        check_address(self._settings)
        self._socket = listening(self._settings.host, self._settings.port)
        self._config = uvicorn.Config(
            App(life.hub, operations()),
            interface="asgi3",
            http=Connection,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            ssl_certfile=self._settings.tls_certificate,
            ssl_keyfile=self._settings.tls_key,
        )
        self._state = ServerState()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ending: asyncio.Event | None = None

    @property
    def address(self) -> str:
        """Where it listens, as a URL."""
        host, port = self._socket.getsockname()[:2]
        scheme = "https" if self._settings.tls_certificate else "http"
        return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"

    @property
    def connections(self) -> int:
        """How many clients are connected."""
        return len(self._state.connections)

    async def serve(self, ready: Callable[[], None] = lambda: None) -> None:
        """Serve until `stop`; then end what is under way, and the parts of the service.

        Args:
            ready: called when requests are answered.

        Raises:
            ContextPilotError: a part of the service cannot be started.
        """
        loop = self._loop = asyncio.get_running_loop()
        ending = self._ending = asyncio.Event()
        self._config.load()
        self._renew_date()
        tls = self._config.ssl
        patience = self._settings.header_seconds if tls else None
        server = await loop.create_server(self._protocol, sock=self._socket, ssl=tls, ssl_handshake_timeout=patience)
        ticking = loop.create_task(self._tick())
        try:
            await self._life.start()
            ready()
            await ending.wait()
            self._life.hub.state = State.DRAINING
            await self._drain()
        finally:
            self._life.hub.state = State.DRAINING
            ticking.cancel()
            server.close()
            for connection in list(self._state.connections):
                connection.shutdown()
            await self._life.stop()
            for connection in list(self._state.connections):
                connection.transport.abort()
            with suppress(asyncio.CancelledError):
                await ticking

    def stop(self) -> None:
        """Begin the end; from any thread."""
        if self._loop is not None and self._ending is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._ending.set)

    def reload(self) -> None:
        """Have files read again; from any thread."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._life.reload)

    async def _drain(self) -> None:
        """Wait for the requests under way."""
        loop = asyncio.get_running_loop()
        until = loop.time() + self._settings.drain_seconds
        while self._state.tasks and loop.time() < until:  # noqa: ASYNC110  new ones may come: probes
            await asyncio.sleep(_LOOK_SECONDS)
        if self._state.tasks:
            logger.warning("%d requests were not answered within drain_seconds", len(self._state.tasks))

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(_TICK_SECONDS)
            self._renew_date()

    def _renew_date(self) -> None:
        self._state.default_headers = [(b"date", formatdate(usegmt=True).encode())]

    def _protocol(self) -> Connection:
        return Connection(self._settings, self._config, self._state)
