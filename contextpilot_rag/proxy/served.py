"""Served: the indexes of a service in this process, for a proxy that runs beside it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeVar

import msgspec

from ..engines.status import added_up
from ..errors import IndexFailed
from ..index.tree import PrefixTree
from ..remote import questions, wire
from ..remote.tickets import SentTickets
from ..service.core import Service
from ..service.problems import Rejected
from ..service.tenant import Tenant
from ..types import Alignment, IndexStats, Namespace, Request, Usage

T = TypeVar("T")
_encode = msgspec.json.Encoder().encode
_ALIGN, _SENT = msgspec.json.Decoder(wire.AlignIn), msgspec.json.Decoder(wire.SentIn)
_OBSERVE = msgspec.json.Decoder(wire.ObserveIn)


class ServedIndex:
    """A `ContextIndex`: what a `RemoteIndex` asks over HTTP, asked of the service itself.

    A namespace's tenant is the service's tenant, and within it nobody's: so proxied requests of a tenant and those of
    processes that show its keys share one index. They ask and answer in the same words, and equal texts have equal
    keys either way.

    Args:
        service: in this process; all of it belongs to its event loop.
    """

    answers_at_once = True

    def __init__(self, service: Service) -> None:
        self._service = service
        self._tickets = SentTickets()

    def align(self, request: Request) -> Alignment:
        """Choose an order for the request and take it as sent.

        Raises:
            IndexFailed: the service refuses.
        """
        question = questions.align(request, None)
        body = self._within(_ALIGN.decode(question.body or b""))
        return _answered(question, self._tenant(request.namespace).align, body)[0]

    def predict(self, request: Request) -> int:
        """Tokens of the request that would be cached if it were sent now.

        Raises:
            IndexFailed: the service refuses.
        """
        question = questions.predict(request)
        body = self._within(_ALIGN.decode(question.body or b""))
        return _answered(question, self._tenant(request.namespace).predict, body)

    def sent(self, alignment: Alignment) -> None:
        """Take a request as sent in an order that was not chosen here.

        Raises:
            IndexFailed: the service refuses.
        """
        question = questions.sent(alignment, self._tickets.noted(alignment), None)
        body = self._within(_SENT.decode(question.body or b""))
        _answered(question, self._tenant(alignment.request.namespace).sent, body)

    def observe(self, alignment: Alignment, usage: Usage) -> None:
        """Learn what the engine reported; of a request that is not known any more, nothing."""
        ticket = self._tickets.to_report(alignment)
        if ticket is None:
            return
        body = _OBSERVE.decode(questions.observe(ticket, usage).body or b"")
        self._tenant(alignment.request.namespace).observe(body)

    def forget(self, namespace: Namespace | None = None) -> None:
        """Drop what is known of a namespace, or of all but corpora that tenants share.

        Raises:
            Forbidden: tenants share it.
        """
        if namespace is not None:
            self._tenant(namespace).forget(_inner(namespace))
            return
        for tenant in self._service.tenants.values():
            tenant.forget()

    def stats(self) -> IndexStats:
        """Counts of all tenants since the service began, of all processes together."""
        return added_up([tenant.stats() for tenant in self._service.tenants.values()])

    def tree(self, namespace: Namespace) -> PrefixTree | None:
        """A copy of what is believed to be cached for a namespace; None: nothing is known of it.

        A block whose key is neither bytes nor a short text stands there by the hash that it goes by over the wire.
        """
        pool = self._service.known_pool("tenant", namespace.tenant)
        return None if pool is None else pool.index.tree(_inner(namespace))

    def cache_salt(self, namespace: Namespace, otherwise: str | None, *, ask: bool = False) -> str | None:  # noqa: ARG002
        """The engine's cache salt for a namespace, the same that the service tells others."""
        return self._tenant(namespace).salt(_inner(namespace))

    def _tenant(self, namespace: Namespace) -> Tenant:
        return self._service.tenant(namespace.tenant)

    def _within(self, body: T) -> T:
        """As the tenant itself asks."""
        given: Any = body
        given.namespace = wire.namespace_in(_inner(wire.namespace_from(given.namespace)))
        return body


def _answered(question: questions.Question[T], act: Any, body: object) -> T:  # noqa: ANN401  a method of a tenant
    try:
        return question.read(_encode(act(body)))
    except Rejected as error:
        raise IndexFailed(f"the service refused: {error}") from None


def _inner(namespace: Namespace) -> Namespace:
    return replace(namespace, tenant="")
