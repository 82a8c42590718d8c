from __future__ import annotations

import json
from contextlib import contextmanager

import pytest
from rich.console import Console

from contextpilot_rag.cli import main
from contextpilot_rag.demo import engines
from contextpilot_rag.demo.llama import LlamaEngine
from contextpilot_rag.demo.main import DemoOptions, run_demo
from contextpilot_rag.demo.run import FEWEST
from contextpilot_rag.engines.endpoint import Endpoint
from contextpilot_rag.errors import EngineUnavailable, EngineUnreachable, SettingsError
from contextpilot_rag.testing import FakeEngine


@pytest.fixture
def said():
    return Console(record=True, width=120, force_terminal=False)


def test_the_whole_demo_on_the_fake_engine(tmp_path, said):
    before, after = run_demo(DemoOptions(engine="fake", out=tmp_path / "report"), said)
    assert len(before.sent) == len(after.sent) == 120
    assert after.cached_tokens >= 2 * before.cached_tokens
    assert after.prompt_tokens == pytest.approx(before.prompt_tokens, rel=0.1)
    for one, other in zip(before.sent, after.sent, strict=True):
        assert one.alignment.question == other.alignment.question
        assert set(one.alignment.blocks) == set(other.alignment.blocks)

    text = said.export_text()
    lines = [line for line in text.splitlines() if line.strip()]
    assert all("FakeEngine" in line for line in lines), "a stand-in must say so on every line"
    assert "Order hint" not in text, "there is none by default"
    report = json.loads((tmp_path / "report.json").read_text())
    assert [arm["name"] for arm in report["arms"]] == ["as retrieved", "ContextPilot"]
    assert report["arms"][1]["cached_tokens"] == after.cached_tokens
    assert "no model" in report["engine"]
    assert not any(one["order_hint"] for arm in report["arms"] for one in arm["requests"])
    assert (tmp_path / "report.png").read_bytes().startswith(b"\x89PNG")


def test_an_order_hint_is_shown_where_it_was_switched_on(tmp_path, said, monkeypatch):
    monkeypatch.setenv("CONTEXTPILOT_ORDER_HINT", "yes")
    run_demo(DemoOptions(engine="fake", limit=12, retriever="bm25", out=tmp_path / "report"), said)
    assert "Order hint, after the last block: Order of relevance, best first: [" in said.export_text()


def test_a_slow_engine_is_asked_in_turns_for_as_long_as_it_may_take(tmp_path, said, monkeypatch):
    """Two engines side by side: both get the same questions, each question before the next, and the time is kept."""
    asked = []

    @contextmanager
    def fresh():
        with FakeEngine() as engine, Endpoint(engine.base_url) as endpoint:
            yield endpoint, "system"
            asked.append([request.messages[-1]["content"].splitlines()[-1] for request in engine.requests][1:])

    slow = engines.DemoEngine("slow", fresh, seconds=0.0)
    monkeypatch.setattr("contextpilot_rag.demo.main.choose_engine", lambda *_: (slow, None))
    before, after = run_demo(DemoOptions(out=tmp_path / "r"), said)
    assert asked[0] == asked[1] == [one.alignment.question for one in before.sent]
    assert len(before.sent) == len(after.sent) == FEWEST
    assert "as many as this machine answers in a few minutes" in said.export_text()


def test_own_documents_and_questions_on_a_given_endpoint(tmp_path, said):
    docs = tmp_path / "docs"
    docs.mkdir()
    for name in ("tea", "coffee", "milk"):
        (docs / f"{name}.md").write_text(f"{name} is a drink. {name} is good. " * 20)
    (tmp_path / "q.txt").write_text("Is tea good?\nGood coffee or tea?\nIs milk a drink?\n")
    with FakeEngine(model="mine") as engine:
        options = DemoOptions(
            docs=docs, questions=tmp_path / "q.txt", top_k=3, retriever="bm25", endpoint=engine.base_url,
            model="mine", out=tmp_path / "r",
        )  # fmt: skip
        before, after = run_demo(options, said)
        systems = {request.messages[0]["content"] for request in engine.requests if len(request.messages) == 2}
    assert len(before.sent) == len(after.sent) == 3
    assert len(systems) == 2, "each arm starts with words never sent before, since the cache cannot be emptied"
    assert "Asked all 3 questions" in said.export_text()


def test_an_engine_that_reports_nothing(tmp_path, said):
    with FakeEngine(report_cached=False) as engine:
        run_demo(DemoOptions(endpoint=engine.base_url, limit=2, retriever="faiss", out=tmp_path / "r"), said)
    text = said.export_text()
    assert "not reported" in text
    assert "--enable-prompt-tokens-details" in text


def test_the_stand_in_says_why(monkeypatch):
    def cannot():
        raise EngineUnavailable("no such package")

    monkeypatch.setattr(engines, "LlamaEngine", cannot)
    engine, why = engines.choose_engine(None, None)
    assert (engine.real, why) == (False, "no such package")
    with pytest.raises(EngineUnavailable):
        engines.choose_engine(None, None, "llama")


@pytest.mark.parametrize("options", [{"limit": 0}, {"retriever": "magic"}, {"order": "best"}])
def test_wrong_options(options, said):
    with pytest.raises(SettingsError):
        run_demo(DemoOptions(**options), said)


def test_an_endpoint_where_nobody_listens(said):
    with pytest.raises(EngineUnreachable):
        run_demo(DemoOptions(endpoint="http://127.0.0.1:9", limit=1), said)


# the command line


def test_the_command_runs_the_demo(tmp_path, capsys):
    assert main(["demo", "--engine", "fake", "--limit", "3", "--out", str(tmp_path / "r")]) == 0
    assert "Asked the first 3 of 120 questions" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--docs", "/does/not/exist"], "no file or folder '/does/not/exist'"),
        (["--questions", "/does/not/exist"], "cannot read questions"),
        (["--endpoint", "localhost:8000"], "an endpoint is an http(s) URL"),
        (["--top-k", "0"], "top-k must be at least 1"),
        (["--block-tokens", "0"], "block-tokens must be at least 1"),
        (["--max-tokens", "0"], "max-tokens must be at least 1"),
        (["--model", "m"], "give the endpoint too"),
        (["--out", "/does/not/exist/x"], "the report cannot be written"),
    ],
)
def test_errors_are_one_clear_line(arguments, message, capsys):
    assert main(["demo", *arguments]) == 1
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.err.startswith("contextpilot-rag: ")
    assert captured.err.count("\n") == 1


def test_a_missing_extra_is_named(monkeypatch, capsys):
    monkeypatch.setitem(__import__("sys").modules, "rich.console", None)
    assert main(["demo"]) == 1
    assert "the demo needs rich: pip install 'contextpilot-rag[demo]'" in capsys.readouterr().err


def test_an_interruption_ends_quietly(monkeypatch, capsys):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("contextpilot_rag.demo.main.run_demo", interrupted)
    assert main(["demo"]) == 130
    assert "interrupted" in capsys.readouterr().err


# the real engine


@pytest.fixture(scope="module")
def llama():
    try:
        with LlamaEngine() as engine:
            yield engine
    except EngineUnavailable as error:
        pytest.skip(f"the demo's llama.cpp engine cannot run here: {error}")


@pytest.mark.engine
def test_the_real_engine_caches_what_is_aligned_and_not_what_is_retrieved(llama, tmp_path, said):
    """One small end-to-end run: its own corpus, three orders of the same blocks, real reports."""
    from contextpilot_rag import ContextPilot

    blocks = [f"Fact {number}: " + f"the {word} grows well where it rains often. " * 8 for number, word in enumerate(
        ["oak", "rose", "fern", "moss", "palm"])]  # fmt: skip
    orders = [blocks, [blocks[2], blocks[0], blocks[1], blocks[4], blocks[3]], blocks[::-1]]
    cached = {}
    with Endpoint(llama.base_url, max_retries=0) as endpoint:
        for order in ("retrieved", "balanced"):
            pilot = ContextPilot(order=order)
            reported = []
            for given in orders:
                alignment = pilot.align(given, "Where does it grow?")
                answer = endpoint.chat(alignment.messages(f"Use the documents. ({order})"), max_tokens=4, temperature=0)
                assert pilot.observe(alignment, answer) is not None
                assert answer.text
                reported.append(answer.usage.cached_tokens)
            cached[order] = reported
    assert cached["balanced"][0] < 50  # cold
    assert sum(cached["retrieved"][1:]) < 100  # the system prompt at most
    assert min(cached["balanced"][1:]) > 300


@pytest.mark.engine
def test_the_real_engine_stops_with_its_owner(llama):
    with LlamaEngine() as other:
        process = other._process
        assert process is not None
        assert other.base_url != llama.base_url
    assert process.poll() is not None
