"""The log in memory does what a log does, and breaks as a test says."""

from __future__ import annotations

import pytest

from contextpilot_rag.errors import LogUnavailable
from contextpilot_rag.replicas.log import START, Entry, Snapshot
from tests.replicas import memory_log
from tests.replicas.log_conformance import ALL, FIRST, A, B, LogConformance, all_of, filled, texts, written
from tests.replicas.memory_log import MemoryLog


class TestMemoryLog(LogConformance):
    @pytest.fixture
    def opens(self):
        made = MemoryLog()

        def opens(most_entries=100_000):
            made._most = most_entries
            return made

        return opens

    @pytest.fixture
    def few_rings(self, monkeypatch):
        monkeypatch.setattr(memory_log, "MOST_RINGS", 100)


@pytest.fixture
def log():
    return MemoryLog()


def test_a_log_that_is_away_does_nothing(log):
    filled(log, A, b"1")
    log.away = True
    for call in (lambda: log.append([written(A, b"2")]), log.now, lambda: all_of(log, A), lambda: log.listen(START, 0)):
        with pytest.raises(LogUnavailable):
            call()
    log.away = False
    assert texts(log, A) == [b"1"]
    assert log.asked["append"] == 2


def test_a_full_log_can_be_read(log):
    entries = filled(log, A, b"1")
    log.full = True
    with pytest.raises(LogUnavailable):
        log.append([written(A, b"2")])
    with pytest.raises(LogUnavailable):
        log.compact(A, Snapshot(entries[0].position, b"", b""))
    assert texts(log, A) == [b"1"]
    assert log.listen(log.now(), 0).streams == frozenset()


def test_what_a_slow_log_is_asked_is_done_though_nobody_learns_of_it(log):
    log.timeout, log.slow = 0.01, 0.02
    with pytest.raises(LogUnavailable):
        log.append([written(A, b"1")])
    log.slow = 0.001
    assert texts(log, A) == [b"1"]


@pytest.mark.parametrize("back", [False, True])
def test_a_log_that_lost_everything_says_so(log, back):
    old = filled(log, A, b"1")
    log.found(A, Snapshot(START, b"", b""), FIRST)
    position = log.now()
    log.lose_everything(back=back)
    news = log.listen(position, 10)
    assert news.streams is None
    assert (texts(log, A), log.snapshot(A), log.streams(10)) == ([], None, [])
    new = filled(log, A, b"2")
    assert (new[0].position < old[0].position) is back
    assert log.listen(news.position, 0).streams == {A}


def test_a_failover_forgets_the_newest(log):
    filled(log, A, b"1")
    kept = log.now()
    filled(log, B, b"2")
    filled(log, A, b"3")
    lost = log.now()
    log.lose_last(2)
    assert (texts(log, A), texts(log, B)) == ([b"1"], [])
    assert log.listen(lost, 0).streams is None
    assert log.listen(kept, 0).streams == frozenset()
    assert filled(log, A, b"4")[-1].position > lost


def test_held_appends_are_done_later_in_any_order_twice_or_never(log):
    log.hold_appends()
    for text in (b"1", b"2", b"3"):
        with pytest.raises(LogUnavailable):
            log.append([written(A, text)])
    assert (log.held, texts(log, A)) == (3, [])
    log.release([2, 0, 2], go_on=False)
    assert (log.held, texts(log, A)) == (0, [b"3", b"1", b"3"])
    with pytest.raises(LogUnavailable):
        log.append([written(A, b"4")])
    log.release()
    log.append([written(A, b"5")])
    assert texts(log, A) == [b"3", b"1", b"3", b"4", b"5"]


def test_others_write_there_too(log):
    position = log.now()
    log.poison(A, Entry("", b"", b"poison"))
    assert log.listen(position, 0).streams == {A}
    assert log.entries(A) == log.read({A: ALL}, 10)[A]
    log.replace_snapshot(A, Snapshot("9-9", b"", b""))
    assert log.snapshot(A).position == "9-9"
    log.replace_snapshot(A, None)
    assert log.snapshot(A) is None
