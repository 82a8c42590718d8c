from __future__ import annotations

import sys
from fractions import Fraction

import numpy as np
import pytest

from contextpilot_rag.errors import InputError, SettingsError, TraceError
from contextpilot_rag.evaluation.judging import Judging, judge_called
from tests.evaluation.common import question

ASKED = question("q1", [1], answers=["yes"])


def test_a_judge_is_asked_once_for_each_answer():
    seen = []

    def judge(*asked):
        seen.append(asked)
        return 1 if "yes" in asked[1] else 0.25

    judging = Judging("mine:judge", judge)
    assert [judging(ASKED, text) for text in ("yes", "no", "yes")] == [1, 0.25, 1]
    assert seen == [("What of q1?", "yes", ["yes"]), ("What of q1?", "no", ["yes"])]


def test_marks_are_kept_and_are_of_one_judge(tmp_path):
    path = tmp_path / "marks"
    assert Judging("mine:one", lambda *_: 0.75, path)(ASKED, "yes") == 0.75
    assert Judging("mine:one", lambda *_: 0.0, path)(ASKED, "yes") == 0.75
    assert Judging("mine:other", lambda *_: 0.0, path)(ASKED, "yes") == 0
    path.write_text("{}\n")
    with pytest.raises(TraceError, match="line 1"):
        Judging("mine:one", lambda *_: 0.0, path)


@pytest.mark.parametrize("said", [None, "good", 2, -0.1, float("nan")])
def test_a_judge_says_a_number_from_0_to_1(said):
    with pytest.raises(InputError, match="judge mine:judge, question q1: it must say a number from 0 to 1"):
        Judging("mine:judge", lambda *_: said)(ASKED, "yes")


@pytest.mark.parametrize("said", [1, True, Fraction(1), np.float32(1), np.float64(1)])
def test_a_judges_number_may_be_of_any_library(said):
    mark = Judging("mine:judge", lambda *_: said)(ASKED, "yes")
    assert (mark, type(mark)) == (1.0, float)


def test_a_judges_error_is_named():
    def judge(*_):
        raise KeyError("score")

    with pytest.raises(InputError, match="judge mine:judge, question q1: KeyError: 'score'"):
        Judging("mine:judge", judge)(ASKED, "yes")


@pytest.fixture
def module(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a_judge_of_mine.py").write_text("def good(question, answer, right):\n    return 1\n\nnumber = 3\n")
    (tmp_path / "a_broken_judge.py").write_text("1 / 0\n")
    yield "a_judge_of_mine"
    sys.modules.pop("a_judge_of_mine", None)


def test_a_judge_is_found_in_the_current_folder(module):
    before = list(sys.path)
    assert judge_called(f"{module}:good")("?", "x", []) == 1
    assert sys.path == before


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("good", "named as module:function"),
        (":good", "named as module:function"),
        ("a_judge_of_mine:", "named as module:function"),
        ("a_judge_of_mine:bad", "a_judge_of_mine has no function 'bad'"),
        ("a_judge_of_mine:number", "a_judge_of_mine has no function 'number'"),
        ("no_such_judge:good", "no_such_judge cannot be imported: ModuleNotFoundError"),
        ("a_broken_judge:good", "a_broken_judge cannot be imported: ZeroDivisionError"),
    ],
)
def test_a_judge_that_is_not_there_is_named(module, name, message):
    with pytest.raises(SettingsError, match=message):
        judge_called(name)
