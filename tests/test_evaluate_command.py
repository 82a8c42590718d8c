"""``contextpilot-rag evaluate`` against the FakeEngine: what it asks, keeps, says and refuses."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from contextpilot_rag.cli import main
from contextpilot_rag.evaluation import session
from contextpilot_rag.evaluation.arms import SINGLE
from contextpilot_rag.evaluation.words import Outcome
from contextpilot_rag.testing import FakeEngine

ARMS = ("--arms", "balanced", "shuffled")


@pytest.fixture
def fake():
    with FakeEngine() as engine:
        yield engine


@pytest.fixture
def files(tmp_path, monkeypatch):
    """Questions on six of twelve blocks each, some shared by most; an earlier traffic of the same kind."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    draw = random.Random(3)
    texts = {f"d{number}": f"Part {number}. " + "What is to be known. " * 10 for number in range(12)}
    rows = []
    for number in range(30):
        ids = draw.sample(sorted(texts)[:6], 4) + draw.sample(sorted(texts)[6:], 2)
        draw.shuffle(ids)
        row = {"qid": number, "question": f"What of {number}?", "answer": "no model", "context_ids": ids}
        rows.append({**row, "gold_ids": ids[:1]})
    write("blocks.jsonl", [{"id": name, "text": text} for name, text in texts.items()])
    write("traffic.jsonl", [{"qid": row["qid"], "context_ids": row["context_ids"]} for row in rows[:20]])
    write("questions.jsonl", rows[20:])
    (tmp_path / "a_judge_in_a_test.py").write_text(
        "def good(question, answer, right):\n"
        "    return 1.0 if right[0] in answer else 0.0\n"
        "def broken(question, answer, right):\n"
        "    raise ValueError('no mark for this')\n"
    )
    return tmp_path


def write(name, rows):
    Path(name).write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")


def rows_of(name):
    return [json.loads(line) for line in Path(name).read_text(encoding="utf-8").splitlines()]


def evaluate(capsys, *arguments, fake=None):
    where = () if fake is None else ("--endpoint", fake.base_url)
    blocks = ("--blocks", "blocks.jsonl", "--traffic", "traffic.jsonl")
    status = main(["evaluate", "questions.jsonl", *blocks, *where, *map(str, arguments)])
    output = capsys.readouterr()
    return status, output.out, output.err


def prompts(fake):
    """But for those that try out what the engine can."""
    return [request for request in fake.requests if (request.cache_salt or "").startswith("evaluate ")]


def test_a_verdict_on_every_arm(files, fake, capsys):
    status, out, err = evaluate(capsys, *ARMS, fake=fake)
    assert status == 0
    lines = out.splitlines()
    assert [line.split("  ")[0] for line in lines[:4]] == ["arm", "as retrieved", "balanced", "shuffled"]
    assert "not enough questions: about 290 more" in lines[2]
    assert "gold block stands" in out
    assert lines[-1].startswith('use ContextPilot(order="retrieved")')
    assert "10 questions of 30 requests, 3 arms:" in err
    assert "only what it writes is marked" in err  # the FakeEngine has no probabilities
    assert "with --results FILE" in err


def test_each_run_has_cache_salts_of_its_own_and_each_layout_another(files, fake, capsys):
    evaluate(capsys, *ARMS, fake=fake)
    first = {request.cache_salt for request in prompts(fake)}
    assert {salt.split()[2] for salt in first} == {"retrieved", "balanced", "shuffled"}
    evaluate(capsys, *ARMS, fake=fake)
    assert len({request.cache_salt for request in prompts(fake)}) == 2 * len(first)


def test_json_has_all_of_it(files, fake, capsys):
    _, out, _ = evaluate(capsys, "--json", fake=fake)
    found = json.loads(out)
    assert [found["base"], found["margin"], found["deciding"]] == ["as retrieved", 0.01, ["f1"]]
    arms = {one["arm"]: one for one in found["arms"]}
    assert {"as retrieved", "balanced", "shuffled"} < set(arms)
    balanced = arms["balanced"]
    assert balanced["predicted"] > arms["as retrieved"]["predicted"]
    assert balanced["settings"] == "ContextPilot()"
    assert balanced["judged"]["f1"] == {"said": "open", "more": 290}
    assert balanced["lengths"]["largest"] <= 8
    assert found["use"]["arm"] == "as retrieved"


def test_a_margin_that_few_questions_can_tell(files, fake, capsys):
    """Thirty questions are needed all the same, and there are ten."""
    _, out, _ = evaluate(capsys, *ARMS, "--margin", "0.25", fake=fake)
    assert "about 20 more" in out


def test_what_was_measured_is_kept_and_not_asked_again(files, fake, capsys):
    evaluate(capsys, *ARMS, "--results", "results.jsonl", fake=fake)
    asked = len(prompts(fake))
    _, again, err = evaluate(capsys, *ARMS, "--results", "results.jsonl", fake=fake)
    assert len(prompts(fake)) == asked
    assert f"0 prompts to ask, about 0 tokens; {asked} more are known" in err
    assert again.splitlines()[0].startswith("arm")


def test_an_engine_that_fails_midway(files, fake, capsys, monkeypatch):
    monkeypatch.setattr(session, "RETRIES", 0)
    kept = session.Kept

    class Fails(kept):
        def add(self, outcome):
            super().add(outcome)
            if len(self) == 12:
                fake.fail_next(1_000, 503)

    monkeypatch.setattr(session, "Kept", Fails)
    arguments = (*ARMS, "--results", "results.jsonl", "--concurrency", "1")
    status, out, err = evaluate(capsys, *arguments, fake=fake)
    assert status == 1
    assert "12 prompts were measured: the same command goes on from there" in err
    assert "the engine failed:" in err
    assert out.startswith("arm")
    fake.fail_next(0)
    monkeypatch.undo()
    monkeypatch.chdir(files)
    status, _, err = evaluate(capsys, *arguments, fake=fake)
    assert status == 0
    assert "12 more are known from before" in err


def test_an_engine_that_is_busy_now_and_then_is_asked_again(files, fake, capsys, monkeypatch):
    monkeypatch.setattr("tenacity.sleep_using_event", lambda _: waited.append)
    waited, kept = [], session.Kept

    class Busy(kept):
        def add(self, outcome):
            super().add(outcome)
            if len(self) % 5 == 0:
                fake.fail_next(1, 429 if len(self) % 2 else 503)

    monkeypatch.setattr(session, "Kept", Busy)
    status, _, err = evaluate(capsys, *ARMS, "--concurrency", "1", fake=fake)
    assert (status, len(waited) > 3) == (0, True)
    assert "failed" not in err


def test_ctrl_c_keeps_what_was_measured_and_says_what_it_shows(files, fake, capsys, monkeypatch):
    def interrupted(self, through, total):
        if through == 9:
            raise KeyboardInterrupt

    monkeypatch.setattr(session._Progress, "__call__", interrupted)
    status, out, err = evaluate(capsys, *ARMS, "--results", "results.jsonl", "--concurrency", "1", fake=fake)
    assert status == 130
    assert "questions were asked in all arms" in err
    assert out.startswith("arm")
    assert len(rows_of("results.jsonl")) >= 9


def test_an_interruption_before_anything_was_measured(files, fake, capsys, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(session, "ask_all", interrupted)
    status, out, err = evaluate(capsys, fake=fake)
    assert (status, out) == (130, "")
    assert "nothing can be said" in err


def test_prompts_that_the_engine_does_not_take(files, capsys):
    """The last question is too long for it."""
    long = {"qid": "long", "question": "?", "answer": "x", "blocks": [{"text": "far too long " * 3_000}, {"text": "b"}]}
    write("questions.jsonl", [*rows_of("questions.jsonl"), long])
    with FakeEngine(capacity_blocks=200) as fake:
        status, out, err = evaluate(capsys, *ARMS, "--json", fake=fake)
    assert status == 0
    assert "does not take all their prompts: 1; long, as retrieved:" in err
    assert json.loads(out)["arms"][0]["questions"] == 10


def test_an_engine_that_takes_no_salt(files, fake, capsys, monkeypatch):
    monkeypatch.setattr(session, "salted_by", lambda *_: False)
    _, out, err = evaluate(capsys, *ARMS, "--json", fake=fake)
    assert "takes no cache_salt" in err
    assert {request.cache_salt for request in fake.requests if request.cache_salt != "evaluate"} == {None}
    assert all(arm["reported"] is None for arm in json.loads(out)["arms"])


def test_a_judge_decides_and_remembers(files, fake, capsys):
    arguments = (*ARMS, "--judge", "a_judge_in_a_test:good", "--results", "results.jsonl", "--json")
    _, out, _ = evaluate(capsys, *arguments, fake=fake)
    found = json.loads(out)
    assert found["deciding"] == ["judge"]
    assert found["arms"][0]["means"]["judge"] == 1
    assert (files / "results.jsonl.judge").exists()
    _, out, _ = evaluate(capsys, *arguments, "--measure", "f1", "--measure", "judge", fake=fake)
    assert json.loads(out)["deciding"] == ["f1", "judge"]


def test_a_judge_who_fails_is_named_and_the_answers_are_told_all_the_same(files, fake, capsys):
    status, out, err = evaluate(capsys, *ARMS, "--judge", "a_judge_in_a_test:broken", fake=fake)
    assert status == 1
    assert "judge a_judge_in_a_test:broken, question 20: ValueError: no mark for this" in err
    assert "by the right answers alone" in err
    assert out.startswith("arm")


def test_every_answer_is_written(files, fake, capsys):
    evaluate(capsys, *ARMS, "--out", "answers.jsonl", "--sample", 4, fake=fake)
    rows = rows_of("answers.jsonl")
    assert [row["arm"] for row in rows] == ["as retrieved", "balanced", "shuffled"] * 4
    assert set(rows[0]["marks"]) == {"f1", "contained", "accuracy"}
    assert rows[0]["text"].startswith("FakeEngine")


def test_a_dry_run_asks_nothing(files, capsys):
    status, out, err = evaluate(capsys, "--arms", "all", "--dry-run")
    assert (status, err) == (0, "")
    assert f"10 questions of 30 requests, {len(SINGLE)} arms:" in out
    assert "balanced: a cache would find" in out


def test_the_system_prompt_and_the_key_are_the_users(files, fake, capsys, monkeypatch):
    (files / "system.txt").write_text("Say it in verse.\n")
    monkeypatch.setenv("OPENAI_API_KEY", "a-key-of-mine")
    seen = []
    http = session.EngineHttp

    def noted(engine, *rest, **more):
        seen.append(engine)
        return http(engine, *rest, **more)

    monkeypatch.setattr(session, "EngineHttp", noted)
    evaluate(capsys, *ARMS, "--system", "@system.txt", "--sample", 1, fake=fake)
    assert prompts(fake)[0].body["messages"][0] == {"role": "system", "content": "Say it in verse."}
    assert seen[0].api_key == "a-key-of-mine"


def test_conversations_have_arms_of_their_own(files, fake, capsys):
    rows = rows_of("questions.jsonl")
    write("questions.jsonl", [{**row, "conversation": place % 2, "turn": place} for place, row in enumerate(rows)])
    write("traffic.jsonl", [])
    _, out, _ = evaluate(capsys, "--json", fake=fake)
    found = {arm["arm"]: arm for arm in json.loads(out)["arms"]}
    assert list(found) == ["as retrieved", "blocks replaced", "aligned", "aligned, blocks replaced"]
    assert found["blocks replaced"]["lengths"]["shorter"] > 0
    assert found["aligned, blocks replaced"]["settings"] == "ContextPilot()"


def test_probabilities_decide_where_the_engine_tells_them(files, fake, capsys, monkeypatch):
    monkeypatch.setattr(session, "scoring_of", lambda *_: "forced")

    def ask(self, key, messages, gold, salt=None):
        return Outcome(key, "no model", 100, 0, -2.0, 2)

    monkeypatch.setattr(session.Asker, "ask", ask)
    monkeypatch.setattr(session, "salted_by", lambda *_: True)
    _, out, err = evaluate(capsys, *ARMS, "--json", fake=fake)
    assert json.loads(out)["deciding"] == ["f1", "probability"]
    assert "short requests on what is cached" in err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "--endpoint is needed"),
        (("--dry-run", "--sample", "0"), "--sample must be at least 1, not 0"),
        (("--dry-run", "--max-tokens", "0"), "--max-tokens must be at least 1"),
        (("--dry-run", "--margin", "0"), "--margin must be between 0 and 1"),
        (("--dry-run", "--measure", "judge"), "--measure judge needs --judge"),
        (("--dry-run", "--results", "no/such/file"), "no/such/file cannot be written"),
        (("--dry-run", "--arms", "balance"), "there is no arm 'balance' for questions that stand alone"),
        (("--dry-run", "--judge", "nowhere:good"), "judge nowhere:good: nowhere cannot be imported"),
        (("--dry-run", "--system", "@no-such-file"), "cannot read no-such-file"),
        (("--dry-run", "--blocks", "questions.jsonl"), "questions.jsonl, line 1: Object missing required field `id`"),
        (("--endpoint", "127.0.0.1:1"), "127.0.0.1:1"),
        (("--endpoint", "http://127.0.0.1:1"), "/v1/models of engine 127.0.0.1:1 is not answered"),
    ],
)
def test_what_cannot_be_used_is_named(files, capsys, arguments, says):
    status, out, err = evaluate(capsys, *arguments)
    assert (status, out) == (1, "")
    assert says in err
    assert "Traceback" not in err


def test_a_measure_that_nothing_will_be_marked_by(files, fake, capsys):
    status, _, err = evaluate(capsys, *ARMS, "--measure", "probability", fake=fake)
    assert (status, prompts(fake)) == (1, [])
    assert "--measure probability: there will be no marks by it, only by f1, contained, accuracy" in err


@pytest.mark.parametrize(
    "out", ["questions.jsonl", "blocks.jsonl", "./traffic.jsonl", "kept.jsonl", "kept.jsonl.judge"]
)
def test_no_file_that_is_needed_is_written_over(files, fake, capsys, out):
    before = Path("questions.jsonl").read_text()
    status, _, err = evaluate(capsys, *ARMS, "--results", "kept.jsonl", "--out", out, fake=fake)
    assert (status, prompts(fake), Path("questions.jsonl").read_text()) == (1, [], before)
    assert "would overwrite a file that is needed" in err
    status, _, err = evaluate(capsys, *ARMS, "--results", "questions.jsonl", fake=fake)
    assert (status, Path("questions.jsonl").read_text()) == (1, before)
    assert "not written by an evaluation" in err


def test_where_reordering_is_switched_off_nothing_is_compared(files, capsys, monkeypatch):
    monkeypatch.setenv("CONTEXTPILOT_ENABLED", "no")
    status, _, err = evaluate(capsys, "--dry-run")
    assert status == 1
    assert "CONTEXTPILOT_ENABLED switches reordering off" in err
