"""Somebody else writes to the log's server: what is no entry of ours stops nothing."""

from __future__ import annotations

import os
import sys
import threading

import pytest

from contextpilot_rag.replicas.log import START, Entry, Snapshot
from contextpilot_rag.replicas.redis_log import open_log
from tests.replicas.cluster import Cluster
from tests.replicas.log_conformance import FIRST, A, B, C, all_of, filled, texts, written

RUNG = "contextpilot:{bell}:rung"
USED = "contextpilot:{bell}:used"


def log_key(stream):
    return f"contextpilot:{{{stream}}}:log"


def snap_key(stream):
    return f"contextpilot:{{{stream}}}:snap"


@pytest.fixture
def log(log_server):
    log = open_log(log_server.url, timeout=10.0)
    yield log
    log.close()


@pytest.fixture
def foreign(log_server):
    return log_server.client()


@pytest.mark.parametrize(
    "fields",
    [
        {"d": "data", "m": "mac"},
        {"m": "mac"},
        {"x": "y"},
        {"m": "mac", "d": "data", "e": "more"},
        {"M": "mac", "D": "data"},
        {"": ""},
    ],
)
def test_an_entry_with_other_fields_is_there_and_says_nothing(log, foreign, fields):
    (first,) = filled(log, A, b"1")
    position = foreign.xadd(log_key(A), fields).decode()
    log.append([written(A, b"2")])
    entries = all_of(log, A)[A]
    assert entries[:2] == [first, Entry(position, b"", b"")]
    assert entries[2].data == b"2"
    assert log.read({A: (position, True)}, 1)[A] == [Entry(position, b"", b"")]


def test_a_key_of_another_kind_stops_no_other_stream_and_is_mended_by_who_appends(log, foreign):
    entries = filled(log, A, b"1")
    for make in (
        lambda key: foreign.set(key, "x"),
        lambda key: foreign.rpush(key, "x"),
        lambda key: foreign.hset(key, "x", "y"),
    ):
        foreign.delete(log_key(B))
        make(log_key(B))
        assert all_of(log, A, B) == {A: entries, B: []}
        assert not log.compact(B, Snapshot(entries[0].position, b"", b""))
        position = log.now()
        log.append([written(A, b"2"), written(B, b"b1"), written(B, b"b2")])
        assert texts(log, B) == [b"b1", b"b2"]
        assert texts(log, A) == [*(entry.data for entry in entries), b"2"]
        assert log.listen(position, 10).streams == {A, B}
        entries = all_of(log, A)[A]


def test_a_log_of_another_kind_is_founded(log, foreign):
    foreign.set(log_key(A), "x")
    foreign.set(snap_key(A), "x")
    assert log.snapshot(A) is None
    begin = Snapshot(START, b"mac", b"data")
    assert log.found(A, begin, FIRST)
    assert (log.snapshot(A), texts(log, A)) == (begin, [b"first"])


@pytest.mark.parametrize(
    "fields",
    [
        {"p": "1-0", "m": "mac"},
        {"x": "y"},
        {"p": "later", "m": "mac", "d": "data"},
        {"p": "1-0-0", "m": "mac", "d": "data"},
        {"p": "", "m": "mac", "d": "data"},
        {"p": "99999999999999999999999-0", "m": "mac", "d": "data"},
        {"p": "18446744073709551616-0", "m": "mac", "d": "data"},
        {"p": "0-18446744073709551616", "m": "mac", "d": "data"},
        {"p": "01-0", "m": "mac", "d": "data"},
        {"p": "1-0\n", "m": "mac", "d": "data"},
        {"p": "\u0661-0", "m": "mac", "d": "data"},
    ],
)
def test_a_snapshot_that_is_none_is_no_snapshot(log, foreign, fields):
    (entry,) = filled(log, A, b"1")
    foreign.hset(snap_key(A), mapping=fields)
    assert log.snapshot(A) is None
    assert log.standing(A) is None
    begin = Snapshot(START, b"mac", b"data")
    assert log.found(A, begin, FIRST)
    assert log.snapshot(A) == begin
    foreign.delete(snap_key(A))
    foreign.hset(snap_key(A), mapping=fields)
    later = Snapshot(entry.position, b"mac", b"later")
    assert log.compact(A, later)
    assert log.snapshot(A) == later
    assert not log.found(A, begin, FIRST)


def test_a_bell_of_another_kind_is_mended(log, foreign):
    filled(log, A, b"1")
    old = log.now()
    for key in (RUNG, USED):
        foreign.delete(key)
        foreign.set(key, "x")
    assert log.streams(10) == []
    news = log.listen(old, 10)
    assert news.streams is None
    log.append([written(B, b"2")])
    assert log.listen(news.position, 10).streams == {B}
    assert "B" not in log.streams(10)
    foreign.set(USED, "x")
    open_log_again = open_log(str(log._address), timeout=10.0)
    open_log_again.append([written(C, b"3")])
    assert open_log_again.streams(10) == [C]
    open_log_again.close()


def test_a_bell_that_was_taken_away_while_somebody_waits(log, foreign):
    filled(log, A, b"1")
    position = log.now()
    assert log.listen(position, 0).streams == frozenset()
    foreign.delete(RUNG)
    assert log.listen(position, 0.02).streams is None


def test_who_rings_for_what_is_no_stream_rings_for_nothing(log, foreign):
    position = log.now()
    for fields in ({"s": "a/b ../x \u00e4 " + "y" * 65}, {"x": A}, {"s": ""}):
        foreign.xadd(RUNG, fields)
    foreign.xadd(RUNG, {"s": f"{A} {B}", "x": "y"})
    foreign.zadd(USED, {"a/b": 1, "y" * 65: 2, C: 3})
    assert log.listen(position, 10).streams == {A, B}
    assert log.streams(10) == [C]


def test_positions_are_compared_as_numbers(log, foreign):
    for position in ("9-0", "10-9", "10-10", "18446744073709551614-1", "18446744073709551614-18446744073709551615"):
        foreign.xadd(log_key(A), {"m": "", "d": position}, id=position)
    previous = None
    for entry in all_of(log, A)[A]:
        assert log.compact(A, Snapshot(entry.position, b"", b""))
        assert log.snapshot(A).position == entry.position
        if previous:
            assert not log.compact(A, Snapshot(previous, b"", b""))
        previous = entry.position
    assert [entry.position for entry in all_of(log, A)[A]] == [previous]


LAST = "18446744073709551615-18446744073709551615"


def test_a_stream_whose_last_position_somebody_has_used_is_begun_anew_and_stops_no_other(log, foreign):
    filled(log, A, b"1")
    foreign.xadd(log_key(A), {"x": "y"}, id=LAST)
    log.append([written(A, b"2"), written(B, b"b")])
    assert (texts(log, A), texts(log, B)) == ([b"2"], [b"b"])
    foreign.xadd(log_key(C), {"x": "y"}, id=LAST)
    assert log.found(C, Snapshot(START, b"mac", b"data"), FIRST)
    assert texts(log, C) == [b"first"]


def test_a_bell_whose_last_position_somebody_has_used_is_rung_again(log, foreign):
    filled(log, A, b"1")
    foreign.xadd(RUNG, {"s": A}, id=LAST)
    position = log.now()
    log.append([written(B, b"2")])
    assert log.listen(position, 0.2).streams is None  # said when the wait is over
    assert texts(log, B) == [b"2"]


def test_all_that_is_there_goes_away_once_nobody_uses_it(log_server, foreign):
    log = open_log(log_server.url, timeout=10.0, keep_seconds=1000)
    log.found(A, Snapshot(START, b"", b""), FIRST)
    log.append([written(B, b"1")])
    log.compact(B, Snapshot(all_of(log, B)[B][0].position, b"", b""))
    keys = {key.decode() for key in foreign.scan_iter()}
    assert keys == {RUNG, USED, log_key(A), log_key(B), snap_key(A), snap_key(B)}
    for key in keys:
        assert 900_000 < foreign.pttl(key) <= 1_000_000
    foreign.zadd(USED, {C: 5})
    other = open_log(log_server.url, timeout=10.0, keep_seconds=1000)
    other.append([written(B, b"2")])
    assert other.streams(10) == [B, A]
    log.close()
    other.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
@pytest.mark.skipif(sys.version_info >= (3, 12), reason="a process with threads that forks warns")
def test_a_forked_child_has_connections_of_its_own(log, log_server):
    filled(log, A, b"1")
    position = log.now()
    waiting = threading.Thread(target=log.listen, args=(position, 20.0))
    waiting.start()
    before = len(log_server.client().client_list())
    read, write = os.pipe()
    child = os.fork()
    if not child:
        code = 1
        try:
            log.append([written(B, b"child")])
            os.write(write, b"%d" % len(log_server.client().client_list()))
            code = texts(log, B) != [b"child"]
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    assert int(os.read(read, 100)) > before
    os.close(read)
    os.close(write)
    waiting.join(20)  # the child's append woke it
    assert not waiting.is_alive()
    assert texts(log, A) == [b"1"]
    assert log.listen(position, 10).streams == {B}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with Cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


def moving(cluster, key):
    """The node that has a key, another one, the key's slot, and the nodes' names."""
    owner = cluster.owner(key)
    other = next(node for node in cluster.nodes if node is not owner)
    slot = owner.client().execute_command("CLUSTER", "KEYSLOT", key)
    names = [node.client().execute_command("CLUSTER", "MYID").decode() for node in (owner, other)]
    return owner, other, slot, names


def test_a_slot_that_moves_is_followed(cluster):
    log = open_log(cluster.url, timeout=10.0)
    entries = filled(log, A, b"1", b"2")
    owner, other, slot, (owners, others) = moving(cluster, log_key(A))
    other.client().execute_command("CLUSTER", "SETSLOT", slot, "IMPORTING", owners)
    owner.client().execute_command("CLUSTER", "SETSLOT", slot, "MIGRATING", others)
    assert all_of(log, A)[A] == entries
    owner.client().execute_command("MIGRATE", other.host, other.port, log_key(A), 0, 5000)
    assert all_of(log, A)[A] == entries  # asked of the one, and answered by the other
    log.append([written(A, b"3")])
    assert texts(log, A) == [b"1", b"2", b"3"]
    for node in (other, owner):
        node.client().execute_command("CLUSTER", "SETSLOT", slot, "NODE", others)
    log.append([written(A, b"4"), written(B, b"b")])
    assert texts(log, A) == [b"1", b"2", b"3", b"4"]
    fresh = open_log(cluster.url, timeout=10.0)
    assert texts(fresh, A) == [b"1", b"2", b"3", b"4"]
    log.close()
    fresh.close()
