"""What proxies that share a log tell each other of their decisions. No text is among it, nor anything that has one."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from ..errors import StateError
from ..identity import KEY_BYTES
from ..index.records import Forgot
from ..remote.wire import MAX_FIELD
from .memory import Decision

MOST_ITEMS = 65_536  # of a decision
_OLDEST = 10**9  # seconds

Key = Annotated[bytes, Meta(min_length=KEY_BYTES, max_length=KEY_BYTES)]
Item = Annotated[int, Meta(ge=0, lt=MOST_ITEMS)]
Count = Annotated[int, Meta(ge=0, le=MOST_ITEMS)]
Name = Annotated[str, Meta(max_length=MAX_FIELD)]


class Decided(Struct, array_like=True, tag="decided"):
    """What was decided for a message; see `Decision`.

    Args:
        key: of the message. It is a keyed hash of all messages up to it.
        order: of its first group of blocks; None: it is only said where it went.
        engine: where the request went.
        cached: how many of these blocks were believed cached.
    """

    key: Key
    order: Annotated[list[Item], Meta(max_length=MOST_ITEMS)] | None = None
    engine: Name | None = None
    cached: Count = 0


class Remembered(Struct, array_like=True, tag="remembered"):
    """Some decisions, in a snapshot: each with the seconds since it was used last."""

    decisions: list[tuple[Decided, Annotated[int, Meta(ge=0, le=_OLDEST)]]]


Record = Decided | Forgot
_records = msgspec.msgpack.Decoder(Record)
_parts = msgspec.msgpack.Decoder(Remembered)


def record_of(data: bytes) -> Record:
    """What the log brought.

    Raises:
        StateError: it says nothing that can be.
    """
    try:
        return _sound(_records.decode(data))
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise StateError(f"a record of proxies cannot be read: {error}") from error


def remembered(part: bytes) -> list[tuple[Decided, int]]:
    """A part of a snapshot.

    Raises:
        StateError: it says nothing that can be.
    """
    try:
        found = _parts.decode(part).decisions
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise StateError(f"a part of a snapshot cannot be read: {error}") from error
    for decided, _ in found:
        _sound(decided)
    return found


def decided(key: bytes, decision: Decision) -> Decided | None:
    """The record of a decision; None: it is larger than any that others take."""
    order, engine = decision.order, decision.engine
    if (order is not None and len(order) > MOST_ITEMS) or (engine is not None and len(engine) > MAX_FIELD):
        return None
    return Decided(key, None if order is None else list(order), engine, decision.cached)


def decision_of(record: Decided) -> Decision:
    """What a record says.

    Args:
        record: as `record_of` has it.
    """
    return Decision(None if record.order is None else tuple(record.order), record.engine, record.cached)


def _sound(record: Record) -> Record:
    """A record that can be true.

    Raises:
        StateError: it cannot.

    >>> _sound(Decided(b"k" * 16, [1, 0], cached=1)).order
    [1, 0]
    >>> try:
    ...     _sound(Decided(b"k" * 16, [1, 1]))
    ... except StateError as error:
    ...     print(error)
    a decision's order has a block twice, or lacks one
    """
    if isinstance(record, Decided):
        order = record.order or []
        if sorted(order) != list(range(len(order))):
            raise StateError("a decision's order has a block twice, or lacks one")
        if record.cached > len(order):
            raise StateError("a decision has more cached blocks than blocks")
    return record
