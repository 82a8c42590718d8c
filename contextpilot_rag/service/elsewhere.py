"""Elsewhere: what other replicas answered, taken in here. All of it is in the event loop, and each is quick."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ..index.records import Forgot
from ..types import Alignment, Namespace, Request, Rule
from .core import Service
from .covers import Cover
from .problems import Rejected
from .replica_records import (
    Covered,
    Record,
    Reported,
    TalkForgotten,
    Ticketed,
    Turned,
    cover_of,
    delta_of,
)
from .tenant import Pool, Tenant
from .tickets import Ticket


class Elsewhere:
    """Takes in records of the service's pools.

    Args:
        service: whose.
        put: takes in where a prompt stands, later; None: nobody follows engines here.
        forgot: told when others may have had something forgotten that was known here.
    """

    def __init__(
        self,
        service: Service,
        put: Callable[[Cover], bool] | None = None,
        forgot: Callable[[], object] = lambda: None,
    ) -> None:
        self._service = service
        self._put = put
        self._forgot = forgot

    def take(self, pool: Pool, space: Namespace, name: str, record: Record, *, own: bool, stray: bool = False) -> None:
        """Take in the next record of a namespace's log.

        Args:
            pool: whose log it is.
            space: without a head.
            name: of the record.
            record: `sound`.
            own: this replica told it.
            stray: the log has not brought it: it is away, and will be told again.
        """
        if isinstance(record, Turned | TalkForgotten):
            self._talked(pool, space, name, record, stray=stray)
        elif isinstance(record, Ticketed | Reported | Covered):
            tenant = self._tenant(pool, record.tenant)
            if tenant is not None and not own:
                self._ticketed(pool, tenant, space, record)
        else:
            pool.index.apply(space, name, record, own=own)
            if isinstance(record, Forgot) and not own:
                self._service.forgotten_elsewhere(*pool.named, replace(space, head=record.head))

    def included(self, pool: Pool, space: Namespace, name: str) -> None:
        """An own record will not come back."""
        pool.index.included(space, [name])
        if not pool.shared:
            self._service.tenant(pool.named[1]).ledgers.arrived(name)

    def replaced(self) -> None:
        """What was known of a space was replaced: perhaps because of what others had forgotten of it."""
        self._forgot()

    def _tenant(self, pool: Pool, name: str) -> Tenant | None:
        """A tenant that uses a pool."""
        kind, of = pool.named
        uses = name == of if kind == "tenant" else name in self._service.sharing.get(of, ())
        return self._service.tenant(name) if uses else None

    def _talked(self, pool: Pool, space: Namespace, name: str, record: Turned | TalkForgotten, *, stray: bool) -> None:
        if pool.shared:
            return
        ledgers = self._service.tenant(pool.named[1]).ledgers
        waited = not stray and ledgers.arrived(name)
        if isinstance(record, Turned):
            ledgers.apply(delta_of(record, space))
        elif not waited:  # else it was forgotten here when that was told
            ledgers.forget(replace(space, head=record.head), record.name)
            self._forgot()

    def _ticketed(self, pool: Pool, tenant: Tenant, space: Namespace, record: Ticketed | Reported | Covered) -> None:
        known = tenant.tickets.get(record.ticket)
        if isinstance(record, Ticketed):
            alignment = _alignment(pool, space, record)
            asked = known is not None or tenant.tickets.aside(record.ticket) is not None  # here, too
            if alignment is not None and not asked:
                tenant.tickets.put(record.ticket, Ticket(alignment, record.engine, record.mark or None))
        elif known is None:
            return
        elif isinstance(record, Reported):
            known.observed = True
        else:
            try:
                tenant.cover(cover_of(record), self._put, tell=False)
            except Rejected:  # it does not fit the ticket
                return


def _alignment(pool: Pool, space: Namespace, record: Ticketed) -> Alignment | None:
    """What a ticket stands for; None: not known, or not any more."""
    if record.of:
        alignment = pool.index.applied(record.of)
        return None if alignment is None else replace(alignment, ticket=record.of)
    request = Request((), replace(space, head=record.head))  # a later turn's blocks are nobody's but the conversation's
    return Alignment(request, tuple(range(record.blocks)), rule=Rule.CONVERSATION)
