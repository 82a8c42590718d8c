"""Running a plan: the order of sending, retries, what is told to the index, and how a run ends."""

from __future__ import annotations

import asyncio
import json
import random
import threading
from collections import Counter

import pytest

from contextpilot_rag import AsyncContextPilot, ContextPilot, LocalIndex, Plan, sending
from contextpilot_rag.engines.endpoint import AsyncEndpoint
from contextpilot_rag.errors import (
    EngineError,
    EngineRefused,
    EngineUnreachable,
    IndexFailed,
)
from contextpilot_rag.testing import FakeEngine
from tests.stage import LateEngine, Stage, batch, settle, small, together

# Two trees: b and c wait for a, d for c; f and g for e. In alphabetical order of sending.
TREES = {
    "a": "ABCD",
    "b": "ABXE",
    "c": "ABYF",
    "d": "ABYG",
    "e": "PQRS",
    "f": "PQTH",
    "g": "PQUI",
}


@pytest.fixture(scope="module")
def served():
    with FakeEngine(block_size=16) as engine:
        yield engine


@pytest.fixture
def engine(served):
    served.reset()
    served.fail_next(0)
    served.report_cached = True
    return served


@pytest.fixture(autouse=True)
def slept(monkeypatch):
    """How long was waited before attempts; nobody really waits."""
    waits = []

    async def sleep(seconds):
        waits.append(seconds)

    monkeypatch.setattr(sending, "_sleep", sleep)
    return waits


@pytest.fixture
def trees():
    pilot, plan = batch(TREES)
    plan = in_order(plan, [-1, 0, 0, 2, -1, 4, 4])
    return pilot, plan


def in_order(plan, sources):
    """The plan's requests by the alphabet, with these sources."""
    return Plan(tuple(sorted(plan, key=lambda prompt: prompt.request.key)), tuple(sources))


async def test_a_report_has_every_request_in_the_order_of_sending(engine):
    pilot, plan = small()
    report = await pilot.run(plan, engine.base_url, system="Be brief.", max_tokens=4)
    assert [result.key for result in report] == [prompt.request.key for prompt in plan]
    assert [request.messages[0]["content"] for request in engine.requests[-5:]] == ["Be brief."] * 5
    assert {request.completion_tokens for request in engine.requests[-5:]} == {4}
    assert all(0 < result.ttft <= result.seconds for result in report)
    assert all(result.text.startswith("Fake") and result.attempts == 1 for result in report)
    assert report.cached_tokens == sum(request.cached_tokens for request in engine.requests[-5:]) > 0
    assert report.hit_ratio == report.cached_tokens / report.prompt_tokens
    assert (report.failed, report.resumed, len(report)) == ((), 0, 5)
    stats = pilot.stats()
    assert (stats.requests, stats.observed, stats.reported_cached_tokens) == (5, 5, report.cached_tokens)
    assert pilot.failures == 0


async def test_as_much_is_cached_as_one_after_another():
    """And much less is, if nobody waits for whom he shares a prefix with."""
    rng = random.Random(7)
    contexts = {
        number: [f"t{number % 3}", f"u{number % 3}{rng.randrange(3)}", *rng.sample([f"z{n}" for n in range(40)], 2)]
        for number in range(32)
    }
    pilot, plan = batch(contexts)
    assert plan.predicted_cached_tokens > 0

    async def cached(plan, concurrency, sleep):
        with LateEngine(block_size=32, delay_seconds=1, sleep=sleep) as engine:
            report = await pilot.run(plan, engine.base_url, concurrency=concurrency, max_tokens=1)
            assert not report.failed
            return report.cached_tokens

    in_turn = await cached(plan, 1, lambda _: asyncio.sleep(0))
    assert await cached(plan, 8, lambda _: asyncio.sleep(0.002)) == in_turn > 0
    at_once = Plan(plan.alignments, (-1,) * len(plan))
    assert await cached(at_once, 8, together(8)) < in_turn


async def test_who_shares_a_prefix_waits_for_its_first_token_only(trees):
    pilot, plan = trees
    stage = Stage(plan)
    run = asyncio.create_task(pilot.run(plan, stage))
    await settle()
    assert stage.arrived == ["a", "e"]
    await stage.first_token("a")
    assert stage.arrived == ["a", "e", "b", "c"]
    await stage.first_token("c")
    assert stage.arrived[4:] == ["d"]
    await stage.answer("e")  # an answer without a first token will do, too
    assert stage.arrived[5:] == ["f", "g"]
    for key in "abcdfg":
        await stage.answer(key)
    assert [result.text for result in await run] == [f"answer to {key}" for key in "abcdefg"]


async def test_of_those_who_may_go_the_first_in_the_plan_goes(trees):
    """So that a tree is finished before the next is begun, unless a place would stay free."""
    pilot, plan = trees
    stage = Stage(plan)
    run = asyncio.create_task(pilot.run(plan, stage, concurrency=2))
    await settle()
    assert stage.arrived == ["a", "e"]
    await stage.first_token("a")
    await stage.first_token("e")
    for done, next_ in zip("aebcd", ["b", "c", "d", "f", "g"], strict=True):
        if done == "b":
            await stage.first_token("c")
        await stage.answer(done)
        assert stage.arrived[-1] == next_
    await stage.answer("f")
    await stage.answer("g")
    assert not (await run).failed


@pytest.mark.parametrize("error", [EngineRefused("too long", 400), EngineError("a lone surrogate")])
async def test_nobody_waits_for_one_that_failed(trees, error):
    pilot, plan = trees
    stage = Stage(plan)
    run = asyncio.create_task(pilot.run(plan, stage))
    await settle()
    await stage.fail("a", error)
    assert stage.arrived == ["a", "e", "b", "c"]
    await stage.answer("c")
    await stage.answer("e")
    for key in "bdfg":
        await stage.answer(key)
    report = await run
    assert [(result.key, result.error, result.text, result.attempts) for result in report.failed] == [
        ("a", str(error), None, 1)
    ]
    assert "1 failed with: " + str(error) in report.explain()
    assert "6 answered, 1 failed" in report.explain()
    assert repr(report) == "<RunReport: 7 requests, 1 failed, 40.0% of 600 prompt tokens cached>"


async def test_a_run_gives_up_on_an_engine_that_is_gone():
    pilot, plan = small(30)
    stage = Stage(plan)
    stage.failing = [None, *(EngineUnreachable(f"nobody there {number}") for number in range(29))]
    with pytest.raises(EngineUnreachable, match=r"nobody there 4 \(gave up: 5 requests failed in a row; ") as raised:
        await pilot.run(plan, stage, concurrency=1, retries=0, give_up_after=5)
    assert "the answers to 1 of 30 are lost: give results= a file" in str(raised.value)
    assert len(stage.arrived) == 6
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_an_answer_in_between_keeps_it_going():
    pilot, plan = small(12)
    stage = Stage(plan)
    stage.failing = [EngineRefused("odd", 400), EngineRefused("odd", 400), None] * 4
    report = await pilot.run(plan, stage, concurrency=1, give_up_after=3)
    assert len(report.failed) == 8


async def test_an_engine_that_names_no_model(engine, slept):
    pilot, plan = small(1)
    with pytest.raises(EngineUnreachable):
        await pilot.run(plan, "http://127.0.0.1:9", retries=1)
    assert len(slept) == 1
    await pilot.run(plan, engine.base_url, model="mine")
    assert engine.requests[-1].model == "mine"
    async with AsyncEndpoint(engine.base_url, "other") as endpoint:
        await AsyncContextPilot().run(plan, endpoint)
        assert engine.requests[-1].model == "other"
        await AsyncContextPilot().run(plan, endpoint, model="mine")
        assert engine.requests[-1].model == "mine"
        assert endpoint.model == "other"
        assert (await endpoint.chat([{"role": "user", "content": "still open?"}])).text


async def test_the_index_is_told_when_a_request_goes_out_and_when_it_is_answered(trees):
    told = []

    class Told(LocalIndex):
        def sent(self, alignment):
            told.append(f"sent {alignment.request.key}")
            super().sent(alignment)

        def observe(self, alignment, usage):
            told.append(f"{alignment.request.key} had {usage.cached_tokens}")
            super().observe(alignment, usage)

    _, plan = trees
    pilot = ContextPilot(Told())
    stage = Stage(plan)
    run = asyncio.create_task(pilot.run(plan, stage, concurrency=1))
    await settle()
    assert told == ["sent a"]
    await stage.first_token("a")
    await stage.answer("a")
    assert told == ["sent a", "a had 40", "sent b"]
    for key in "bcdefg":
        await stage.answer(key)
    await run
    assert pilot.predict(plan[1]) == plan[1].request.tokens
    assert pilot.failures == 0


class Old:
    """An index of the first protocol: plans are unknown to it."""

    def align(self, request):
        raise NotImplementedError

    def observe(self, alignment, usage):
        pass


class Broken(Old):
    def sent(self, alignment):
        raise RuntimeError("no room")

    def observe(self, alignment, usage):
        raise RuntimeError("no room")


@pytest.mark.parametrize(("index", "failures"), [(Old(), 1), (Broken(), 10)])
async def test_a_run_does_not_depend_on_the_index(index, failures, caplog):
    _, plan = small(5)
    pilot = ContextPilot(index)
    report = await pilot.run(plan, Stage(plan, answers=True))
    assert not report.failed
    assert pilot.failures == failures
    assert sum("contextpilot" in record.name for record in caplog.records) == 1
    with pytest.raises(IndexFailed):
        await ContextPilot(index, on_error="raise").run(plan, Stage(plan, answers=True))
    assert asyncio.all_tasks() == {asyncio.current_task()}


@pytest.mark.parametrize("how", ["cancelled", "timed out"])
async def test_a_run_that_is_cancelled_leaves_nothing_behind(how):
    """Neither here nor at the engine."""
    pilot, plan = small(12)
    arrived, left = asyncio.Event(), threading.Semaphore(0)
    here = asyncio.get_running_loop()

    async def for_ever(_):
        here.call_soon_threadsafe(arrived.set)
        try:
            await asyncio.Event().wait()
        finally:
            left.release()

    with FakeEngine(delay_seconds=1, sleep=for_ever) as engine:
        run = asyncio.create_task(pilot.run(plan, engine.base_url, concurrency=3))
        await arrived.wait()
        if how == "cancelled":
            run.cancel()
            with pytest.raises(asyncio.CancelledError):
                await run
        else:
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(run, 0.01)
        assert asyncio.all_tasks() == {asyncio.current_task()}
        assert await asyncio.to_thread(left.acquire, timeout=20)


class Moody(FakeEngine):
    """Refuses some requests, at random, for good or for now."""

    def __init__(self, rng):
        super().__init__()
        self._rng = rng

    def receive(self, body, kind="chat"):
        if self._rng.random() < 0.25:
            self.fail_next(1, self._rng.choice([None, 400, 429, 500, 503]))
        return super().receive(body, kind)


async def test_two_hundred_requests_and_an_engine_in_a_bad_mood(tmp_path):
    """Every key comes out exactly once, whatever happens to its requests."""
    file = tmp_path / "results.jsonl"
    pilot, plan = small(200)
    with Moody(random.Random(11)) as engine:
        report = await pilot.run(plan, engine.base_url, concurrency=16, retries=30, results=file, max_tokens=2)
        assert [result.key for result in report] == [prompt.request.key for prompt in plan]
        assert 0 < len(report.failed) < 50
        assert all("answered 400" in result.error for result in report.failed)
        assert max(result.attempts for result in report) > 1
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        assert Counter(line["key"] for line in lines) == Counter(f"q{number:03}" for number in range(200))
        assert {line["key"]: line["text"] for line in lines} == {result.key: result.text for result in report}
        questions = Counter(request.messages[-1]["content"] for request in engine.requests)
        assert sum(questions.values()) == 200 - len(report.failed)
        again = await pilot.run(plan, engine.base_url, concurrency=16, retries=30, results=file, max_tokens=2)
        assert again.resumed == 200 - len(report.failed)


async def test_what_an_engine_does_not_report_is_not_zero(engine):
    engine.report_cached = False
    pilot, plan = small(2)
    report = await pilot.run(plan, engine.base_url)
    assert (report.cached_tokens, report.hit_ratio) == (None, None)
    assert report.prompt_tokens > 0
    assert repr(report) == "<RunReport: 2 requests, cached tokens not reported>"


async def test_progress_is_a_bar_on_stderr(capsys):
    pilot, plan = small(3)
    await pilot.run(plan, Stage(plan, answers=True))
    assert capsys.readouterr() == ("", "")
    await pilot.run(plan, Stage(plan, answers=True), progress=True)
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "3/3" in shown.err
    assert "40% cached" in shown.err


async def test_an_empty_plan_is_an_empty_report():
    report = await ContextPilot().run(Plan((), ()), "http://127.0.0.1:9")
    assert (len(report), report.failed, report.hit_ratio, report.prompt_tokens, report.mean_ttft) == (
        0,
        (),
        None,
        None,
        None,
    )
    assert repr(report) == "<RunReport: 0 requests, cached tokens not reported>"
