"""The log in memory and the log on a server do the same, whatever is asked: tests with the one are about both."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from contextpilot_rag.replicas.log import START, Log, Snapshot, Written
from contextpilot_rag.replicas.redis_log import open_log
from tests.replicas.log_server import LogServer
from tests.replicas.memory_log import MemoryLog

STREAMS = ["a", "b", "c"]
STEPS = settings(max_examples=40, stateful_step_count=25, deadline=None, report_multiple_bugs=False)
streams = st.sampled_from(STREAMS)
texts = st.binary(max_size=3)
places = st.integers(-1, 12)  # of an entry among all that were ever in a stream; -1: the start


def machine_on(url: str) -> type[RuleBasedStateMachine]:
    numbers = count()

    class Machine(RuleBasedStateMachine):
        def __init__(self) -> None:
            super().__init__()
            self.memory = MemoryLog()
            self.server = open_log(f"{url}?prefix=m{next(numbers)}", timeout=10.0)
            self.logs: tuple[Log, Log] = (self.memory, self.server)
            self.heard = [log.now() for log in self.logs]
            self.positions: dict[str, list[tuple[str, str]]] = {stream: [(START, START)] for stream in STREAMS}

        def teardown(self) -> None:
            self.server.close()

        def note(self) -> None:
            """The positions of entries that are new."""
            for stream in STREAMS:
                known = self.positions[stream]
                new = [
                    [entry.position for entry in log.read({stream: (known[-1][which], False)}, 1000)[stream]]
                    for which, log in enumerate(self.logs)
                ]
                known += zip(*new, strict=True)

        def place(self, stream: str, number: int) -> tuple[str, str]:
            return self.positions[stream][min(number + 1, len(self.positions[stream]) - 1)]

        @rule(entries=st.lists(st.tuples(streams, texts, texts), max_size=4))
        def append(self, entries):
            for log in self.logs:
                log.append([Written(*entry) for entry in entries])
            self.note()

        @rule(wanted=st.dictionaries(streams, st.tuples(places, st.booleans())), most=st.integers(1, 4))
        def read(self, wanted, most):
            found = []
            for which, log in enumerate(self.logs):
                asked = {
                    stream: (self.place(stream, number)[which], inclusive)
                    for stream, (number, inclusive) in wanted.items()
                }
                told = log.read(asked, most)
                found.append({name: [(entry.mac, entry.data) for entry in told[name]] for name in wanted})
            assert found[0] == found[1]

        @rule(stream=streams, text=texts)
        def found(self, stream, text):
            begin, first = Snapshot(START, text, text), Written(stream, text, text)
            done = [log.found(stream, begin, first) for log in self.logs]
            assert done[0] is done[1]
            self.note()

        @rule(stream=streams, number=places, text=texts, instead_of=st.none() | texts)
        def compact(self, stream, number, text, instead_of):
            at = self.place(stream, number)
            done = [
                log.compact(stream, Snapshot(at[which], text, text), instead_of) for which, log in enumerate(self.logs)
            ]
            assert done[0] is done[1]

        @rule(stream=streams)
        def snapshot(self, stream):
            told = [log.snapshot(stream) for log in self.logs]
            assert (told[0] is None) is (told[1] is None)
            if told[0] is not None and told[1] is not None:
                assert (told[0].mac, told[0].data) == (told[1].mac, told[1].data)
                pair = (told[0].position, told[1].position)
                assert pair in self.positions[stream]
                assert tuple(log.standing(stream) for log in self.logs) == pair

        @rule()
        def listen(self):
            news = [log.listen(heard, 0) for log, heard in zip(self.logs, self.heard, strict=True)]
            assert news[0].streams == news[1].streams
            self.heard = [one.position for one in news]

        @rule()
        def streams(self):
            assert set(self.memory.streams(10)) == set(self.server.streams(10))

    return Machine


def test_both_logs_do_the_same():
    with TemporaryDirectory() as folder, LogServer(Path(folder)) as server:
        run_state_machine_as_test(machine_on(server.url), settings=STEPS)


def test_the_comparison_can_fail(monkeypatch):
    monkeypatch.setattr(MemoryLog, "found", lambda *args: True)
    with TemporaryDirectory() as folder, LogServer(Path(folder)) as server, pytest.raises((AssertionError, ValueError)):
        run_state_machine_as_test(machine_on(server.url), settings=STEPS)
