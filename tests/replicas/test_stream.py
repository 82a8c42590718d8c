"""How far a log was read, and what in it is new: doubled, overlapping and missing entries."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextpilot_rag.replicas.entries import write_batch
from contextpilot_rag.replicas.log import START, Entry
from contextpilot_rag.replicas.space import Names, Space
from contextpilot_rag.replicas.stream import Gap, Stream, rank
from contextpilot_rag.types import Namespace

NAMES = Names("secret")
SPACE = Space("pilot", Namespace("tenant"))
ME = "me"


def wrote(position: int, writer: str, *numbers: int, founded: str = "", names: Names = NAMES) -> Entry:
    """An entry, whose records say their own numbers."""
    records = [(number, msgspec.msgpack.encode(number)) for number in numbers]
    written = write_batch(names, SPACE, writer, records, founded)
    return Entry(f"{position}-0", written.mac, written.data)


def new_stream() -> Stream:
    return Stream(NAMES.stream(SPACE), SPACE, 0.0)


def names_of(found: object) -> list[str]:
    return [record.name for record in found[0]]  # type: ignore[index]


def test_each_record_is_read_once_and_own_ones_are_told_apart():
    stream = new_stream()
    first = [wrote(1, ME, 1, 2), wrote(2, "other", 1)]
    new, rejected = stream.read(NAMES, ME, first, first=True)
    assert [(record.name, record.own) for record in new] == [("me-1", True), ("me-2", True), ("other-1", False)]
    assert not rejected
    assert names_of(stream.read(NAMES, ME, [first[1], wrote(3, ME, 3)])) == ["me-3"]
    assert (stream.position, dict(stream.writers)) == ("3-0", {"me": 3, "other": 1})


@given(
    ranges=st.lists(st.tuples(st.sampled_from("ab"), st.integers(1, 12), st.integers(0, 6)), max_size=20),
    cuts=st.lists(st.integers(1, 5), min_size=20, max_size=20),
)
def test_doubled_and_overlapping_entries_are_taken_once_however_they_are_read(ranges, cuts):
    """As by a model that goes through all records and keeps those whose number is the highest so far."""
    entries = [wrote(at + 1, who, *range(start, start + size)) for at, (who, start, size) in enumerate(ranges)]
    last: dict[str, int] = {}
    expected = []
    for who, start, size in ranges:
        for number in range(start, start + size):
            if number > last.get(who, 0):
                last[who] = number
                expected.append(f"{who}-{number}")
    stream, found, at = new_stream(), [], 0
    for cut in cuts:
        some = entries[at - 1 : at + cut] if at else entries[:cut]
        found += names_of(stream.read(NAMES, ME, some, first=not at))
        at = min(at + cut, len(entries))
    assert found == expected
    assert {who: number for who, number in stream.writers.items() if number} == last


def test_what_was_read_before_is_left_out_by_its_position():
    stream = new_stream()
    entries = [wrote(1, "a", 1), wrote(2, "a", 2)]
    stream.read(NAMES, ME, entries, first=True)
    assert names_of(stream.read(NAMES, ME, [entries[1], entries[0], wrote(3, "a", 3)])) == ["a-3"]


@pytest.mark.parametrize(
    "entries",
    [
        [],
        [wrote(3, "a", 2)],  # the one that was read is gone
        [wrote(1, "a", 7)],  # it is another
        [wrote(1, "b", 1), wrote(3, "a", 2)],
    ],
)
def test_what_does_not_go_on_from_the_last_entry_is_a_gap_and_changes_nothing(entries):
    stream = new_stream()
    stream.read(NAMES, ME, [wrote(1, "a", 1)], first=True)
    before = (stream.position, stream.mac, dict(stream.writers), stream.entries)
    with pytest.raises(Gap, match="gap"):
        stream.read(NAMES, ME, entries)
    assert (stream.position, stream.mac, dict(stream.writers), stream.entries) == before


def test_what_comes_where_nothing_was_is_read_from_its_snapshot_on():
    """For it may be what others' snapshot has left."""
    stream = new_stream()
    assert names_of(stream.read(NAMES, ME, [], first=True)) == []
    assert names_of(stream.read(NAMES, ME, [])) == []
    with pytest.raises(Gap, match="new"):
        stream.read(NAMES, ME, [wrote(4, "a", 4)])


def test_strangers_entries_are_counted_and_passed_over():
    stream = new_stream()
    entries = [wrote(1, "a", 1), wrote(2, "a", 2, names=Names("other")), Entry("3-0", b"", b"?"), wrote(4, "a", 3)]
    found = stream.read(NAMES, ME, entries, first=True)
    assert names_of(found) == ["a-1", "a-3"]
    assert sorted(found[1]) == ["schema", "signature"]
    assert stream.position == "4-0"
    assert names_of(stream.read(NAMES, ME, [entries[3]])) == []


def test_a_stranger_may_stand_last_and_is_what_is_gone_on_from():
    stream = new_stream()
    strange = Entry("2-0", b"mac", b"?")
    stream.read(NAMES, ME, [wrote(1, "a", 1), strange], first=True)
    assert names_of(stream.read(NAMES, ME, [strange, wrote(3, "a", 2)])) == ["a-2"]


def test_what_all_begin_with_anew_is_a_gap_for_those_who_have_not_and_changes_nothing():
    stream = new_stream()
    with pytest.raises(Gap, match="founded"):
        stream.read(NAMES, ME, [wrote(1, "a", 1), wrote(2, "b", founded="anew")], first=True)
    assert (stream.position, dict(stream.writers)) == (START, {})
    stream.founded = "anew"
    assert names_of(stream.read(NAMES, ME, [wrote(1, "a", 1), wrote(2, "b", founded="anew")], first=True)) == ["a-1"]
    assert not stream.torn


def test_what_all_began_with_may_be_missing():
    stream = new_stream()
    stream.read(NAMES, ME, [wrote(1, "b", founded="anew"), wrote(2, "a", 1)], first=True, torn=True)
    assert (stream.founded, stream.torn) == ("anew", True)


def test_a_question_for_a_snapshot_is_heard():
    stream = new_stream()
    stream.read(NAMES, ME, [wrote(1, "a", 1)], first=True)
    assert not stream.asked
    stream.read(NAMES, ME, [wrote(1, "a", 1), wrote(2, "b")])
    assert stream.asked


def test_writers_are_forgotten_beyond_some_hundreds_those_first_who_wrote_last_long_ago():
    stream = new_stream()
    entries = [wrote(1, "first", 1), wrote(2, "kept", 1)]
    entries += [wrote(at, f"w{at}", 1) for at in range(3, 250)]
    entries.append(wrote(300, "kept", 2))
    entries += [wrote(at, f"w{at}", 1) for at in range(301, 400)]
    stream.read(NAMES, ME, entries, first=True)
    assert len(stream.writers) == 256
    assert "first" not in stream.writers
    assert stream.writers["kept"] == 2


@given(st.lists(st.tuples(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1)), min_size=2, max_size=2))
def test_positions_are_compared_as_numbers(two):
    one, other = two
    assert (rank(f"{one[0]}-{one[1]}") < rank(f"{other[0]}-{other[1]}")) is (one < other)


def test_why_a_stream_was_lost_first_is_what_counts():
    stream = new_stream()
    assert stream.why == "new"
    stream.loaded = True
    stream.lose("gap")
    stream.lose("stray")
    assert (stream.why, stream.loaded) == ("gap", False)
