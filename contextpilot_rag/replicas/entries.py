"""Entries: what replicas write into a log, and read out of it. Nothing is believed before it is verified."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta, Raw, Struct

from ..types import Namespace
from .log import Entry, Snapshot, Written
from .space import Names, Space, utf8

_VERSION = 1
_MOST_BYTES = 64 * 2**20  # of an entry
MOST_RECORDS = 500  # of an entry that is written

Field = Annotated[bytes, Meta(max_length=4_096)]
Writer = Annotated[str, Meta(max_length=32)]
Number = Annotated[int, Meta(ge=0, le=2**62)]


T = TypeVar("T")


class Rejected(Exception):
    """An entry, or a snapshot, that is not one of ours. Its only argument says why, in a word for metrics."""


class Head(Struct, array_like=True):
    """How all begins that is written, whatever its version: as much as is read of it before it is verified.

    Args:
        version: of all that follows.
        pool: of the space; see `Space`.
        tenant: of its namespace, in UTF-8.
        model: likewise.
        corpus: likewise.
    """

    version: int
    pool: Field
    tenant: Field
    model: Field
    corpus: Field


class Batch(Head, array_like=True):
    """Records of one writer for one space.

    Args:
        writer: who wrote it.
        records: with numbers that rise with each record that this writer tells any space.
        founded: no records, but that the snapshot of this name is what all begin with.
    """

    writer: Writer
    records: list[tuple[Number, Raw]]
    founded: Writer = ""


class State(Head, array_like=True):
    """A snapshot.

    Args:
        founded: its name, if it is one that all began with.
        writers: the number of the last record of each that it includes, in the order of their last records.
        parts: what the sink dumped.
    """

    founded: Writer
    writers: list[tuple[Writer, Number]]
    parts: list[bytes]


UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What decoding raises, whatever it is given."""
_encoder = msgspec.msgpack.Encoder()
_heads = msgspec.msgpack.Decoder(Head)
_batches = msgspec.msgpack.Decoder(Batch)
_states = msgspec.msgpack.Decoder(State)


def write_batch(
    names: Names, space: Space, writer: str, records: Sequence[tuple[int, bytes]], founded: str = ""
) -> Written:
    """An entry, signed."""
    data = _encoder.encode(Batch(_VERSION, *_fields(space), writer, [(n, Raw(data)) for n, data in records], founded))
    return Written(names.stream(space), names.mac(space, b"entry", data), data)


def read_batch(names: Names, stream: str, entry: Entry) -> tuple[Space, Batch]:
    """What an entry of a stream says.

    Raises:
        Rejected: it is not one of ours.
    """
    if len(entry.data) > _MOST_BYTES:
        raise Rejected("size")
    space = _verified(names, stream, entry.mac, entry.data, b"entry")
    return space, _decoded(_batches, entry.data)


def write_state(
    names: Names,
    space: Space,
    position: str,
    writers: Mapping[str, int],
    parts: Iterable[bytes],
    founded: str = "",
) -> Snapshot:
    """A snapshot, signed."""
    data = _encoder.encode(State(_VERSION, *_fields(space), founded, list(writers.items()), list(parts)))
    return Snapshot(position, names.mac(space, b"snapshot", position.encode(), data), data)


def read_state(names: Names, stream: str, snapshot: Snapshot) -> tuple[Space, State]:
    """What a snapshot of a stream says.

    Raises:
        Rejected: it is not one of ours.
    """
    space = _verified(names, stream, snapshot.mac, snapshot.data, b"snapshot", snapshot.position.encode())
    return space, _decoded(_states, snapshot.data)


def _fields(space: Space) -> tuple[bytes, bytes, bytes, bytes]:
    named = space.namespace
    return utf8(space.pool), utf8(named.tenant), utf8(named.model), utf8(named.corpus)


def _verified(names: Names, stream: str, mac: bytes, data: bytes, *kind: bytes) -> Space:
    """The space that this is of, if one of us wrote it for this stream, in a version that is understood."""
    head = _decoded(_heads, data)
    try:
        pool, *fields = (_text(field) for field in (head.pool, head.tenant, head.model, head.corpus))
    except UnicodeDecodeError:
        raise Rejected("schema") from None
    space = Space(pool, Namespace(*fields))
    if not names.named(space, stream) or not names.signed(space, mac, *kind, data):
        raise Rejected("signature")  # as all that was signed with another secret
    if head.version != _VERSION:
        raise Rejected("version")
    return space


def _decoded(decoder: msgspec.msgpack.Decoder[T], data: bytes) -> T:
    try:
        return decoder.decode(data)
    except UNREADABLE:
        raise Rejected("schema") from None


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogatepass")
