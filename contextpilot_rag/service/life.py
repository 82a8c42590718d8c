"""Life: the parts of a service put together, started before it is ready, and stopped after its last answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ..engines.engine import engines_of
from ..replicas.address import parse_address
from ..replicas.log import Log
from ..replicas.space import Names
from .app import App
from .audit import audit
from .core import Service
from .engine_watch import EngineWatch
from .garbage import Garbage
from .gate import KeyWatch, gate_from
from .hub import Hub, State
from .leftovers import Leftovers
from .listening import OPEN
from .metrics import Metrics
from .plans import Plans
from .protocol import Connection
from .rates import Rates
from .replicas import Replicas
from .secret import secret_of
from .settings import ServiceSettings
from .snapshot import Changes, Snapshots
from .table import operations
from .tracing import found
from .watchers import Watcher


class Part(Protocol):
    """Something that runs beside the requests: snapshots, plans, the file of keys. All within the event loop."""

    async def start(self) -> None:
        """Get ready; the service is not until this returns. What raises keeps the service from starting."""
        ...

    async def stop(self) -> None:
        """Come to an end: no request is under way any more. Called after any start, even one that raised."""
        ...

    def reload(self) -> None:
        """SIGHUP: read again what is read from files."""
        ...


class Life:
    """A service from its start to its end.

    Args:
        hub: what requests are answered from.
        parts: started in this order, stopped in the other.
    """

    connection: type[Connection] = Connection
    dated = True

    def __init__(self, hub: Hub, parts: Sequence[Part] = ()) -> None:
        self.hub = hub
        self._parts = list(parts)
        self._begun: list[Part] = []
        self._started = False

    @property
    def settings(self) -> ServiceSettings:
        """In force."""
        return self.hub.settings

    @property
    def closed(self) -> str:
        """Without keys whoever reaches the service is served."""
        return OPEN if self.settings.keys is None else ""

    def app(self) -> App:
        """What answers requests."""
        return App(self.hub, operations())

    def drain(self) -> None:
        """Refuse new requests from now on."""
        self.hub.state = State.DRAINING

    def refused(self, status: int, kind: str) -> None:
        """A connection refused something; it is counted as all refusals are."""
        if self.hub.metrics is not None:
            self.hub.metrics.took("none", 0.0, status, kind)

    async def start(self) -> None:
        """Start all parts; then the service is ready.

        Raises:
            ContextPilotError: a part cannot be started.
        """
        for part in self._parts:
            self._begun.append(part)
            await part.start()
        if self.hub.state is State.STARTING:
            self.hub.state = State.READY
        settings = self.hub.settings
        self._started = True
        audit("service started", None, host=settings.host, keys=settings.keys is not None, result=self.hub.state.value)

    async def stop(self) -> None:
        """Stop all that were started, even if one of them fails; the first failure is raised in the end."""
        failure: BaseException | None = None
        while self._begun:
            try:
                await self._begun.pop().stop()
            except Exception as error:  # noqa: BLE001  raised below
                failure = failure or error
        if self._started:  # what never began does not end
            self._started = False
            audit("service stopped", None, result="done" if failure is None else "failed")
        if failure is not None:
            raise failure

    def reload(self) -> None:
        """Tell all parts that files may have changed."""
        for part in self._begun:
            part.reload()


def assemble(settings: ServiceSettings, *, alone: bool = False, log: Log | None = None) -> Life:
    """All parts of a service, as its settings have it.

    Args:
        settings: in force.
        alone: the process is the service's, so it may decide when garbage is collected.
        log: that is shared with other replicas, in the place of that which the settings name.

    Raises:
        SettingsError: they cannot be had.
    """
    parts: list[Part] = []
    secret = secret_of(settings)
    metrics = Metrics(settings, secret)
    spans = found()
    changes = Changes()
    watchers: list[Watcher] = [metrics, changes]
    if spans is not None:
        watchers.append(spans)
    if alone:
        garbage = Garbage()
        watchers.append(garbage)
        parts.append(garbage)
    leftovers = Leftovers()
    parts.append(leftovers)
    service = Service(settings, secret, watchers=watchers, leftovers=leftovers)
    plans = Plans(settings, metrics.planned)
    service.leaving.append(plans.leave)
    service.leaving.append(lambda tenant: metrics.left(tenant.name))
    hub = Hub(settings, service, gate_from(settings), rates=Rates(settings), metrics=metrics, tracer=spans, plans=plans)
    if settings.state is not None:
        hub.snapshots = Snapshots(service, hub.gate, changes, settings.state, settings.snapshot_seconds, metrics)
        parts.append(hub.snapshots)
    if settings.replicate or log is not None:  # after what brings back old states: what the log has counts more
        hub.replicas = _replicas(settings, hub, changes, log)
        parts.append(hub.replicas)
    engines = engines_of(settings.engines)
    if engines:  # after what brings back old states, which are theirs to correct; and before it is saved again
        hub.followed = EngineWatch(engines, service, changes.moved)
        watchers.append(hub.followed)
        if hub.replicas is not None:
            hub.replicas.covering(hub.followed.cover)
        parts.append(hub.followed)
    parts.append(plans)
    regrouped = hub.replicas.regrouped if hub.replicas is not None else lambda: None
    # After what brings back old states: of tenants that are no more, perhaps.
    parts.append(KeyWatch(hub.gate, service, regrouped=regrouped))
    return Life(hub, parts)


def _replicas(settings: ServiceSettings, hub: Hub, changes: Changes, log: Log | None) -> Replicas:
    """Those that the settings ask for."""
    address = parse_address(settings.replicate) if settings.replicate else None
    if log is None:
        from ..replicas.redis_log import open_log

        log = open_log(settings.replicate)
    names = Names(settings.salt_secret) if address is None else Names(settings.salt_secret, address.prefix)
    return Replicas(log, names, hub.service, hub.gate, changes.moved, changes.soon)
