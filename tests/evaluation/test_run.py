from __future__ import annotations

import threading

import pytest

from contextpilot_rag.engines.engine import Engine
from contextpilot_rag.engines.http import EngineHttp
from contextpilot_rag.errors import EngineError, EngineRefused
from contextpilot_rag.evaluation.arms import SINGLE
from contextpilot_rag.evaluation.asking import Asker, Terms
from contextpilot_rag.evaluation.kept import Kept
from contextpilot_rag.evaluation.run import ask_all, cases, cells, missing
from contextpilot_rag.evaluation.words import Outcome
from contextpilot_rag.testing import FakeEngine
from tests.evaluation.common import question

ARMS = [SINGLE[name] for name in ("as retrieved", "balanced", "balanced, hint: order", "reversed")]
TERMS = Terms("fake-engine", 8, "none")
# The second is aligned, the third is not; a question with one block is the same prompt in all arms.
TRAFFIC = [question(1, [8, 9]), question(2, [9, 1, 8]), question(3, [4]), question(4, [5], asked=False)]


@pytest.fixture
def fake():
    with FakeEngine() as engine:
        yield engine


@pytest.fixture
def asker(fake):
    http = EngineHttp(Engine(fake.base_url))
    yield Asker(http, TERMS)
    http.close()


def wanted():
    return cells(TRAFFIC, ARMS, str(TERMS))


def test_cells_are_question_by_question():
    assert [(cell.question.id, cell.arm.name) for cell in wanted()] == [
        (name, arm.name) for name in "123" for arm in ARMS
    ]


def test_equal_prompts_are_asked_once(fake, asker):
    kept, told = Kept(), []
    ask_all(wanted(), asker, kept, progress=lambda *so_far: told.append(so_far))
    # 1: as retrieved and reversed; 2: each arm its own; 3: one
    assert len(fake.requests) == len(kept) == 2 + 4 + 1
    assert told[-1] == (7, 7)
    assert {case.question.id for case in cases(wanted(), kept)} == {"1", "2", "3"}
    ask_all(wanted(), asker, kept)
    assert len(fake.requests) == 7


def test_layouts_do_not_meet_in_the_engines_cache(fake, asker):
    ask_all(wanted(), asker, Kept(), salt="mine", concurrency=1)
    salts = {request.cache_salt for request in fake.requests}
    assert salts == {"mine retrieved", "mine balanced", "mine reversed"}
    fake.reset()
    ask_all(wanted(), asker, Kept(), salt=None)
    assert fake.requests[-1].cache_salt is None


def test_it_goes_on_where_it_was_interrupted(fake, asker, tmp_path):
    path = tmp_path / "results.jsonl"
    fake.fail_next(1_000, 503)
    with pytest.raises(EngineRefused):
        ask_all(wanted(), asker, Kept(path), concurrency=1)
    fake.fail_next(0)
    ask_all(wanted()[:4], asker, Kept(path), concurrency=1)
    assert len(missing(wanted(), Kept(path))) == 7 - 2
    found = cases(wanted(), Kept(path))
    assert {case.question.id for case in found} == {"1"}
    ask_all(wanted(), asker, Kept(path))
    assert len(fake.requests) == 7


def test_what_was_under_way_is_kept_when_another_prompt_fails():
    """Two prompts at a time: the second fails first, and the first is answered after that."""
    failed = threading.Event()

    class Half:
        def give_up(self):
            pass

        def ask(self, key, *_):
            if key == jobs[1].key:
                failed.set()
                raise EngineError("broken")
            failed.wait(10)
            return Outcome(key, "late", 1)

    jobs, kept = missing(wanted(), Kept())[:2], Kept()
    with pytest.raises(EngineError, match="broken"):
        ask_all(jobs, Half(), kept, concurrency=2)
    assert kept.get(jobs[0].key).text == "late"


def test_prompts_that_an_engine_does_not_take_are_told_and_their_questions_left_out():
    long = [cell.key for cell in wanted() if cell.arm.name == "reversed" and cell.question.id == "2"]

    class Small:
        def give_up(self):
            pass

        def ask(self, key, *_):
            if key in long:
                raise EngineRefused("too long", 400)
            return Outcome(key, "x", 1)

    kept, told = Kept(), []
    ask_all(wanted(), Small(), kept, refused=lambda cell, error: told.append((cell.question.id, str(error))))
    assert told == [("2", "too long")]
    assert {case.question.id for case in cases(wanted(), kept)} == {"1", "3"}
    with pytest.raises(EngineRefused):
        ask_all(wanted(), Small(), kept)


def test_other_refusals_are_errors_all_the_same():
    class Overloaded:
        def give_up(self):
            pass

        def ask(self, *_):
            raise EngineRefused("not now", 429)

    with pytest.raises(EngineRefused):
        ask_all(wanted(), Overloaded(), Kept(), refused=lambda *_: None)


def test_cases_have_marks_and_a_judges():
    kept = Kept()
    for cell in wanted():
        kept.add(Outcome(cell.key, "yes", 1))
    plain, judged = cases(wanted(), kept), cases(wanted(), kept, lambda asked, text: 0.5 if text == "yes" else 0)
    assert plain[0].marks == {"f1": 1, "contained": 1, "accuracy": 1}
    assert judged[0].marks == {**plain[0].marks, "judge": 0.5}
