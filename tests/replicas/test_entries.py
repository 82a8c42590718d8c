"""What is read out of a log is verified: anything else is rejected, and nothing else is raised."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextpilot_rag.replicas.entries import (
    Batch,
    Rejected,
    State,
    read_batch,
    read_state,
    write_batch,
    write_state,
)
from contextpilot_rag.replicas.log import Entry, Snapshot, Written
from contextpilot_rag.replicas.space import Names, Space
from contextpilot_rag.types import Namespace

NAMES = Names("secret")
SPACE = Space("pilot", Namespace("tenant", "model", "corpus"))
STREAM = NAMES.stream(SPACE)
RECORDS = [(3, msgspec.msgpack.encode(["sent", "a"])), (5, msgspec.msgpack.encode({"b": 1}))]
WRITTEN = write_batch(NAMES, SPACE, "writer", RECORDS)
SNAPSHOT = write_state(NAMES, SPACE, "17-3", {"writer": 5, "other": 9}, [b"one", b"two"], "began")
TEXT = st.text(st.characters(codec=None), max_size=8)
SPACES = st.builds(Space, TEXT, st.builds(Namespace, TEXT, TEXT, TEXT))


def entry(written: Written, **changed: Any) -> Entry:
    return Entry(**{"position": "1-0", "mac": written.mac, "data": written.data, **changed})


def flipped(data: bytes, bit: int) -> bytes:
    changed = bytearray(data)
    changed[bit // 8 % len(data)] ^= 1 << bit % 8
    return bytes(changed)


@given(space=SPACES, numbers=st.lists(st.integers(0, 2**62), max_size=5), founded=st.text("abc", max_size=4))
def test_an_entry_says_what_was_written(space, numbers, founded):
    records = [(number, msgspec.msgpack.encode([number, "ü"])) for number in numbers]
    written = write_batch(NAMES, space, "w", records, founded)
    assert written.stream == NAMES.stream(space)
    read, batch = read_batch(NAMES, written.stream, entry(written))
    assert (read, batch.writer, batch.founded) == (space, "w", founded)
    assert [(number, bytes(data)) for number, data in batch.records] == records


@given(
    space=SPACES, writers=st.dictionaries(st.text("abc", max_size=4), st.integers(0, 99)), parts=st.lists(st.binary())
)
def test_a_snapshot_says_what_was_written(space, writers, parts):
    snapshot = write_state(NAMES, space, "5-1", writers, parts, "f")
    read, state = read_state(NAMES, NAMES.stream(space), snapshot)
    assert (read, dict(state.writers), state.parts, state.founded) == (space, writers, parts, "f")
    assert list(dict(state.writers)) == list(writers)  # the order says who is forgotten first


@given(mac=st.binary(max_size=20), data=st.binary(max_size=80))
def test_any_bytes_are_rejected(mac, data):
    with pytest.raises(Rejected):
        read_batch(NAMES, STREAM, Entry("1-0", mac, data))
    with pytest.raises(Rejected):
        read_state(NAMES, STREAM, Snapshot("1-0", mac, data))


ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(max_size=5)
    | st.binary(max_size=5),
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=12,
)


@given(said=st.lists(ANYTHING, max_size=10) | ANYTHING)
def test_anything_that_is_signed_and_is_no_entry_is_rejected(said):
    data = msgspec.msgpack.encode(said)
    with pytest.raises(Rejected):
        read_batch(NAMES, STREAM, Entry("1-0", NAMES.mac(SPACE, b"entry", data), data))
    with pytest.raises(Rejected):
        read_state(NAMES, STREAM, Snapshot("1-0", NAMES.mac(SPACE, b"snapshot", b"1-0", data), data))


@given(bit=st.integers(0, 8 * len(WRITTEN.data) - 1))
def test_an_entry_with_any_bit_changed_is_rejected(bit):
    with pytest.raises(Rejected):
        read_batch(NAMES, STREAM, entry(WRITTEN, data=flipped(WRITTEN.data, bit)))
    with pytest.raises(Rejected):
        read_batch(NAMES, STREAM, entry(WRITTEN, mac=flipped(WRITTEN.mac, bit)))


@given(bit=st.integers(0, 8 * len(SNAPSHOT.data) - 1))
def test_a_snapshot_with_any_bit_changed_is_rejected(bit):
    with pytest.raises(Rejected):
        read_state(NAMES, STREAM, Snapshot(SNAPSHOT.position, SNAPSHOT.mac, flipped(SNAPSHOT.data, bit)))
    with pytest.raises(Rejected):
        read_state(NAMES, STREAM, Snapshot(SNAPSHOT.position, flipped(SNAPSHOT.mac, bit), SNAPSHOT.data))


def test_what_is_cut_short_or_has_more_behind_it_is_rejected():
    for data in (WRITTEN.data[:-1], WRITTEN.data + b"\xc0", b""):
        with pytest.raises(Rejected):
            read_batch(NAMES, STREAM, entry(WRITTEN, data=data))


def test_a_snapshot_belongs_to_its_position():
    with pytest.raises(Rejected, match="signature"):
        read_state(NAMES, STREAM, Snapshot("17-4", SNAPSHOT.mac, SNAPSHOT.data))


def test_an_entry_is_no_snapshot_and_a_snapshot_no_entry():
    with pytest.raises(Rejected):
        read_state(NAMES, STREAM, Snapshot("17-3", WRITTEN.mac, WRITTEN.data))
    with pytest.raises(Rejected):
        read_batch(NAMES, STREAM, Entry("17-3", SNAPSHOT.mac, SNAPSHOT.data))


@pytest.mark.parametrize(
    "other",
    [
        Space("pilot", Namespace("tenant", "model", "other")),
        Space("pilot", Namespace("tenant2", "model", "corpus")),
        Space("engine:a", Namespace("tenant", "model", "corpus")),
        Space("pilot", Namespace("tenan", "tmodel", "corpus")),
    ],
)
def test_what_was_moved_to_another_stream_is_rejected(other):
    with pytest.raises(Rejected, match="signature"):
        read_batch(NAMES, NAMES.stream(other), entry(WRITTEN))
    with pytest.raises(Rejected, match="signature"):
        read_state(NAMES, NAMES.stream(other), SNAPSHOT)


def test_what_was_signed_with_another_secret_is_rejected_also_where_it_is_of_another_prefix():
    for names in (Names("Secret"), Names(""), Names("secret ", prefix="contextpilot")):
        with pytest.raises(Rejected, match="signature"):
            read_batch(names, names.stream(SPACE), entry(WRITTEN))
        with pytest.raises(Rejected, match="signature"):
            read_state(names, names.stream(SPACE), SNAPSHOT)


def test_one_tenants_key_signs_for_no_other_tenant():
    mine, other = SPACE, Space("pilot", Namespace("victim", "model", "corpus"))
    assert NAMES.key(mine) != NAMES.key(other)
    data = write_batch(NAMES, other, "w", RECORDS).data
    with pytest.raises(Rejected):
        read_batch(NAMES, NAMES.stream(other), Entry("1-0", NAMES.mac(mine, b"entry", data), data))


def test_another_version_is_rejected_and_said_to_be_one():
    batch: Batch = msgspec.msgpack.decode(WRITTEN.data, type=Batch)
    batch.version = 2
    data = msgspec.msgpack.encode(batch)
    with pytest.raises(Rejected, match="version"):
        read_batch(NAMES, STREAM, Entry("1-0", NAMES.mac(SPACE, b"entry", data), data))
    state: State = msgspec.msgpack.decode(SNAPSHOT.data, type=State)
    state.version = 2
    data = msgspec.msgpack.encode(state)
    with pytest.raises(Rejected, match="version"):
        read_state(NAMES, STREAM, Snapshot("1-0", NAMES.mac(SPACE, b"snapshot", b"1-0", data), data))


def test_a_later_version_may_say_anything_after_how_all_begins():
    head = [2, *msgspec.msgpack.decode(WRITTEN.data)[1:5]]
    data = msgspec.msgpack.encode([*head, {"another": "schema"}])
    with pytest.raises(Rejected, match="version"):
        read_batch(NAMES, STREAM, Entry("1-0", NAMES.mac(SPACE, b"entry", data), data))
    with pytest.raises(Rejected, match="version"):
        read_state(NAMES, STREAM, Snapshot("1-0", NAMES.mac(SPACE, b"snapshot", b"1-0", data), data))


DEEP = b"\x91" * 100_000


@pytest.mark.parametrize(
    "end", [b"\xa1w\x91\x92\x01" + DEEP, b"\xa1w\x90\xa0" + DEEP, b"\xa1w\xdd\xff\xff\xff\xff", DEEP]
)
def test_what_is_nested_deeply_or_tells_of_more_than_there_is_is_rejected_signed_or_not(end):
    data = b"\x99" + msgspec.msgpack.encode(msgspec.msgpack.decode(WRITTEN.data)[:5])[1:] + end
    for mac in (b"", NAMES.mac(SPACE, b"entry", data)):
        with pytest.raises(Rejected):
            read_batch(NAMES, STREAM, Entry("1-0", mac, data))
    for mac in (b"", NAMES.mac(SPACE, b"snapshot", b"1-0", data)):
        with pytest.raises(Rejected):
            read_state(NAMES, STREAM, Snapshot("1-0", mac, data))


def test_fields_that_a_later_version_adds_are_no_harm():
    data = msgspec.msgpack.encode([*msgspec.msgpack.decode(WRITTEN.data), "later"])
    read, batch = read_batch(NAMES, STREAM, Entry("1-0", NAMES.mac(SPACE, b"entry", data), data))
    assert (read, len(batch.records)) == (SPACE, 2)
