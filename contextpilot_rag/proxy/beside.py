"""Beside: a proxy in the process of the service, on its port and with its keys: ``serve --upstream``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from email.utils import formatdate
from typing import Any

from ..service import life as services
from ..service.app import App
from ..service.hub import Hub
from ..service.operation import Operation
from ..service.problems import MethodNotAllowed, Rejected
from ..service.process import say_ready, serve_life
from ..service.protocol import Connection
from ..service.routes import Routes
from ..service.settings import ServiceSettings
from ..service.table import operations
from ..settings import Settings
from .connection import PatientConnection
from .life import ProxyLife, assemble
from .own_routes import UNDER, OwnRoutes, Receive, Send
from .process import say_forwarding
from .served import ServedIndex
from .settings import ProxySettings
from .tenants import Tenants


class BesideConnection(PatientConnection):
    """As the proxy has it; what is no request is refused in the service's words."""

    problem = Connection.problem


class Beside:
    """A service and a proxy from their start to their end.

    What the service's own operations claim is the service's; all else goes to the upstream.

    Args:
        service: with its keys, its indexes and its state.
        proxy: aligns with the service's indexes.
    """

    connection = BesideConnection
    dated = False

    def __init__(self, service: services.Life, proxy: ProxyLife) -> None:
        self.service = service
        self.proxy = proxy
        own, through = service.settings, proxy.settings
        self._settings = replace(  # the service's own limits count once a request is known to be the service's
            own,
            body_seconds=max(own.body_seconds, through.body_seconds),
            drain_seconds=max(own.drain_seconds, through.drain_seconds),
            max_connections=max(own.max_connections, through.max_connections),
        )

    @property
    def hub(self) -> Hub:
        """The service's parts."""
        return self.service.hub

    @property
    def settings(self) -> ServiceSettings:
        """Of the server."""
        return self._settings

    @property
    def closed(self) -> str:
        """As the service has it."""
        return self.service.closed

    def app(self) -> Fork:
        """What answers requests."""
        return Fork(self.service.app(), self.proxy.app())

    async def start(self) -> None:
        """Get ready: first the service, which the proxy asks."""
        await self.service.start()
        await self.proxy.start()

    def drain(self) -> None:
        """Refuse new requests from now on."""
        self.service.drain()
        self.proxy.drain()

    async def stop(self) -> None:
        """Come to an end: what the proxy has learnt is in the service's last snapshot."""
        try:
            await self.proxy.stop()
        finally:
            await self.service.stop()

    def reload(self) -> None:
        """SIGHUP: read again what is read from files."""
        self.service.reload()

    def refused(self, status: int, kind: str) -> None:
        """A connection refused something."""
        self.service.refused(status, kind)


class Fork:
    """An ASGI app: the service's operations to the service, all else to the proxy.

    Args:
        service: answers its own.
        proxy: answers all else.
    """

    def __init__(self, service: App, proxy: OwnRoutes) -> None:
        self._service = service
        self._proxy = proxy
        every: list[tuple[Operation, None]] = [(operation, None) for operation in operations()]
        self._routes = Routes(every)

    async def __call__(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        """Answer one request."""
        if not self._claims(scope["method"], scope["raw_path"]):
            await self._proxy(scope, receive, send)
            return

        async def dated(message: dict[str, Any]) -> None:
            if message["type"] == "http.response.start":
                date = (b"date", formatdate(usegmt=True).encode())
                message = {**message, "headers": [date, *message["headers"]]}
            await send(message)

        await self._service(scope, receive, dated)

    def _claims(self, method: str, path: bytes) -> bool:
        if path.startswith(UNDER):
            return False
        try:
            self._routes.find(method, path)
        except MethodNotAllowed:
            return True
        except Rejected:
            return False
        return True


def assemble_beside(
    settings: ServiceSettings, proxy: ProxySettings, chosen: Settings, *, alone: bool = False
) -> Beside:
    """A service, and a proxy on its indexes.

    Tenants are the service's: by its file of keys, or all are one where it has none.

    Args:
        settings: of the service.
        proxy: of the proxy; where it listens, and who may ask, the service says.
        chosen: of its pilot.
        alone: the process is theirs.

    Raises:
        SettingsError: they cannot be had.
    """
    service = services.assemble(settings, alone=alone)
    through = replace(
        proxy,
        host=settings.host,
        port=settings.port,
        keys=settings.keys,
        open=False,
        tenant_by="nobody" if settings.keys is None else "key",
        tenant_header="",
        operator_metrics=settings.operator_metrics,
        salt_secret=proxy.salt_secret or settings.salt_secret,
    )
    hub = service.hub
    forwarding = assemble(
        through,
        chosen,
        index=ServedIndex(hub.service),
        tenants=Tenants(through, "", hub.gate, hub.rates),
        replica=None if hub.replicas is None else hub.replicas.carrier,
        secret=settings.salt_secret,
    )
    if hub.replicas is not None:
        hub.replicas.forgetting.append(forwarding.parts.rewriter.decisions.forget)
    return Beside(service, forwarding)


def serve_beside(settings: ServiceSettings, proxy: ProxySettings, chosen: Settings, tell: Callable[[str], None]) -> int:
    """Serve and forward until SIGTERM or SIGINT; the exit status.

    Args:
        settings: of the service.
        proxy: of the proxy.
        chosen: of its pilot.
        tell: is given a few lines when requests are answered, unless logs are JSON.

    Raises:
        ContextPilotError: they cannot be started.
    """

    def ready(address: str) -> None:
        say_ready(address, settings, tell)
        say_forwarding(address, replace(proxy, log_format=settings.log_format), tell)

    return serve_life(lambda: assemble_beside(settings, proxy, chosen, alone=True), settings.log_format, ready)
