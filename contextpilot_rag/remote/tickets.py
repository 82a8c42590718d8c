"""Tickets: what a process calls the requests that it told a service of, until they are reported on, and covered."""

from __future__ import annotations

import secrets

from ..types import Alignment, Request
from .kept import Kept

_MOST = 4_096


class SentTickets:
    """Tickets of requests that were sent in an order chosen elsewhere; an alignment of the service's has its own.

    Thread-safe. They go by the request's identity; it is kept alive, so that no other one can have its place.
    """

    def __init__(self) -> None:
        self._open: Kept[int, tuple[Request, str]] = Kept(_MOST)
        self._reported: Kept[int, tuple[Request, str]] = Kept(_MOST)

    def noted(self, alignment: Alignment) -> str:
        """A new ticket for a request that is sent."""
        ticket = secrets.token_urlsafe(16)
        self._open.put(id(alignment.request), (alignment.request, ticket))
        return ticket

    def to_report(self, alignment: Alignment) -> str | None:
        """The ticket that a request was last sent with; it is given once."""
        kept = self._open.pop(id(alignment.request))
        if kept is None:
            return alignment.ticket
        self._reported.put(id(alignment.request), kept)
        return kept[1]

    def to_cover(self, alignment: Alignment) -> str | None:
        """The ticket of a request that may have been reported on."""
        place = id(alignment.request)
        kept = self._open.get(place) or (None if alignment.ticket else self._reported.get(place))
        return alignment.ticket if kept is None else kept[1]
