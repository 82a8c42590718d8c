"""Replicas of two versions on one log: what the later one writes is left alone."""

from __future__ import annotations

import msgspec
import pytest

from contextpilot_rag.replicas.entries import read_state, write_state
from contextpilot_rag.replicas.log import Snapshot
from contextpilot_rag.replicas.space import Names, Space

from .some import HERE, STREAM, knows, send
from .world import PACE, POOL, SECRET


def later(whole, position):
    """A snapshot as a later version writes it."""
    data = msgspec.msgpack.encode([2, *msgspec.msgpack.decode(whole.data)[1:5], {"more": "than is understood"}])
    space = Space(POOL, HERE)
    return Snapshot(position, Names(SECRET).mac(space, b"snapshot", position.encode(), data), data)


def with_a_part_more(whole):
    """A snapshot that has a part as a later version adds them."""
    names, space = Names(SECRET), Space(POOL, HERE)
    state = read_state(names, STREAM, whole)[1]
    parts = [*state.parts, msgspec.msgpack.encode(["later", 1])]
    return write_state(names, space, whole.position, dict(state.writers), parts, state.founded)


@pytest.mark.parametrize("kind", ["version", "state"])
def test_a_later_version_s_snapshot_is_counted_and_left_alone_as_long_as_somebody_may_use_it(some, kind):
    one, _ = some.members
    send(one, "a")
    some.go()
    one.compact_soon()
    some.go()
    whole = some.server.snapshot(STREAM)
    snapshot = later(whole, whole.position) if kind == "version" else with_a_part_more(whole)
    some.server.replace_snapshot(STREAM, snapshot)
    old = some.join()
    some.members = [old]
    some.go(10.0)  # it is not asked for another one, nor is one written
    send(old, "b")
    some.go(10.0)
    assert knows(old, "b")
    assert old.core.rejected[kind] == 1
    assert some.server.snapshot(STREAM) == snapshot
    assert old.core.counts["compacted"] == old.core.counts["founded"] == 0
    for number in range(12 * PACE.compact_entries):  # nobody has written one since
        send(old, f"c{number}")
        some.go(0.1)
    some.go(5.0)
    assert read_state(Names(SECRET), STREAM, some.server.snapshot(STREAM))


def test_what_an_older_version_forgets_it_asks_a_later_one_to_take_out_of_the_log(some):
    one, other = some.members
    send(one, "a")
    some.go()
    one.compact_soon()
    some.go()
    snapshot = later(some.server.snapshot(STREAM), some.server.snapshot(STREAM).position)
    some.server.replace_snapshot(STREAM, snapshot)
    old = some.join()
    some.members = [old, other]  # the other stands for one that understands it
    some.go()
    old.index.forget(HERE)
    some.go(2.0)
    assert some.server.snapshot(STREAM) != snapshot
    assert other.core.counts["compacted"] == 1
    assert not knows(other, "a")
