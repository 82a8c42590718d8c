"""When the collector runs: when nobody asks for anything, else rarely; and what it is not needed for."""

import asyncio
import gc

from contextpilot_rag.index.node import Node
from contextpilot_rag.index.tree import PrefixTree
from contextpilot_rag.service.garbage import BUSY_SECONDS, QUIET_SECONDS, Garbage
from contextpilot_rag.types import BlockRef


class Watched:
    def __init__(self) -> None:
        self.now, self.times = 0.0, 0
        self.garbage = Garbage(lambda: self.now, self.collect)

    def collect(self) -> None:
        self.times += 1

    def after(self, seconds: float, *, asked: bool) -> int:
        """How often was collected once so much time has gone, looking each second."""
        until = self.now + seconds
        while self.now < until:
            self.now += 1
            if asked:
                self.garbage.forgot("", None)
            self.garbage.look()
        return self.times


def test_nothing_was_done_so_there_is_nothing_to_collect() -> None:
    assert Watched().after(3 * BUSY_SECONDS, asked=False) == 0


def test_collects_in_the_first_quiet_moment_that_is_not_too_soon() -> None:
    watched = Watched()
    assert watched.after(QUIET_SECONDS - 2, asked=True) == 0
    assert watched.after(1, asked=False) == 0, "too soon"
    assert watched.after(2, asked=False) == 1
    assert watched.after(3 * BUSY_SECONDS, asked=False) == 1, "and then there is nothing"


def test_without_a_quiet_moment_collects_rarely() -> None:
    watched = Watched()
    assert watched.after(BUSY_SECONDS - 1, asked=True) == 0
    assert watched.after(2, asked=True) == 1
    assert watched.after(BUSY_SECONDS - 2, asked=True) == 1
    assert watched.after(2, asked=True) == 2


async def test_the_process_is_left_as_it_was() -> None:
    before = gc.get_threshold()
    garbage = Garbage()
    await garbage.start()
    try:
        assert gc.get_threshold()[:2] == before[:2]
        assert gc.get_threshold()[2] > 100_000
        await asyncio.sleep(0)
    finally:
        await garbage.stop()
    assert gc.get_threshold() == before


def test_a_tree_that_is_dropped_needs_no_collection() -> None:
    gc.collect()
    gc.disable()
    try:
        before = _nodes()
        tree = PrefixTree()
        for number in range(100):
            tree.insert([BlockRef(number % 7, 10), BlockRef(f"a{number % 20}", 10), BlockRef(f"b{number}", 10)])
        assert _nodes() > before + 100
        del tree
        assert _nodes() == before
    finally:
        gc.enable()


def _nodes() -> int:
    return sum(isinstance(item, Node) for item in gc.get_objects())
