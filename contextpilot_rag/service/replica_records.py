"""What replicas of a service tell each other beside what their indexes do: tickets, conversations, places of prompts.

As with the index's own records, fields that later versions add stand behind these, and what one does not understand is
left out.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Protocol

from msgspec import Meta, Struct

from ..errors import StateError
from ..index.fed import Journal
from ..index.plain_keys import LONGEST, plain_key
from ..index.records import IndexRecord, checked
from ..remote.wire import DIGEST, MAX_BLOCK_TOKENS, MAX_FIELD, MAX_KV_BLOCKS, CoverIn
from ..types import Namespace
from .ledger import Delta

Field = Annotated[str, Meta(max_length=MAX_FIELD)]
Name = Annotated[str, Meta(max_length=64)]  # of a ticket, an answer, a record
Count = Annotated[int, Meta(ge=0, le=MAX_BLOCK_TOKENS)]
Blocks = Annotated[int, Meta(ge=0, le=65_536)]
Label = Annotated[int, Meta(ge=1, le=2**53)]
Digests = Annotated[bytes, Meta(max_length=MAX_KV_BLOCKS * DIGEST)]


class Ticketed(Struct, array_like=True, tag="ticketed"):
    """A request has a ticket. It stands in the log of its index.

    Args:
        tenant: whose.
        head: of the request's namespace.
        ticket: its name.
        of: the record by which the request was sent; empty: it is a later turn of a conversation, and was not.
        mark: see `tickets.mark_of`; empty: the service chose the ticket.
        engine: where it went.
        blocks: how many it has.
    """

    tenant: Field
    head: Field
    ticket: Name
    of: Name = ""
    mark: Annotated[bytes, Meta(max_length=64)] = b""
    engine: Field | None = None
    blocks: Blocks = 0


class Reported(Struct, array_like=True, tag="reported"):
    """The usage of a ticket was counted. It stands in the log of its index."""

    tenant: Field
    ticket: Name


class Covered(Struct, array_like=True, tag="covered"):
    """A client told where a ticket's prompt stands; see `CoverIn`. It stands in the log of its index."""

    tenant: Field
    ticket: Name
    keys: Digests
    contents: Digests
    ends: Annotated[list[Count], Meta(max_length=65_537)]
    tokens: Count
    block_size: Annotated[int, Meta(ge=1, le=65_536)]
    cached_tokens: Count | None = None


class Turned(Struct, array_like=True, tag="turned"):
    """A turn of a conversation was answered; see `Delta`. It stands in the log of the tenant's own namespace."""

    head: Field
    name: Field
    answer: Name
    base: Name | None
    keys: Annotated[list[Any], Meta(max_length=65_536)]  # bytes, str or int: `sound` sees to it
    labels: Annotated[list[Label], Meta(max_length=65_536)]
    next_label: Label


class TalkForgotten(Struct, array_like=True, tag="talk_forgotten"):
    """Conversations are to be forgotten. It stands in the log of the tenant's own namespace.

    Args:
        head: under this head alone; empty: under any.
        name: of this name alone; None: all.
    """

    forgets: ClassVar[bool] = True  # as of `Forgot`

    head: Field = ""
    name: Field | None = None


Record = IndexRecord | Ticketed | Reported | Covered | Turned | TalkForgotten


class ServiceJournal(Journal, Protocol):
    """The journal of an index of the service: it can tell the service's own records, too."""

    def tell(self, space: Namespace, record: Struct) -> str:
        """Tell the log something of a namespace (without a head); the record's name."""
        ...

    def knows(self, space: Namespace) -> bool:
        """Whether a namespace has a log, as far as can be said."""
        ...

    def known(self) -> list[Namespace]:
        """The namespaces of the pool that have a log here."""
        ...


def sound(record: Record) -> Record:
    """A record that can be true.

    Raises:
        StateError: it cannot.
    """
    if isinstance(record, Turned):
        if len(record.keys) != len(record.labels) or not all(map(_is_key, record.keys)):
            raise StateError("a conversation's record has no label for each block, or a key that is none")
        return record
    if isinstance(record, Ticketed | Reported | Covered | TalkForgotten):
        return record
    return checked(record)


def turned(delta: Delta) -> Turned:
    """The record of a turn."""
    keys = [plain_key(key) for key in delta.labels]
    labels = list(delta.labels.values())
    return Turned(delta.namespace.head, delta.name, delta.answer, delta.base, keys, labels, delta.next_label)


def delta_of(record: Turned, space: Namespace) -> Delta:
    """What a record tells.

    Args:
        record: `sound`.
        space: without a head.
    """
    labels: dict[Hashable, int] = dict(zip(record.keys, record.labels, strict=True))
    namespace = replace(space, head=record.head)
    return Delta(namespace, record.name, record.answer, record.base, labels, record.next_label)


def covered(tenant: str, given: CoverIn) -> Covered:
    """The record of what a client told."""
    return Covered(
        tenant,
        given.ticket,
        given.keys,
        given.contents,
        given.ends,
        given.tokens,
        given.block_size,
        given.cached_tokens,
    )


def cover_of(record: Covered) -> CoverIn:
    """What the client told."""
    return CoverIn(
        record.ticket,
        record.keys,
        record.contents,
        record.ends,
        record.tokens,
        record.block_size,
        record.cached_tokens,
    )


def _is_key(key: object) -> bool:
    return (type(key) is int and -(2**63) <= key < 2**63) or (type(key) in {str, bytes} and len(key) <= LONGEST)  # type: ignore[arg-type]
