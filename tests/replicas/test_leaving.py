"""Spaces that a process follows no longer, and those that it knew before it followed any log."""

from __future__ import annotations

import pytest

from contextpilot_rag import BlockRef, Namespace, Request
from contextpilot_rag.index.fed import FedIndex
from contextpilot_rag.index.records import Forgot
from contextpilot_rag.replicas.core import Core
from contextpilot_rag.replicas.pace import Pace
from contextpilot_rag.replicas.pools import Pools
from contextpilot_rag.replicas.reading import Reader
from contextpilot_rag.replicas.space import Names, Space
from contextpilot_rag.replicas.telling import Teller
from contextpilot_rag.service.replica_records import TalkForgotten

from .memory_log import MemoryLog

A, B = BlockRef("a", 100), BlockRef("b", 100)
ACME = Namespace("acme")
SPACE = Space("pilot", ACME)


class Journal:
    def __init__(self, core):
        self.core = core

    def append(self, space, record):
        return self.core.told(Space("pilot", space), record)

    def forgot(self, namespace):
        raise NotImplementedError


class Process:
    """A replica without threads, whose clock stands still unless it is moved."""

    def __init__(self, log, *, known=()):
        self.now = 0.0
        self.pools = Pools()
        self.core = Core(log, Names("s"), self.pools, Pace(), lambda: self.now)
        self.index = FedIndex(journal=Journal(self.core))
        self.pools.put("pilot", self.index)
        if known:
            self.index.load(known)
            self.index.stray(ACME)
        self.teller, self.reader = Teller(self.core), Reader(self.core)

    def step(self):
        for _ in range(3):
            self.teller.step(0)
            self.reader.step(0)


def test_a_space_that_is_followed_no_longer_is_left_alone_and_read_anew_when_it_is_again():
    log = MemoryLog()
    one, other = Process(log), Process(log)
    one.index.align(Request((A, B), ACME))
    for process in (one, other):
        process.step()
    index = other.index
    other.pools.put("pilot", FedIndex())
    other.pools.follows = lambda space: False
    one.index.align(Request((B,), ACME))
    one.step()
    other.step()
    assert not other.core.streams
    other.now = 1e6
    other.step()
    assert log.snapshot(one.core.names.stream(SPACE)) is None, "nothing is written over what the others know"
    del other.pools.follows
    other.pools.put("pilot", index)
    other.core.look()
    other.step()
    assert index.predict(Request((B,), ACME)) == 100


def test_what_waits_for_a_log_that_is_followed_no_longer_is_given_up():
    other = Process(MemoryLog())
    other.index.align(Request((A, B), ACME))
    other.pools.follows = lambda space: False
    other.step()
    assert other.core.status().pending == 0


def test_what_a_file_brought_back_goes_into_a_log_that_has_no_snapshot_yet():
    old = FedIndex()
    old.align(Request((A, B), ACME))
    log = MemoryLog()
    early = Process(log)
    early.index.align(Request((B,), ACME))
    early.step()
    restored = Process(log, known=list(old.dump()))
    restored.index.align(Request((B, A), ACME))  # told before the log was read
    restored.step()
    early.step()
    restored.step()
    for process in (early, restored):
        assert process.index.predict(Request((A, B), ACME)) == 200
    assert list(early.pools.dump(SPACE)) == list(restored.pools.dump(SPACE))


@pytest.mark.parametrize("record", [Forgot(), TalkForgotten()])
def test_what_was_forgotten_leaves_the_log_at_once(record):
    log = MemoryLog()
    process = Process(log)
    process.index.align(Request((A, B), ACME))
    process.step()
    stream = process.core.names.stream(SPACE)
    process.now += 10.0  # nobody has answered with an older snapshot of it
    process.step()
    process.core.told(SPACE, record)
    process.step()
    (left,) = log.read({stream: ("0-0", True)}, 10)[stream]
    assert log.snapshot(stream).position == left.position
