"""Names of hosts are looked up here, in threads, and never by ZeroMQ."""

from __future__ import annotations

import socket
import threading
from itertools import count

import pytest

from contextpilot_rag.engines.engine import Engine
from contextpilot_rag.engines.names import AGAIN, MAX_NAMES, Names
from tests.engines.publisher import Publisher, came, engine_of, stored

REAL = socket.getaddrinfo


class Finder:
    """Finds what it is told to; hangs for some, until `release`."""

    def __init__(self) -> None:
        self.known: dict[str, list[str]] = {}
        self.asked: list[str] = []
        self.release = threading.Event()

    def __call__(self, host, port, *more, **options):
        if not str(host).endswith(".test"):
            return REAL(host, port, *more, **options)
        self.asked.append(host)
        if host.startswith("hang"):
            self.release.wait(30)
        if host not in self.known:
            raise socket.gaierror(-2, "Name or service not known")
        return [
            (socket.AF_INET6 if ":" in number else socket.AF_INET, socket.SOCK_STREAM, 6, "", (number, port))
            for number in self.known[host]
        ]


@pytest.fixture
def finder(monkeypatch):
    finder = Finder()
    monkeypatch.setattr(socket, "getaddrinfo", finder)
    yield finder
    finder.release.set()


def found(names, address, now=0.0):
    assert came(lambda: names.numeric(address, now) or names.why(address))
    return names.numeric(address, now)


@pytest.mark.parametrize("address", ["tcp://10.0.0.1:5557", "tcp://[::1]:5557", "ipc:///tmp/a.test:1"])
def test_what_is_no_name_is_left_as_it_is(finder, address):
    assert Names().numeric(address, 0.0) == address
    assert not finder.asked


def test_a_name_is_looked_up_once_at_a_time_and_again_after_a_while(finder):
    names = Names()
    finder.known["hang.test"] = ["10.0.0.1"]
    for now in range(100):
        assert names.numeric("tcp://hang.test:1", float(now)) is None
        assert names.numeric("tcp://hang.test:2", float(now)) is None
    assert (len(finder.asked), names.why("tcp://hang.test:1")) == (1, "")
    finder.release.set()
    assert found(names, "tcp://hang.test:1", 100.0) == "tcp://10.0.0.1:1"
    assert names.numeric("tcp://hang.test:2", 100.0 + AGAIN / 2) == "tcp://10.0.0.1:2"
    assert len(finder.asked) == 1
    finder.known["hang.test"] = ["10.0.0.2"]
    assert came(lambda: names.numeric("tcp://hang.test:1", 200.0) == "tcp://10.0.0.2:1")
    assert len(finder.asked) == 2


def test_of_several_numbers_the_same_is_kept_and_the_older_version_preferred(finder):
    names = Names()
    finder.known["some.test"] = ["fd00::1", "10.0.0.1", "10.0.0.2"]
    assert found(names, "tcp://some.test:1") == "tcp://10.0.0.1:1"
    finder.known["some.test"].reverse()
    clock, seen = count(10, 10), set()
    assert came(lambda: seen.add(names.numeric("tcp://some.test:1", next(clock))) or len(finder.asked) >= 4)
    assert seen == {"tcp://10.0.0.1:1"}
    finder.known["six.test"] = ["fd00::1"]
    assert found(names, "tcp://six.test:1") == "tcp://[fd00::1]:1"


def test_a_name_that_is_not_found_is_said_and_one_that_was_found_stays(finder):
    names = Names()
    assert found(names, "tcp://none.test:1") is None
    assert "not known" in names.why("tcp://none.test:1")
    finder.known["none.test"] = ["10.0.0.1"]
    assert came(lambda: names.numeric("tcp://none.test:1", 10.0))
    del finder.known["none.test"]
    names.numeric("tcp://none.test:1", 20.0)
    assert came(lambda: len(finder.asked) == 3)
    assert names.numeric("tcp://none.test:1", 21.0) == "tcp://10.0.0.1:1"
    assert names.why("tcp://none.test:1") == ""


def test_names_are_bounded(finder, monkeypatch):
    monkeypatch.setattr("contextpilot_rag.engines.names.MAX_NAMES", 3)
    names = Names()
    for number in range(10):
        finder.known[f"n{number}.test"] = ["10.0.0.1"]
        assert found(names, f"tcp://n{number}.test:1")
    assert len(names._names) == 3
    assert MAX_NAMES > 1_000


def test_an_engine_whose_name_is_not_answered_for_silences_no_other(sink, listener, finder):
    finder.known["good.test"] = ["127.0.0.1"]
    with Publisher() as publisher:
        listener.add(Engine("http://a:1", name="bad", events="tcp://hang.test:5557"))
        events, replay = (one.replace("127.0.0.1", "good.test") for one in (publisher.events, publisher.replay))
        listener.add(Engine("http://a:2", name="good", events=events, replay=replay))
        assert came(lambda: ("flowing", "good", 0) in sink.said)
        publisher.publish(stored(1))
        assert came(lambda: sink.of("good") == [1])
        assert came(lambda: [one for one in sink.said if one[:2] == ("broken", "bad")], 5)
        assert "whoever is asked for it does not answer" in sink.whys("broken")[0]
        assert finder.asked.count("hang.test") == 1
        finder.release.set()
        assert sink.times("broken") == 1


def test_an_engine_that_moves_to_another_host_is_followed_there(sink, listener, finder):
    finder.known["moves.test"] = ["127.0.0.2"]  # nobody is there
    with Publisher() as publisher:
        events = publisher.events.replace("127.0.0.1", "moves.test")
        replay = publisher.replay.replace("127.0.0.1", "moves.test")
        listener.add(Engine("http://a:1", name="a", events=events, replay=replay))
        assert came(lambda: "moves.test" in finder.asked)
        publisher.publish(stored(1))
        finder.known["moves.test"] = ["127.0.0.1"]
        assert came(lambda: sink.of("a") == [1])
        assert came(lambda: sink.times("flowing"))


def test_a_name_that_is_not_found_is_said(sink, listener, finder):
    listener.add(Engine("http://a:1", name="a", events="tcp://none.test:5557"))
    assert came(lambda: sink.times("broken"))
    assert "none.test:5557 is not found" in sink.whys("broken")[0]
    assert "not known" in sink.whys("broken")[0]
    with Publisher() as publisher:  # and the same listener follows others
        listener.add(engine_of(publisher, "b"))
        assert came(lambda: ("flowing", "b", 0) in sink.said)
