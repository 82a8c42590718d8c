"""Turns: no more at a time than there are slots, and no tenant holds up another for longer than its own turn."""

from __future__ import annotations

import asyncio

import pytest

from contextpilot_rag.service.plan_slots import Slots


class Work:
    """Jobs that end when they are told to."""

    def __init__(self, most: int) -> None:
        self.slots = Slots(most)
        self.running: list[str] = []
        self.begun: list[str] = []
        self.ends: dict[str, asyncio.Event] = {}
        self.tasks: dict[str, asyncio.Task[None]] = {}

    def ask(self, *names: str) -> None:
        for name in names:
            self.ends[name] = asyncio.Event()
            self.tasks[name] = asyncio.ensure_future(self._job(name))

    async def _job(self, name: str) -> None:
        async with self.slots.turn(name[0]):
            self.running.append(name)
            self.begun.append(name)
            try:
                await self.ends[name].wait()
            finally:
                self.running.remove(name)

    async def end(self, name: str) -> None:
        self.ends[name].set()
        await self.tasks[name]
        await settle()

    async def all(self) -> list[str]:
        while self.running:
            await self.end(self.running[0])
        return self.begun


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


@pytest.mark.parametrize("most", [1, 2, 3])
async def test_so_many_at_a_time(most):
    work = Work(most)
    work.ask("a1", "b1", "c1", "d1", "e1")
    await settle()
    for left in range(5, 0, -1):
        assert len(work.running) == min(most, left)
        await work.end(work.running[0])
    assert not work.running


async def test_a_tenant_with_many_jobs_holds_up_others_for_one_of_them():
    work = Work(1)
    work.ask("a1", "a2", "a3", "b1", "b2", "c1")
    await settle()
    assert await work.all() == ["a1", "b1", "c1", "a2", "b2", "a3"]


async def test_with_two_slots_one_is_for_who_has_none():
    work = Work(2)
    work.ask("a1", "a2", "a3", "b1")
    await settle()
    assert work.running == ["a1", "a2"]
    await work.end("a1")
    assert work.running == ["a2", "b1"]
    assert (await work.all())[-1] == "a3"


async def test_who_no_longer_waits_is_passed_over():
    work = Work(1)
    work.ask("a1", "b1", "c1", "d1")
    await settle()
    work.tasks["b1"].cancel()
    await settle()
    work.tasks["c1"].cancel()  # its cancellation has not reached it when a1 ends
    work.ends["a1"].set()
    await settle()
    assert work.running == ["d1"]
    assert await work.all() == ["a1", "d1"]


async def test_a_turn_that_comes_as_its_job_is_cancelled_goes_to_the_next():
    work = Work(1)
    work.ask("a1", "b1", "c1")
    await settle()
    work.ends["a1"].set()
    await asyncio.sleep(0)  # a1 ends, and b1 is told that it is its turn
    work.tasks["b1"].cancel()
    await settle()
    assert work.running == ["c1"]
    await work.all()
    work.ask("d1")
    await settle()
    assert work.running == ["d1"]
    await work.all()


async def test_a_job_that_raises_gives_its_turn_back():
    slots = Slots(1)
    with pytest.raises(ZeroDivisionError):
        async with slots.turn("a"):
            raise ZeroDivisionError
    async with slots.turn("a"):
        pass
