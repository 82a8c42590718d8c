from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextpilot_rag.evaluation.marking import MEASURES, accurate, contained, marks, normal, token_f1
from contextpilot_rag.evaluation.words import Outcome
from tests.evaluation.common import question

words = st.lists(st.sampled_from("the big apple is 5 percent of yes no it".split()), max_size=6).map(" ".join)


def marked(text, answers, **outcome):
    return marks(question("q", [0], answers=answers), Outcome("k", text, 10, **outcome))


@given(words, words)
def test_f1_is_a_share_and_takes_both_alike(answer, gold):
    assert 0 <= token_f1(answer, gold) <= 1
    assert token_f1(answer, gold) == token_f1(gold, answer)


@given(words)
def test_the_right_answer_is_right(gold):
    assert token_f1(gold, gold) == 1
    assert contained(f"so {gold} it is", gold) == float(bool(normal(gold)))


@given(words, words)
def test_what_is_contained_has_some_f1(answer, gold):
    if contained(answer, gold):
        assert token_f1(answer, gold) > 0


@pytest.mark.parametrize(
    ("answer", "gold", "f1", "whole", "right"),
    [
        ("Sales rose by 5 percent.", "5 percent", 4 / 7, 1, 1),
        ("The Big Apple", "big apple", 1, 1, 1),
        ("15 percent", "5 percent", 0.5, 0, 0),
        ("No. Yes would be wrong.", "no", 2 / 6, 1, 1),
        ("Yes, no doubt", "no", 0.5, 1, 0),  # it holds the word, and says the contrary
        ("", "no", 0, 0, 0),
        ("", "", 1, 0, 0),
    ],
)
def test_answers_by_hand(answer, gold, f1, whole, right):
    assert (token_f1(answer, gold), contained(answer, gold), accurate(answer, gold)) == (
        pytest.approx(f1),
        whole,
        right,
    )


def test_the_best_of_several_right_answers_counts():
    assert marked("Paris", ["London", "Paris"]) == {"f1": 1, "contained": 1, "accuracy": 1}


def test_without_answers_there_is_nothing_to_mark_by():
    assert marked("Paris", []) == {}


def test_probabilities_are_of_a_token():
    found = marked("x", ["y"], logprob=-6.0, scored=3)
    assert found["logprob"] == -2
    assert found["probability"] == pytest.approx(math.exp(-2))
    assert set(found) == set(MEASURES)
    assert "logprob" not in marked("x", ["y"], logprob=None, scored=0)
