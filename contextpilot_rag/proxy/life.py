"""Life: the parts of a proxy put together, started before it is ready, and stopped after its last answer."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass

from ..async_pilot import AsyncContextPilot
from ..errors import SettingsError
from ..index.local import ContextIndex
from ..replicas.address import SCHEMES
from ..replicas.sinks import Carrier
from ..service.garbage import Garbage
from ..service.gate import KeyWatch
from ..settings import Settings
from .app import ProxyApp
from .connection import PatientConnection
from .counts import OTHER, Counts
from .decisions import Others
from .health import HealthChecks
from .own_routes import OwnRoutes, Standing
from .rewriter import Rewriter
from .settings import ProxySettings
from .tenants import Tenants, secret_of
from .upstreams import Upstreams

logger = logging.getLogger("contextpilot_rag")

NO_UPSTREAM = (
    "--upstream URL (or CONTEXTPILOT_PROXY_UPSTREAMS) is needed: where requests go, such as http://127.0.0.1:8000 or "
    "https://api.openai.com"
)
OPEN = (
    "others can reach this proxy there, and it has no keys; make some with `contextpilot-rag keys add --file FILE "
    "--tenant NAME` and give --keys FILE, or --open if the upstream itself or something in front says who may ask, or "
    "listen on 127.0.0.1"
)


UNSHARED = (
    "proxies that share a log need CONTEXTPILOT_PROXY_SALT_SECRET, the same for all: its signatures and tenants' names "
    "are derived from it. Make one: openssl rand -base64 32"
)


@dataclass(slots=True)
class Parts:
    """What a proxy consists of.

    Args:
        settings: of the proxy.
        pilot: aligns.
        tenants: say who asks.
        upstreams: where requests go.
        rewriter: the half that knows prompts.
        counts: what was done.
        app: the half that knows HTTP.
    """

    settings: ProxySettings
    pilot: AsyncContextPilot
    tenants: Tenants
    upstreams: Upstreams
    rewriter: Rewriter
    counts: Counts
    app: ProxyApp


class ProxyLife:
    """A proxy from its start to its end.

    Args:
        parts: it consists of.
        alone: the process is the proxy's, so it may decide when garbage is collected.
    """

    connection = PatientConnection
    dated = False

    def __init__(self, parts: Parts, *, alone: bool = False) -> None:
        self.parts = parts
        self._front = OwnRoutes(
            parts.app,
            parts.counts,
            self.standing,
            parts.tenants,
            closed=parts.settings.operator_metrics,
            replica=lambda: None if parts.pilot.replica is None else parts.pilot.replica.status,
        )
        self._garbage = Garbage() if alone else None
        if self._garbage is not None:
            parts.counts.tell = self._garbage.used
        unfollowed = () if parts.upstreams.cloud or len(parts.pilot.engines) else parts.settings.engines
        self._health = HealthChecks(unfollowed, parts.upstreams)
        self._keys = KeyWatch(  # nothing to see where somebody else watches: it costs little
            parts.tenants.gate, None, regrouped=parts.rewriter.decisions.regrouped
        )

    @property
    def settings(self) -> ProxySettings:
        """In force."""
        return self.parts.settings

    @property
    def closed(self) -> str:
        """Without keys whoever reaches the proxy is served."""
        return OPEN if self.settings.keys is None and not self.settings.open else ""

    def app(self) -> OwnRoutes:
        """What answers requests."""
        return self._front

    async def start(self) -> None:
        """Get ready."""
        if self._garbage is not None:
            await self._garbage.start()
        await self._keys.start()
        await self._health.start()
        await self.parts.rewriter.start()

    def drain(self) -> None:
        """Refuse new requests from now on."""
        self._front.draining = True
        self.parts.app.drain()

    async def stop(self) -> None:
        """Come to an end: no request is under way any more."""
        parts = self.parts
        try:
            await parts.app.drained()
            await parts.rewriter.stop()
            await self._keys.stop()
            await self._health.stop()
        finally:
            parts.upstreams.close()
            if self._garbage is not None:
                await self._garbage.stop()
            await self.aclose()

    async def aclose(self) -> None:
        """Follow engines no longer; of a proxy that was never started, too."""
        await self.parts.pilot.aclose()

    def reload(self) -> None:
        """SIGHUP: read again what is read from files."""
        self._keys.reload()

    def refused(self, status: int, kind: str) -> None:
        """A connection refused something; it is counted as all refusals are."""
        self.parts.counts.took(OTHER, status, 0.0, kind)

    async def standing(self) -> Sequence[Standing]:
        """How the upstreams stand."""
        parts = self.parts
        alive = parts.upstreams.alive()
        followed = await asyncio.to_thread(list, parts.pilot.engines)  # what follows them has locks
        known = {one.name: one for one in followed}
        found = []
        for name in parts.upstreams.names:
            one = known.get(name)
            level, why = ("none", "") if one is None else (one.level, one.why)
            if name not in alive:
                why = why or "it could not be reached, or is not well"
            found.append(Standing(name, name in alive, level, why))
        return found


def assemble(
    settings: ProxySettings,
    chosen: Settings,
    *,
    index: ContextIndex | None = None,
    tenants: Tenants | None = None,
    replica: Carrier | None = None,
    secret: str | None = None,
    alone: bool = False,
) -> ProxyLife:
    """A proxy, as its settings have it.

    A cloud's upstreams are asked nothing but what clients ask. Engines are followed as a pilot follows them; where the
    index is given, they are asked for their health alone.

    Args:
        settings: of the proxy.
        chosen: of its pilot.
        index: that decides the orders; None: as the pilot's settings say.
        tenants: say who asks; None: as the settings say.
        replica: by whose log other proxies come to know what is decided; None: the index's, if it is one.
        secret: that its replicas have; None: as the settings say.
        alone: the process is the proxy's.

    Raises:
        SettingsError: they cannot be had.
    """
    engines, cloud = settings.engines, settings.cloud
    if not engines:
        raise SettingsError(NO_UPSTREAM)
    if settings.open and any(engine.api_key for engine in engines):
        logger.warning("--open: whoever reaches the proxy and shows no key asks with the upstream's own api_key")
    logged = index is None and chosen.index.partition("://")[0].lower() in SCHEMES
    if logged and not (settings.salt_secret or chosen.salt_secret):
        raise SettingsError(UNSHARED)
    own = chosen.salt_secret if chosen.salt_secret and not settings.salt_secret else secret_of(settings)
    tenants = Tenants(settings, own) if tenants is None else tenants
    chosen = chosen.with_(salt_secret=own, on_error="open", engines="")
    followed = None if cloud or index is not None else engines
    pilot = AsyncContextPilot(index, engines=followed, settings=chosen)
    upstreams = Upstreams(
        engines,
        pilot,
        connect_seconds=settings.connect_seconds,
        answer_seconds=settings.answer_seconds,
        max_connections=settings.upstream_connections,
        cloud=cloud,
    )
    counts = Counts()
    gate, nobody = tenants.gate, settings.tenant_by == "nobody"
    replica, others = pilot.replica if replica is None else replica, None
    if replica is not None:
        others = Others(replica, lambda: {""} if nobody else gate.tenants, own if secret is None else secret)
    rewriter = Rewriter(pilot, settings, others=others)
    failures = pilot.blocking.asker.failures
    app = ProxyApp(settings, rewriter, upstreams, tenants.of, counts, failures)
    return ProxyLife(Parts(settings, pilot, tenants, upstreams, rewriter, counts, app), alone=alone)
