"""The file of results: what it keeps, what a run that is taken up makes of it, and what it refuses."""

from __future__ import annotations

import asyncio
import io
import json
import os
from dataclasses import replace

import pytest

from contextpilot_rag import ContextPilot, Plan, RunReport, RunResult, Usage
from contextpilot_rag.engines.endpoint import Answer
from contextpilot_rag.errors import EngineRefused, InputError, ResultsError, SettingsError
from contextpilot_rag.testing import FakeEngine
from tests.stage import Stage, kept, keys, lines, settle, small


@pytest.fixture
def file(tmp_path):
    return tmp_path / "results.jsonl"


async def test_answers_are_written_one_by_one_as_they_arrive(file):
    pilot, plan = small(3)
    stage = Stage(plan)
    run = asyncio.create_task(pilot.run(plan, stage, results=str(file)))
    await settle()
    for key in ("q000", "q001", "q002"):
        if key not in stage.arrived:
            await stage.first_token(stage.arrived[0])
    await stage.answer("q002")
    assert keys(file) == ["q002"]
    await stage.fail("q000", EngineRefused("answered 400", 400))
    await stage.answer("q001")
    await run
    assert keys(file) == ["q002", "q000", "q001"]
    answered, failed, _ = lines(file)
    assert len(answered.pop("fingerprint")) == len(failed.pop("fingerprint")) == 32
    assert answered == {
        "key": "q002",
        "model": "stage",
        "text": "answer to q002",
        "usage": {"prompt_tokens": 100, "cached_tokens": 40, "completion_tokens": 5},
        "ttft": 0.25,
        "seconds": 0.5,
        "attempts": 1,
        "error": None,
    }
    assert [failed[name] for name in ("text", "usage", "ttft", "error")] == [None, None, None, "answered 400"]


@pytest.mark.parametrize("left", [1, 5, 40, -1])
async def test_a_last_line_that_was_cut_short_is_dropped_and_the_file_repaired(file, left):
    pilot, plan = small(4)
    await kept(file, plan, 4)
    *whole, last = file.read_bytes().splitlines(keepends=True)
    whole = b"".join(whole)
    file.write_bytes(whole + last[: left if left > 0 else -2])
    stage = Stage(plan, answers=True)
    report = await pilot.run(plan, stage, results=file)
    assert report.resumed == 3
    assert stage.arrived == [plan[3].request.key]
    assert file.read_bytes() == whole + last


@pytest.mark.parametrize(
    "own",
    [
        b'{"key": "precious", "notes": "my own data"}',
        b'{"key": "precious", "notes": "my own da',
        b'{"key": 7}',
        b'{"key": "a", "fingerprint": 3}',
        b"{",
        b'{"keys": ["a"',
    ],
)
async def test_a_file_of_something_else_is_left_alone(file, own):
    pilot, plan = small(4)
    file.write_bytes(own)
    with pytest.raises(ResultsError):
        await pilot.run(plan, Stage(plan, answers=True), results=file)
    assert file.read_bytes() == own


async def test_blanks_at_the_end_are_nothing(file):
    pilot, plan = small(4)
    await kept(file, plan, 2)
    file.write_bytes(b"".join(file.read_bytes().splitlines(keepends=True)[:2]) + b"  ")
    assert (await pilot.run(plan, Stage(plan, answers=True), results=file)).resumed == 2
    assert (await pilot.run(plan, Stage(plan, answers=True), results=file)).resumed == 4


async def test_a_last_line_without_its_end_is_whole(file):
    pilot, plan = small(4)
    await kept(file, plan, 2)
    file.write_bytes(b"".join(file.read_bytes().splitlines(keepends=True)[:2]).rstrip(b"\n"))
    assert (await pilot.run(plan, Stage(plan, answers=True), results=file)).resumed == 2
    assert len(lines(file)) == 4


async def test_zeros_that_a_crashed_disk_left_are_dropped(file):
    pilot, plan = small(2)
    await kept(file, plan, 1)
    whole = file.read_bytes().splitlines(keepends=True)[0]
    file.write_bytes(whole + b"\0" * 100)
    assert (await pilot.run(plan, Stage(plan, answers=True), results=file)).resumed == 1
    assert file.read_bytes().count(b"\0") == 0


@pytest.mark.parametrize(
    ("content", "match"),
    [
        (b"no JSON\n%s", r"line 1 is no line of results"),
        (b"%s[]\n", r"line 2 is no line of results: Expected `object`"),
        (b'%s\n{"key": "a"}\n%s', r"line 3 is no line of results: Object missing required field"),
        (b"\xff\n", r"line 1 is no line of results"),
        (b"[" * 100_000 + b"\n", r"line 1 is no line of results"),
        (b"%s<notes>", r"line 2 is no line of results"),
        (b'{"plan": "of a holiday"}', r"line 1 is no line of results"),
        (b'{"key": true, "text": ""}\n', r"line 1 is no line of results: Expected `int | str`"),
    ],
)
async def test_what_is_no_file_of_results_is_left_as_it_is(file, content, match):
    pilot, plan = small(1)
    await kept(file, plan, 1)
    content = content.replace(b"%s", file.read_bytes())
    file.write_bytes(content)
    stage = Stage(plan, answers=True)
    with pytest.raises(ResultsError, match=match) as raised:
        await pilot.run(plan, stage, results=file)
    assert str(file) in str(raised.value)
    assert isinstance(raised.value, InputError)
    assert file.read_bytes() == content
    assert stage.arrived == []


async def test_a_line_has_either_an_answer_or_an_error(file):
    pilot, plan = small(1)
    await kept(file, plan, 1)
    file.write_text(json.dumps({**lines(file)[0], "error": "and yet"}) + "\n")
    with pytest.raises(ResultsError, match="either text or error must be null"):
        await pilot.run(plan, Stage(plan), results=file)


def other_question(plan):
    return Plan(tuple(replace(prompt, question="Another?") for prompt in plan), plan.sources), {}


def other_block(plan):
    changed = [
        replace(prompt, retrieved=(*prompt.retrieved[:-1], replace(prompt.retrieved[-1], text="new")))
        for prompt in plan
    ]
    return Plan(tuple(changed), plan.sources), {}


@pytest.mark.parametrize(
    "change",
    [
        other_question,
        other_block,
        lambda plan: (plan, {"system": "Be brief."}),
        lambda plan: (plan, {"system": ""}),
        lambda plan: (plan, {"temperature": 1}),
        lambda plan: (plan, {"extra_body": {"top_k": 5}}),
    ],
)
async def test_answers_of_another_batch_are_never_taken(file, change):
    pilot, plan = small(3)
    await kept(file, plan, 2)
    before = file.read_bytes()
    plan, options = change(plan)
    stage = Stage(plan, answers=True, system=options.get("system"))
    with pytest.raises(ResultsError, match=r"line 1: the result for 'q\d+' is to another question, system prompt, "):
        await pilot.run(plan, stage, results=file, **options)
    assert stage.arrived == []
    assert file.read_bytes() == before


async def test_nor_are_those_of_another_model(file):
    pilot, plan = small(3)
    await kept(file, plan, 3)
    with pytest.raises(ResultsError, match="line 1: the result for 'q000' is of the model 'stage', and this run asks"):
        await pilot.run(plan, "http://127.0.0.1:9", model="other", results=file)
    await kept(file.with_suffix(".2"), plan, 1)
    with FakeEngine() as engine, pytest.raises(ResultsError, match="asks 'fake-engine'"):
        await pilot.run(plan, engine.base_url, results=file.with_suffix(".2"))
    assert engine.requests == ()


async def test_the_order_of_the_blocks_and_how_they_are_sent_make_no_difference(file):
    pilot, plan = small(4)
    await kept(file, plan, 4, max_tokens=5)
    turned = Plan(tuple(replace(prompt, retrieved=prompt.retrieved[::-1]) for prompt in plan), plan.sources)
    options = {"max_tokens": 5, "user": "me", "timeout": 3.0, "extra_body": {"cache_salt": "x"}}
    assert (await pilot.run(turned, Stage(turned), results=file, **options)).resumed == 4


async def test_lines_of_other_keys_are_left_alone(file):
    pilot, plan = small(6)
    half, rest = (Plan(part, (-1,) * 3) for part in (plan.alignments[:3], plan.alignments[3:]))
    await kept(file, half, 3)
    assert (await pilot.run(rest, Stage(plan, answers=True), results=file)).resumed == 0
    assert (await pilot.run(plan, Stage(plan), results=file)).resumed == 6


async def test_a_number_and_its_digits_are_two_keys(file):
    pilot = ContextPilot()
    plan = pilot.plan({1: ["one"], "1": ["another"], 2**80: ["many"]})
    await pilot.run(plan, Stage(plan, answers=True), results=file)
    report = await pilot.run(plan, Stage(plan), results=file)
    assert [result.resumed for result in report] == [True] * 3
    assert {result.key for result in report} == set(keys(file)) == {1, "1", 2**80}


@pytest.mark.parametrize("key", [None, 1.5, True, (1, 2), b"bytes", pytest.param(10**5000, id="huge")])
async def test_keys_that_do_not_fit_in_a_file(file, key):
    pilot = ContextPilot()
    plan = pilot.plan({key: ["text"]})
    stage = Stage(plan, answers=True)
    with pytest.raises(SettingsError, match="keys must be str or int"):
        await pilot.run(plan, stage, results=file)
    assert not file.exists()
    assert stage.arrived == []


async def test_two_requests_with_one_key(file):
    pilot, plan = small(2)
    twice = Plan(plan.alignments + plan.alignments[:1], (-1,) * 3)
    with pytest.raises(SettingsError, match="two requests of the plan have the key 'q000'"):
        await pilot.run(twice, Stage(plan), results=file)
    assert len(await pilot.run(twice, Stage(plan, answers=True))) == 3


async def test_half_a_character_does_not_end_a_run(file):
    """As engines stream them now and then; and a prompt that has one is a failure like any other."""
    pilot = ContextPilot()
    plan = pilot.plan({"k\ud800": ["text"], "é": ["other"]})
    stage = Stage(plan)

    async def chat(messages, **_):
        return Answer("half \udc00 é", None, 0.1, 0.2)

    stage.chat = chat
    await pilot.run(plan, stage, results=file)
    report = await pilot.run(plan, stage, results=file)
    assert report.resumed == 2
    assert {result.text for result in report} == {"half \udc00 é"}
    assert lines(file)


async def test_one_run_at_a_time(file):
    pilot, plan = small(2)
    stage = Stage(plan)
    first = asyncio.create_task(pilot.run(plan, stage, results=file))
    await settle()
    with pytest.raises(ResultsError, match="is being written by another run"):
        await pilot.run(plan, Stage(plan), results=file)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    assert (await pilot.run(plan, Stage(plan, answers=True), results=file)).resumed == 0


@pytest.mark.parametrize("where", ["", "missing/results.jsonl", "a\0b"])
async def test_files_that_cannot_be(tmp_path, where):
    pilot, plan = small(1)
    stage = Stage(plan, answers=True)
    with pytest.raises(ResultsError, match="cannot be opened"):
        await pilot.run(plan, stage, results=tmp_path / where)
    assert stage.arrived == []


async def test_a_full_disk_ends_the_run(file, monkeypatch):
    class Full(io.FileIO):
        def write(self, data):
            return super().write(data[: 1000 - self.tell()])

    monkeypatch.setattr("contextpilot_rag.results.io.FileIO", Full)
    pilot, plan = small(9)
    stage = Stage(plan, answers=True)
    with pytest.raises(ResultsError, match=r"results\.jsonl cannot be written: no room for all of it"):
        await pilot.run(plan, stage, results=file, concurrency=1)
    assert len(stage.arrived) == 5
    assert asyncio.all_tasks() == {asyncio.current_task()}
    monkeypatch.undo()
    assert file.stat().st_size == 1000
    whole = file.read_bytes().count(b"\n")
    assert (await pilot.run(plan, Stage(plan, answers=True), results=file)).resumed == whole == 4


async def test_a_device_is_no_file():
    pilot, plan = small(1)
    with pytest.raises(ResultsError, match="cannot be opened: it is no regular file"):
        await pilot.run(plan, Stage(plan), results=os.devnull)


def test_a_report_of_partly_reported_usage():
    results = [RunResult(1, "", Usage(100, 50)), RunResult(2, "", Usage(900, None)), RunResult(3, "", None, 0.5)]
    report = RunReport(tuple(results))
    assert (report.prompt_tokens, report.cached_tokens, report.hit_ratio) == (1000, 50, 0.5)
    assert report.mean_ttft == 0.5
