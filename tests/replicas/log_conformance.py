"""What every `Log` has to do. A test module subclasses `LogConformance` and says how to make one."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from contextpilot_rag.errors import LogUnavailable
from contextpilot_rag.replicas.log import START, Entry, Log, Snapshot, Written

A, B, C = ("a" * 32, "b" * 32, "c" * 32)
ALL = (START, True)
FIRST = Written(A, b"first mac", b"first")
Open = Callable[..., Log]


def written(stream, text):
    return Written(stream, b"mac of " + text, text)


def all_of(log, *streams, most=100_000):
    return log.read(dict.fromkeys(streams, ALL), most)


def texts(log, stream):
    return [entry.data for entry in all_of(log, stream)[stream]]


def filled(log, stream, *data):
    """A stream with an entry for each of them; returns the entries."""
    log.append([written(stream, text) for text in data])
    return all_of(log, stream)[stream]


class LogConformance:
    """Fixtures: `log` is empty; `opens` opens another one on the same server, perhaps with `most_entries`."""

    @pytest.fixture
    def opens(self) -> Open:
        raise NotImplementedError

    @pytest.fixture
    def log(self, opens):
        return opens()

    @pytest.fixture
    def few_rings(self, monkeypatch):
        """The bell remembers no more than some hundred."""
        raise NotImplementedError

    def test_an_empty_log_has_nothing(self, log):
        assert log.listen(log.now(), 0).streams == frozenset()
        assert log.read({A: ALL, B: ("5-0", False)}, 10) == {A: [], B: []}
        assert log.read({}, 10) == {}
        assert log.snapshot(A) is None
        assert log.streams(10) == []

    def test_what_one_appends_all_read_in_order(self, log, opens):
        data = [b"", bytes(range(256)), b"\r\n$5\r\n", "\u00e4".encode()]
        log.append([written(A, text) for text in data])
        log.append([written(A, b"more")])
        entries = all_of(opens(), A)[A]
        assert [(entry.mac, entry.data) for entry in entries] == [
            (b"mac of " + text, text) for text in [*data, b"more"]
        ]
        positions = [tuple(map(int, entry.position.split("-"))) for entry in entries]
        assert positions == sorted(set(positions))

    def test_entries_of_one_append_go_to_their_streams(self, log):
        log.append([written(A, b"1"), written(B, b"2"), written(A, b"3")])
        assert (texts(log, A), texts(log, B), texts(log, C)) == ([b"1", b"3"], [b"2"], [])
        log.append([])
        assert texts(log, A) == [b"1", b"3"]

    def test_a_read_begins_at_a_position_or_after_it(self, log):
        first, second, third = filled(log, A, b"1", b"2", b"3")
        assert log.read({A: (first.position, True)}, 10)[A] == [first, second, third]
        assert log.read({A: (first.position, False)}, 10)[A] == [second, third]
        assert log.read({A: (third.position, False)}, 10)[A] == []
        assert log.read({A: (START, False)}, 2)[A] == [first, second]

    def test_a_read_of_many_streams(self, log):
        names = [f"{number:032x}" for number in range(300)]
        log.append([written(name, name.encode()) for name in names])
        found = all_of(log, *names)
        assert {name: [entry.data for entry in entries] for name, entries in found.items()} == {
            name: [name.encode()] for name in names
        }

    def test_the_bell_names_the_streams_that_were_appended_to(self, log, opens):
        other = opens()
        position = other.now()
        log.append([written(A, b"1"), written(B, b"2")])
        log.append([written(A, b"3")])
        news = other.listen(position, 10)
        while news.streams != {A, B}:  # they may come one by one
            more = other.listen(news.position, 10)
            assert more.streams
            news = type(news)(more.position, news.streams | more.streams)
        assert other.listen(news.position, 0).streams == frozenset()
        log.append([written(C, b"4")])
        assert other.listen(news.position, 10).streams == {C}
        assert other.listen(news.position, 10).streams == {C}  # as often as it is asked

    def test_the_bell_wakes_who_waits(self, log, opens):
        other = opens()
        position = other.now()
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(other.listen, position, 20.0)
            log.append([written(A, b"1")])
            assert waiting.result(10).streams == {A}

    def test_where_nothing_rings_there_is_no_news(self, log):
        log.append([written(A, b"1")])
        position = log.now()
        assert log.listen(position, 0.02) == log.listen(position, 0)
        assert log.listen(position, 0).position == position

    def test_who_has_not_heard_the_bell_for_too_long_is_told(self, log, few_rings):
        old = log.now()
        for number in range(500):
            log.append([written(A, str(number).encode())])
        news = log.listen(old, 0)
        assert news.streams is None
        assert log.listen(news.position, 0).streams == frozenset()
        log.append([written(B, b"1")])
        assert log.listen(news.position, 10).streams == {B}

    @pytest.mark.parametrize("position", [START, "5-0", "9999999999999-0"])
    def test_a_position_of_another_bell_is_no_position(self, log, position):
        log.append([written(A, b"1")])
        news = log.listen(position, 10)
        assert news.streams is None
        log.append([written(B, b"1")])
        assert log.listen(news.position, 10).streams == {B}

    def test_streams_are_listed_last_used_first(self, log, opens):
        for stream in (A, B, C):
            opens().append([written(stream, b"1")])
        opens().append([written(A, b"2")])
        assert log.streams(10) == [A, C, B]
        assert log.streams(2) == [A, C]
        assert log.streams(0) == []

    def test_streams_are_trimmed_by_length(self, opens):
        log = opens(most_entries=100)
        for number in range(0, 1000, 50):
            log.append([written(A, str(one).encode()) for one in range(number, number + 50)])
        left = texts(log, A)
        assert 100 <= len(left) <= 300
        assert left == [str(one).encode() for one in range(1000 - len(left), 1000)]

    def test_a_log_is_founded_once(self, log, opens):
        other = opens()
        position = other.now()
        begin, second = Snapshot(START, b"mac", b"\0\xff"), Snapshot("7-0", b"other", b"other")
        assert log.found(A, begin, FIRST)
        assert log.snapshot(A) == begin == other.snapshot(A)
        assert texts(log, A) == [b"first"]
        news = other.listen(position, 10)
        assert news.streams == {A}
        assert not other.found(A, second, written(A, b"never"))
        assert other.snapshot(A) == begin
        assert texts(log, A) == [b"first"]
        assert other.listen(news.position, 0).streams == frozenset()
        assert log.streams(10) == [A]
        assert log.snapshot(B) is None

    def test_of_many_who_found_one_does(self, log, opens):
        logs = [opens() for _ in range(6)]
        with ThreadPoolExecutor(6) as pool:
            done = list(
                pool.map(
                    lambda number: logs[number].found(
                        A, Snapshot(START, b"", b"%d" % number), written(A, b"%d" % number)
                    ),
                    range(6),
                )
            )
        assert sum(done) == 1
        assert texts(log, A) == [b"%d" % done.index(True)]
        assert log.snapshot(A).data == b"%d" % done.index(True)

    def test_a_snapshot_takes_the_place_of_what_is_before_it(self, log):
        log.found(A, Snapshot(START, b"", b""), FIRST)
        entries = filled(log, A, b"1", b"2", b"3")
        later = Snapshot(entries[2].position, b"mac", b"later")
        assert log.compact(A, later)
        assert log.snapshot(A) == later
        assert all_of(log, A)[A] == entries[2:]  # that at the position stays

    def test_a_snapshot_never_goes_back(self, log):
        entries = filled(log, A, b"1", b"2", b"3")
        later = Snapshot(entries[1].position, b"mac", b"later")
        assert log.compact(A, later)
        for position in (entries[1].position, entries[0].position, START):
            assert not log.compact(A, Snapshot(position, b"", b"earlier"))
        assert log.snapshot(A) == later
        assert all_of(log, A)[A] == entries[1:]

    def test_a_snapshot_of_what_is_not_there_changes_nothing(self, log):
        entries = filled(log, A, b"1", b"2")
        for position in ("1-0", "99999999999999-0", f"{entries[1].position}7"):
            assert not log.compact(A, Snapshot(position, b"", b""))
        assert not log.compact(B, Snapshot(entries[0].position, b"", b""))
        assert (log.snapshot(A), log.snapshot(B)) == (None, None)
        assert all_of(log, A)[A] == entries

    def test_a_snapshot_of_the_beginning_needs_no_entry(self, log):
        begin = Snapshot(START, b"mac", b"begin")
        assert log.compact(A, begin)
        assert log.snapshot(A) == begin
        assert not log.compact(A, begin)
        assert not log.found(A, begin, FIRST)

    def test_a_snapshot_that_cannot_be_used_is_replaced_whatever_its_position(self, log):
        first, second = filled(log, A, b"1", b"2")
        unusable = Snapshot(second.position, b"bad mac", b"bad")
        assert log.compact(A, unusable)
        (kept,) = filled(log, A)
        assert kept == second
        assert not log.compact(A, Snapshot(second.position, b"mac", b"good"))
        assert not log.compact(A, Snapshot(second.position, b"mac", b"good"), b"mac of another")
        assert not log.compact(A, Snapshot(first.position, b"mac", b"good"), b"bad mac")  # its entry is gone
        assert log.snapshot(A) == unusable
        good = Snapshot(second.position, b"mac", b"good")
        assert log.compact(A, good, b"bad mac")
        assert log.snapshot(A) == good
        assert log.compact(A, Snapshot(START, b"", b"begin"), b"mac")
        assert log.compact(A, Snapshot(START, b"", b"again"), b"")
        assert log.snapshot(A) == Snapshot(START, b"", b"again")

    def test_where_a_snapshot_stands(self, log):
        assert log.standing(A) is None
        log.found(A, Snapshot(START, b"mac", b""), FIRST)
        assert log.standing(A) == START
        (*_, last) = filled(log, A, b"1")
        log.compact(A, Snapshot(last.position, b"mac", b""))
        assert log.standing(A) == last.position
        assert log.standing(B) is None

    def test_large_entries_and_snapshots(self, log):
        data = bytes(range(256)) * 4_000
        log.append([Written(A, b"mac", data)])
        (entry,) = all_of(log, A)[A]
        assert entry == Entry(entry.position, b"mac", data)
        large = Snapshot(entry.position, b"mac", data * 3)
        assert log.compact(A, large)
        assert log.snapshot(A) == large

    def test_threads_append_and_read_without_losing_anything(self, log):
        ready = threading.Barrier(6)

        def work(number):
            ready.wait()
            for step in range(40):
                log.append([written(A, b"%d %d" % (number, step)), written(f"own{number}", b"%d" % step)])
                assert texts(log, f"own{number}")[-1] == b"%d" % step

        with ThreadPoolExecutor(6) as pool:
            list(pool.map(work, range(6)))
        found = [tuple(map(int, text.split())) for text in texts(log, A)]
        assert len(found) == 240
        for number in range(6):
            assert [step for who, step in found if who == number] == list(range(40))
            assert texts(log, f"own{number}") == [b"%d" % step for step in range(40)]

    def test_nothing_is_asked_after_the_end(self, log):
        log.append([written(A, b"1")])
        position = log.now()
        log.close()
        log.close()
        for call in (
            lambda: log.append([written(A, b"2")]),
            log.now,
            lambda: log.listen(position, 5),
            lambda: all_of(log, A),
            lambda: log.snapshot(A),
            lambda: log.standing(A),
            lambda: log.found(A, Snapshot(START, b"", b""), FIRST),
            lambda: log.compact(A, Snapshot(START, b"", b"")),
            lambda: log.streams(1),
        ):
            with pytest.raises(LogUnavailable):
                call()

    def test_the_end_wakes_who_waits(self, log):
        position = log.now()
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(log.listen, position, 60.0)
            with pytest.raises(TimeoutError):
                waiting.result(0.1)
            log.close()
            with pytest.raises(LogUnavailable):
                waiting.result(10)
