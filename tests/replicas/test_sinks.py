"""What a replica carries beside its own sink: each has its own pools, from whenever it comes, and ends with it."""

from __future__ import annotations

import asyncio
import threading
import time

import msgspec
import pytest

from contextpilot_rag.replicas.catching import CatchingUp
from contextpilot_rag.replicas.in_loop import InLoop
from contextpilot_rag.replicas.pools import Pools
from contextpilot_rag.replicas.replica import Replica
from contextpilot_rag.replicas.space import Names, Space
from contextpilot_rag.types import Namespace

from .memory_log import MemoryLog

SPACE = Space("notes", Namespace("t"))


class Note(msgspec.Struct, array_like=True, tag="note"):
    text: str


class Notes:
    """A sink that keeps what it is fed."""

    def __init__(self):
        self.all, self.closed = [], threading.Event()

    def follows(self, space):
        return space.pool == "notes"

    def apply(self, space, records):
        assert space == SPACE
        self.all += [record.data for record in records]
        return 0

    def included(self, space, names): ...

    def stray(self, space): ...

    def dump(self, space):
        yield from self.all

    def replace(self, space, parts):
        self.all = list(parts)

    def close(self):
        self.closed.set()


@pytest.fixture
def replicas():
    log, made = MemoryLog(), []

    def make():
        made.append(Replica(log, Names("s"), Pools()))
        made[-1].start()
        return made[-1]

    yield make
    for replica in made:
        replica.close()


def test_what_is_carried_is_fed_with_all_that_was_told_before_it_came(replicas):
    one, other = replicas(), replicas()
    assert one.ready(10)
    assert other.ready(10)
    first, second = Notes(), Notes()
    one.carry("notes", first)
    for text in ("a", "b"):
        one.append(SPACE, Note(text))
    ends = time.monotonic() + 10
    while one.status().pending:
        assert time.monotonic() < ends
        time.sleep(0.002)
    other.carry("notes", second)
    assert other.ready(10), "all was looked at once more"
    assert second.all == [b"\x92\xa4note\xa1a", b"\x92\xa4note\xa1b"]
    assert other.joined
    other.close()
    assert second.closed.is_set()
    assert not first.closed.is_set()


def test_work_is_done_in_the_loop_that_is_open_and_in_none_after_it():
    async def run():
        loop = InLoop()

        async def where():
            return threading.current_thread()

        assert loop.done(where(), None) is None
        loop.open()
        assert await asyncio.to_thread(loop.done, where(), None) is threading.current_thread()
        begun = asyncio.Event()

        async def hang():
            begun.set()
            await asyncio.sleep(60)

        hanging = asyncio.create_task(asyncio.to_thread(loop.done, hang(), "given up"))
        await begun.wait()
        loop.close()
        assert await hanging == "given up"
        assert loop.done(where(), 7) == 7

    asyncio.run(run())


class Caught:
    """A replica that has others wait, and counts it."""

    def __init__(self, *, joined=True):
        self.joined, self.times = joined, 0

    def catch_up(self, seconds):
        self.times += 1
        return True


async def test_those_who_wait_at_the_same_time_wait_together():
    replica = Caught()
    catching = CatchingUp(replica, 5.0)
    await asyncio.gather(*(catching.until(lambda: replica.times >= 2) for _ in range(50)))
    assert replica.times <= 4


async def test_nobody_waits_for_a_log_that_is_away_or_for_longer_than_may_be():
    away, here = Caught(joined=False), Caught()
    await CatchingUp(away, 5.0).until(lambda: False)
    assert away.times == 0
    await CatchingUp(here, 0.02).until(lambda: False)
    assert here.times >= 1
