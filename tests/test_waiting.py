from __future__ import annotations

import asyncio

import pytest

from contextpilot_rag import AsyncContextPilot, LocalIndex
from contextpilot_rag.errors import IndexFailed, InvalidBlock, SettingsError
from contextpilot_rag.waiting import AlignmentWindow

HOT = [f"hot {number} " * 50 for number in range(5)]


def cold(number):
    return [f"cold {number} {place} " * 50 for place in range(5)]


async def test_every_answer_belongs_to_its_question():
    pilot = AsyncContextPilot(min_gain=0)
    async with pilot.window(size=4, max_wait=0.01) as window:
        requests = [(number, [*HOT[number % 3 :], *cold(number)]) for number in range(40)]
        answers = await asyncio.gather(
            *(window.align(blocks, f"question {number}", key=number) for number, blocks in requests)
        )
    for (number, blocks), answer in zip(requests, answers, strict=True):
        assert (answer.request.key, answer.question) == (number, f"question {number}")
        assert {block.text for block in answer.blocks} == set(blocks)
    assert (await pilot.stats()).requests == 40


async def test_the_longest_cached_prefix_goes_first():
    pilot = AsyncContextPilot()
    await pilot.align(HOT, "warm")
    order = []

    async def ask(window, name, blocks):
        await window.align(blocks, name)
        order.append(name)

    async with pilot.window(size=3, max_wait=60) as window:
        await asyncio.gather(ask(window, "a", cold(1)), ask(window, "b", cold(2)), ask(window, "hot", HOT[::-1]), *(
            [ask(window, "c", cold(3)), close(window)]))  # fmt: skip
    assert order[0] == "hot"
    assert sorted(order) == ["a", "b", "c", "hot"]


async def close(window):
    await asyncio.sleep(0)
    await window.__aexit__()


async def test_nobody_waits_for_company_that_never_comes():
    async with AsyncContextPilot().window(size=16, max_wait=0.01) as window:
        answer = await asyncio.wait_for(window.align(HOT, "?"), timeout=30)
        assert answer.question == "?"
        assert len(window) == 0


async def test_leaving_the_window_lets_everybody_go():
    pilot = AsyncContextPilot()
    async with pilot.window(size=16, max_wait=3_600) as window:
        tasks = [asyncio.create_task(window.align(cold(number), "?", key=number)) for number in range(3)]
        await asyncio.sleep(0)
        assert len(window) == 3
    assert [task.request.key for task in await asyncio.gather(*tasks)] == [0, 1, 2]


async def test_who_is_cancelled_gives_up_the_turn():
    pilot = AsyncContextPilot()
    async with pilot.window(size=16, max_wait=3_600) as window:
        gone = asyncio.create_task(window.align(cold(0), "gone"))
        stays = asyncio.create_task(window.align(cold(1), "stays"))
        await asyncio.sleep(0)
        gone.cancel()
        with pytest.raises(asyncio.CancelledError):
            await gone
        assert len(window) == 1
    assert (await stays).question == "stays"
    assert (await pilot.stats()).requests == 1


async def test_bad_input_is_refused_before_waiting():
    async with AsyncContextPilot().window() as window:
        with pytest.raises(InvalidBlock):
            await window.align([3])
        assert len(window) == 0


class Broken:
    def align(self, request):
        raise RuntimeError("broken")

    predict = observe = forget = stats = align


async def test_a_broken_index_fails_open_and_raises_only_where_asked_to():
    async with AsyncContextPilot(Broken()).window(size=1) as window:
        assert (await window.align(HOT, "?")).rule.value == "failed_open"
    async with AsyncContextPilot(Broken(), on_error="raise").window(size=1) as window:
        with pytest.raises(IndexFailed):
            await window.align(HOT, "?")


@pytest.mark.parametrize("arguments", [{"size": 0}, {"max_wait": -1}, {"max_wait": None}, {"max_overtaken": -1}])
def test_impossible_windows(arguments):
    with pytest.raises(SettingsError):
        AsyncContextPilot().window(**arguments)


class Elsewhere(LocalIndex):
    """An index that is awaited; its answers come when the test lets them."""

    def __init__(self):
        super().__init__()
        self.predicts, self.answers = asyncio.Event(), asyncio.Event()
        self.predicts.set()
        self.let_go_at = 0
        self.asked = self.under_way = self.most = 0

    async def apredict(self, request):
        await self.predicts.wait()
        return self.predict(request)

    async def aalign(self, request):
        self.asked += 1
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        if self.asked >= self.let_go_at:
            self.answers.set()
            self.predicts.set()
        try:
            await self.answers.wait()
        finally:
            self.under_way -= 1
        return self.align(request)

    async def asent(self, alignment): ...

    async def aobserve(self, alignment, usage): ...

    async def aforget(self, namespace=None): ...

    async def astats(self): ...


def waiting_for(index, **window):
    pilot = AsyncContextPilot(index)
    return AlignmentWindow(pilot.blocking, elsewhere=pilot.blocking.asker, **window)


async def test_who_has_waited_long_enough_waits_for_no_answer_of_anothers():
    """The index answers nobody before it was asked for all: one after another would wait for ever."""
    index = Elsewhere()
    index.let_go_at = 20
    async with waiting_for(index, size=64, max_wait=0.01) as window:
        asking = [window.align(cold(number), "?", key=number) for number in range(20)]
        answers = await asyncio.wait_for(asyncio.gather(*asking), 30)
    assert [answer.request.key for answer in answers] == list(range(20))
    assert index.most == 20


async def test_nobody_waits_for_a_prediction_longer_than_for_a_turn():
    index = Elsewhere()
    index.predicts.clear()
    index.let_go_at = 3
    async with waiting_for(index, size=64, max_wait=0.01) as window:
        asking = [window.align(cold(number), "?", key=number) for number in range(3)]
        answers = await asyncio.wait_for(asyncio.gather(*asking), 30)
    assert [answer.request.key for answer in answers] == [0, 1, 2]


async def test_whoever_need_not_go_yet_follows_the_answer_before():
    index = Elsewhere()
    async with waiting_for(index, size=2, max_wait=3_600) as window:
        asking = [asyncio.create_task(window.align(cold(number), "?")) for number in range(9)]
        await asyncio.wait(asking, return_when=asyncio.FIRST_COMPLETED)
    await asyncio.gather(*asking)
    assert (index.asked, index.most) == (9, 1)


async def test_who_is_cancelled_keeps_nobody_from_going():
    index = Elsewhere()
    index.let_go_at = 3
    async with waiting_for(index, size=2, max_wait=0.01) as window:
        gone, *others = (asyncio.create_task(window.align(cold(number), "?")) for number in range(3))
        while not index.asked:  # noqa: ASYNC110  two turns of the loop
            await asyncio.sleep(0)
        gone.cancel()
        assert len(await asyncio.wait_for(asyncio.gather(*others), 30)) == 2
    assert gone.cancelled()
    assert len(window) == 0
