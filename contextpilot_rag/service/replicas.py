"""Replicas: several services that share a log, so that each of them comes to know what the others know."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace

from ..replicas.catching import CatchingUp
from ..replicas.log import Log
from ..replicas.pace import Pace
from ..replicas.replica import PoolJournal, Replica
from ..replicas.sinks import Carrier
from ..replicas.space import Names
from ..replicas.status import ReplicaStatus
from ..types import Namespace
from .auth import Gate
from .core import Service
from .covers import Cover
from .elsewhere import Elsewhere
from .gate import enforce
from .leftovers import ServedIndex
from .pool_names import pool_name
from .replica_sink import ServiceSink

logger = logging.getLogger("contextpilot_rag.service")

READY_SECONDS = 10.0  # a start waits so long for what the log has
CATCH_UP_SECONDS = 0.04  # an answer waits so long for what others told


class Replicas:
    """A part of the service: its replica of a log. It starts after whatever brings back old states.

    Args:
        log: the server.
        names: of spaces, and their signatures.
        service: is fed, and tells.
        gate: knows which tenants there are.
        moved: told when the log changed something.
        forgot: told when others may have had something forgotten that was known here.
        pace: how the replica works.

    Attributes:
        forgetting: called with a tenant of which something is to be forgotten, as it was asked for here.
    """

    def __init__(
        self,
        log: Log,
        names: Names,
        service: Service,
        gate: Gate,
        moved: Callable[[], object] = lambda: None,
        forgot: Callable[[], object] = lambda: None,
        pace: Pace | None = None,
    ) -> None:
        self._service = service
        self._gate = gate
        self._covers: Callable[[Cover], bool] | None = None
        self._sink = ServiceSink(service, gate, Elsewhere(service, self._cover, forgot), moved)
        self._replica = Replica(log, names, self._sink, pace)
        self._catching = CatchingUp(self._replica, CATCH_UP_SECONDS)
        self.forgetting: list[Callable[[str], object]] = []
        service.journals = self.journal

    @property
    def carrier(self) -> Carrier:
        """The replica, for what else is to be shared."""
        return self._replica

    def covering(self, put: Callable[[Cover], bool]) -> None:
        """Engines are followed: what clients tell other replicas of prompts' places is of use here, too."""
        self._covers = put

    def journal(self, kind: str, name: str, index: ServedIndex) -> PoolLog:
        """What tells the log of an index of the service, as it is shared now."""
        log = PoolLog(self._replica, pool_name(kind, name, self._service.sharing.get(name, ())), lambda: index)
        if kind == "tenant":
            log.forgetting = lambda: [tell(name) for tell in self.forgetting]
        return log

    async def start(self) -> None:
        """Read what the log has, and follow it. Where the log is away, or that takes too long, go on alone for now."""
        enforce(self._gate, self._service)
        for pool in self._service.pools().values():
            for space in {Namespace(one.tenant, one.model, one.corpus) for one in pool.index.namespaces()}:
                pool.index.stray(space)  # restored from a file: it may go into a log that has nothing of it
        self._sink.open()
        self._replica.start()
        if await asyncio.to_thread(self._replica.ready, READY_SECONDS):
            spaces = self._replica.status().spaces
            logger.info("replica: the log is there; namespaces in it that concern this service: %d", spaces)

    async def stop(self) -> None:
        """Tell what waits, and end."""
        await asyncio.to_thread(self._replica.close)
        self._sink.close()

    def reload(self) -> None:
        """Its settings are those of the start."""

    def regrouped(self) -> None:
        """There are other tenants than before, or they share other corpora: what concerns them is looked for."""
        self._replica.look_again()

    def status(self) -> ReplicaStatus:
        """How it stands."""
        return self._replica.status()

    async def catch_up(self, enough: Callable[[], bool]) -> None:
        """Wait for what others tell just now, but never long; those who wait at the same time wait together."""
        await self._catching.until(enough)

    def _cover(self, cover: Cover) -> bool:
        return self._covers is not None and self._covers(cover)


class PoolLog(PoolJournal):
    """The journal of one index.

    Attributes:
        forgetting: called when something of it is to be forgotten.
    """

    forgetting: Callable[[], object] = staticmethod(lambda: None)

    def forgot(self, namespace: Namespace | None) -> None:
        """Have a namespace, or all that is known of the pool, forgotten; nobody is told of what nobody knows."""
        self.forgetting()
        if namespace is None or self.knows(replace(namespace, head="")):
            super().forgot(namespace)

    def knows(self, space: Namespace) -> bool:
        """Whether a namespace has a log, as far as can be said."""
        return not self._replica.status().joined or space in self.known()

    def known(self) -> list[Namespace]:
        """The namespaces of the pool that have a log here."""
        return [space.namespace for space in self._replica.spaces(self._pool)]
