"""A run that was cut off, and is taken up from its file of results."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace

import pytest

from contextpilot_rag import ContextPilot, Plan, RunResult, Usage
from contextpilot_rag.errors import EngineRefused, EngineUnreachable
from contextpilot_rag.testing import FakeEngine
from tests.stage import Stage, batch, kept, keys, lines, settle, small


@pytest.fixture
def file(tmp_path):
    return tmp_path / "results.jsonl"


async def test_a_run_that_is_taken_up_sends_what_is_missing_or_had_failed(file):
    pilot, plan = small(6)
    await kept(file, plan, 4)
    stage = Stage(plan, answers=True)
    report = await pilot.run(plan, stage, results=file)
    order = [prompt.request.key for prompt in plan]
    assert stage.arrived == order[4:]
    assert [result.key for result in report] == order
    assert [result.resumed for result in report] == [True] * 4 + [False] * 2
    assert report.results[0] == RunResult(
        order[0], f"answer to {order[0]}", Usage(100, 40, 5), 0.25, 0.5, 1, None, resumed=True
    )
    assert (report.resumed, report.failed, report.prompt_tokens) == (4, (), 600)
    assert report.explain().startswith("6 requests: 6 answered (4 of them in an earlier run), 0 failed\n40.0% of 600")
    assert keys(file) == order + order[4:]
    assert pilot.stats().requests == 2


async def test_a_complete_file_needs_no_engine(file):
    pilot, plan = small(3)
    await kept(file, plan, 3)
    before = file.read_bytes()
    assert (await pilot.run(plan, "http://127.0.0.1:9", results=file)).resumed == 3
    assert file.read_bytes() == before


async def test_who_waited_for_an_answered_request_waits_for_another(file):
    """The engine may have been started anew: what was cached is to be computed once more, and once only."""
    contexts = {"a": "ABCD", "b": "ABXE", "c": "ABXF", "d": "AQYG", "e": "ABYH", "f": "Z", "g": "W"}
    pilot, plan = batch(contexts)
    by_key = {prompt.request.key: replace(prompt, order=tuple(range(len(prompt.order)))) for prompt in plan}
    plan = Plan(tuple(by_key[key] for key in "abcdefg"), (-1, 0, 1, 0, 0, -1, 0))
    stage = Stage(plan)
    stage.failing = [None, *[EngineRefused("odd", 400)] * 6]
    await pilot.run(plan, stage, concurrency=1, results=file)
    stage = Stage(plan)
    run = asyncio.create_task(pilot.run(plan, stage, results=file))
    await settle()
    assert stage.arrived == ["b", "f", "g"]
    await stage.first_token("b")
    assert stage.arrived[3:] == ["c", "d", "e"]
    for key in "bcdefg":
        await stage.answer(key)
    assert (await run).resumed == 1


async def test_namespaces_share_nothing_when_a_run_is_taken_up(file):
    pilot = ContextPilot(min_gain=0)
    contexts = {number: ["same", f"block {number}"] for number in range(4)}
    one, other = (pilot.plan(contexts, namespace=name) for name in ("one", "other"))
    other = [replace(prompt, request=replace(prompt.request, key=prompt.request.key + 10)) for prompt in other]
    plan = Plan((*one, *other), (-1, 0, 0, 0, -1, 4, 4, 4))
    await kept(file, Plan((one[0], other[0]), (-1, -1)), 2)
    stage = Stage(plan)
    stage._keys = {prompt.messages()[-1]["content"] + str(prompt.salt): prompt.request.key for prompt in plan}

    async def chat(messages, *, extra_body, **options):
        key = messages[-1]["content"] + extra_body["cache_salt"]
        return await Stage.chat(stage, [{"content": key}], **options)

    stage.chat = chat
    run = asyncio.create_task(pilot.run(plan, stage, results=file))
    await settle()
    assert stage.arrived == [one[1].request.key, other[1].request.key]
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run


async def test_a_run_that_gives_up_says_where_the_answers_are(file):
    pilot, plan = small(9)
    stage = Stage(plan)
    stage.failing = [None, None, *[EngineUnreachable("gone")] * 7]
    with pytest.raises(EngineUnreachable, match=r"the answers to 2 of 9 are in .*results\.jsonl: run again to send"):
        await pilot.run(plan, stage, results=file, concurrency=1, retries=0, give_up_after=4)
    assert [line["error"] for line in lines(file)] == [None, None, *["gone"] * 4]
    assert (await pilot.run(plan, Stage(plan, answers=True), results=file)).resumed == 2


async def test_a_cancelled_run_leaves_whole_lines(file):
    pilot, plan = small(6)
    stage = Stage(plan)
    run = asyncio.create_task(pilot.run(plan, stage, results=file))
    await settle()
    await stage.answer(stage.arrived[0])
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert keys(file) == stage.arrived[:1]
    assert (await pilot.run(plan, Stage(plan, answers=True), results=file)).resumed == 1


PROGRAM = """
import asyncio, sys
from tests.stage import small
pilot, plan = small(12)
asyncio.run(pilot.run(plan, sys.argv[1], concurrency=3, results=sys.argv[2]))
"""


def test_a_process_that_is_killed_loses_nothing_that_was_answered(file):
    stuck = threading.Event()
    begun = 0

    async def five_then_none(_):
        nonlocal begun
        begun += 1
        if begun > 5:
            stuck.set()
            await asyncio.Event().wait()

    with FakeEngine(delay_seconds=1, sleep=five_then_none) as engine:
        with subprocess.Popen([sys.executable, "-c", PROGRAM, engine.base_url, str(file)]) as process:
            try:
                assert stuck.wait(60)
                while len(file.read_bytes().splitlines()) < 5:  # what was answered is on its way
                    assert process.poll() is None
                    time.sleep(0.01)
            finally:
                process.kill()
        assert process.returncode == -signal.SIGKILL
        engine.delay_seconds = 0
        pilot, plan = small(12)
        report = asyncio.run(pilot.run(plan, engine.base_url, results=file))
    assert (report.resumed, len(report), report.failed) == (5, 12, ())
    assert sorted(keys(file)) == sorted(prompt.request.key for prompt in plan)
