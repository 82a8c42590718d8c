"""Long work lets others go on: one turn after a short slice, as much time as it took after a long one."""

from __future__ import annotations

import asyncio

import pytest

from contextpilot_rag.service import loop_work


@pytest.mark.parametrize(("took", "rests"), [(0.0005, []), (0.002, [0]), (0.03, [0.03])])
async def test_a_long_slice_is_followed_by_a_rest(monkeypatch, took, rests):
    now, slept = [0.0], []

    async def sleep(seconds):
        slept.append(pytest.approx(seconds))

    monkeypatch.setattr(loop_work.time, "perf_counter", lambda: now[0])
    monkeypatch.setattr(loop_work.asyncio, "sleep", sleep)
    mine = loop_work.Slices()
    for _ in range(2):
        now[0] += took
        await mine.next()
        if not rests:
            break
    assert slept == rests * 2


async def test_others_go_on_in_between():
    others = []

    async def other():
        for _ in range(3):
            others.append(1)
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    mine = loop_work.Slices()
    while not task.done():
        await mine.next()
    assert len(others) == 3
