"""Somebody puts something huge into the log, or a line is slow: what can be read is read."""

from __future__ import annotations

import pytest

from contextpilot_rag.remote.asks import Late
from contextpilot_rag.replicas import redis_log
from contextpilot_rag.replicas.budget import Budget, TooMuch
from contextpilot_rag.replicas.core import MOST, Core
from contextpilot_rag.replicas.log import FEW, START, Entry, LogTooLarge, Snapshot, Written
from contextpilot_rag.replicas.pace import Pace
from contextpilot_rag.replicas.pools import Pools
from contextpilot_rag.replicas.redis_log import open_log
from contextpilot_rag.replicas.space import Names
from tests.replicas.log_conformance import A, B, all_of, filled, texts, written
from tests.replicas.memory_log import MemoryLog
from tests.replicas.test_log_poison import RUNG, log_key, snap_key

SMALL = 2**20


@pytest.fixture
def log(log_server, monkeypatch):
    monkeypatch.setattr(redis_log, "Budget", lambda seconds, most=SMALL: Budget(seconds, most))
    monkeypatch.setattr(redis_log, "_LARGEST_ENTRY", SMALL // 8)
    monkeypatch.setattr(redis_log, "LARGEST_SNAPSHOT", SMALL)
    monkeypatch.setattr(redis_log, "_MOST_LARGE", 2 * SMALL)
    log = open_log(log_server.url, timeout=10.0)
    yield log
    log.close()


@pytest.fixture
def foreign(log_server):
    return log_server.client()


def paged(log, stream=A):
    """All entries, as a replica reads them."""
    core, found = Core(log, Names("s"), Pools(), Pace()), []
    position, more = START, True
    while more:
        entries, more = core.page(stream, position, anchor=True)
        found += [entry for entry in entries if entry.position != position]
        position = found[-1].position
    return found


def test_what_is_too_large_is_left_out_and_what_stands_around_it_is_read(log, foreign):
    (first,) = filled(log, A, b"1")
    huge = foreign.xadd(log_key(A), {"m": "mac", "d": b"x" * 3 * SMALL}).decode()
    strange = foreign.xadd(log_key(A), {"m": b"m" * 3 * SMALL, "d": "d"}).decode()
    many = foreign.xadd(log_key(A), {f"{number}": b"x" * SMALL for number in range(3)}).decode()
    log.append([written(A, b"2")])
    with pytest.raises(LogTooLarge):
        all_of(log, A)
    found = paged(log)
    assert found[:4] == [first, Entry(huge, b"mac", b""), Entry(strange, b"", b"d"), Entry(many, b"", b"")]
    assert found[4].data == b"2"
    assert texts(log, B) == []


def test_many_that_are_large_together_are_read_a_few_at_a_time(log):
    data = [bytes([number]) * (SMALL // 10) for number in range(60)]
    for some in data:
        log.append([Written(A, b"mac", some)])
    assert [entry.data for entry in paged(log)] == data


def test_a_snapshot_that_is_too_large_is_one_that_says_nothing_and_can_be_replaced(log, foreign):
    (entry,) = filled(log, A, b"1")
    foreign.hset(snap_key(A), mapping={"p": "99999999999999-0", "m": "mac", "d": b"x" * 3 * SMALL})
    assert log.snapshot(A) == Snapshot("99999999999999-0", b"mac", b"")
    later = Snapshot(entry.position, b"mac", b"later")
    assert not log.compact(A, Snapshot(entry.position, b"mac", b"x" * (SMALL + 1)), b"mac")
    assert log.compact(A, later, b"mac")
    assert log.snapshot(A) == later
    foreign.hset(snap_key(A), "m", b"m" * 65)  # no signature
    assert (log.snapshot(A), log.standing(A)) == (None, None)


def test_who_rings_with_something_huge_is_not_listened_to(log, foreign):
    position = log.now()
    foreign.xadd(RUNG, {"s": b"x " * 3 * SMALL})
    news = log.listen(position, 10)
    assert news.streams is None
    log.append([written(A, b"1")])
    assert log.listen(news.position, 10).streams == {A}
    foreign.xadd(RUNG, {"s": b"x " * 3 * SMALL})
    assert log.now()


def test_fewer_are_asked_for_where_they_are_large_and_more_again_where_not():
    asked = []

    class Large(MemoryLog):
        def read(self, wanted, most):
            asked.append(most)
            if most > 7:
                raise LogTooLarge("too much")
            return super().read(wanted, most)

    log = Large()
    log.append([written(A, b"%d" % number) for number in range(20)])
    assert len(paged(log)) == 20
    assert asked[:2] == [MOST, FEW]
    assert max(asked[1:]) == 2 * FEW


def test_a_line_that_is_slow_is_waited_for_as_long_as_it_carries_much():
    budget = Budget(50.0, most=500 * SMALL)
    budget.began -= 100.0
    budget.at -= 100.0
    budget.moved(6 * SMALL)  # in so long, that is next to nothing
    with pytest.raises(Late):
        budget.left()
    budget.moved(400 * SMALL)
    assert 10.0 < budget.left() <= 50.0  # after what came last
    with pytest.raises(TooMuch):
        budget.moved(100 * SMALL)
