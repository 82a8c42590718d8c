from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextpilot_rag.evaluation.intervals import Difference
from contextpilot_rag.evaluation.report import as_plain, as_text
from contextpilot_rag.evaluation.shares import Share
from contextpilot_rag.evaluation.verdict import judged, verdict
from tests.evaluation.common import case

BASE = "as retrieved"
values = st.floats(-1, 1, allow_nan=False)
differences = st.builds(
    lambda ends, pairs: Difference((ends[0] + ends[1]) / 2, min(ends), max(ends), pairs, pairs),
    st.tuples(values, values),
    st.integers(1, 10_000),
)
margins = st.floats(0.001, 0.5)


@given(differences, margins)
def test_safe_is_never_said_of_a_loss_that_may_be_beyond_the_margin(difference, margin):
    said = judged(difference, margin)
    if said.said == "safe":
        assert difference.low > -margin
        assert difference.pairs * margin >= 3 - 1e-9
    if said.said == "worse":
        assert difference.high < -margin
        assert difference.pairs >= 30
    assert (said.more is None) or (said.said == "open" and said.more >= 1)


@given(differences, margins)
def test_so_many_more_questions_would_tell_if_all_goes_on_as_it_began(difference, margin):
    said = judged(difference, margin)
    if said.more is None:
        return
    pairs = difference.pairs + said.more
    narrower = (difference.pairs / pairs) ** 0.5
    low = difference.mean - (difference.mean - difference.low) * narrower
    high = difference.mean + (difference.high - difference.mean) * narrower
    slack = 1e-9 * pairs
    assert low > -margin - slack or high < -margin + slack


@given(differences, margins)
def test_prompts_that_are_the_bases_own_are_safe(difference, margin):
    assert judged(difference, margin, differing=0).said == "safe"


@pytest.mark.parametrize(
    ("mean", "low", "high", "pairs", "said"),
    [
        (0.0, -0.009, 0.009, 300, "safe"),
        (0.0, -0.009, 0.009, 299, "not enough questions: about 1 more"),
        (0.0, 0.0, 0.0, 40, "not enough questions: about 260 more"),
        (0.0, -0.02, 0.02, 300, "not enough questions: about 900 more"),
        (-0.05, -0.09, -0.011, 30, "worse"),
        (-0.05, -0.09, -0.011, 29, "not enough questions: about 1 more"),
        (-0.05, -0.10, 0.0, 100, "not enough questions: about 57 more"),
        (-0.01, -0.02, 0.0, 1_000, "not enough questions"),
    ],
)
def test_by_hand(mean, low, high, pairs, said):
    assert str(judged(Difference(mean, low, high, pairs, pairs))) == said


def arms(count, marks, **more):
    """So many questions in arms with these marks, on top of a base whose marks are 0.5."""
    found = []
    for name in range(count):
        found.append(case(name, BASE, 0.5, **more))
        found += [case(name, arm, 0.5 + (mark if name % 2 else 0.0), **more) for arm, mark in marks.items()]
    return found


def test_of_the_safe_arms_the_one_that_leaves_least_to_compute_is_used():
    marks = {"balanced": 0.0, "min_gain 40 %": 0.0, "throughput": -0.4, "shuffled": 0.0}
    shares = {
        BASE: Share(100, 10),
        "balanced": Share(100, 40),
        "min_gain 40 %": Share(100, 30),
        "throughput": Share(100, 60),
        "shuffled": Share(100, 90),
    }
    found = verdict(arms(300, marks), BASE, shares=shares)
    assert {one.arm.name: one.said for one in found.arms} == {
        BASE: "safe",
        "balanced": "safe",
        "min_gain 40 %": "safe",
        "throughput": "worse",
        "shuffled": "safe",  # but no setting makes it
    }
    assert found.use.settings == "ContextPilot()"
    assert "use ContextPilot(): of the arms that are safe (balanced)" in as_text(found)
    assert as_plain(found)["use"] == {"arm": "balanced", "settings": "ContextPilot()"}


def test_where_nothing_else_is_safe_the_base_is_used():
    found = verdict(arms(300, {"balanced": -0.4}), BASE, shares={BASE: Share(100, 10), "balanced": Share(100, 90)})
    assert found.use.arm.name == BASE
    assert 'use ContextPilot(order="retrieved"): no other arm' in as_text(found)


def test_without_predictions_nothing_is_chosen():
    assert verdict(arms(300, {"balanced": 0.0}), BASE).use.arm.name == BASE


def test_all_measures_that_decide_must_be_safe():
    cases = arms(300, {"balanced": 0.0, "throughput": 0.0})
    cases += arms(300, {"balanced": 0.0, "throughput": -0.4}, measure="judge")
    merged = {}
    for one in cases:
        merged.setdefault((one.question.id, one.arm.name), []).append(one)
    both = [_with_marks(rows) for rows in merged.values()]
    found = {one.arm.name: one.said for one in verdict(both, BASE, deciding=("f1", "judge")).arms}
    assert (found["balanced"], found["throughput"]) == ("safe", "worse")
    assert {one.arm.name: one.said for one in verdict(both, BASE, deciding=("f1",)).arms}["throughput"] == "safe"
    text = as_text(verdict(both, BASE, deciding=("f1",)))
    assert "differences in what does not decide" in text


def _with_marks(rows):
    return replace(rows[0], marks={name: mark for row in rows for name, mark in row.marks.items()})


def test_what_a_measure_says_nothing_of_is_open():
    found = verdict(arms(300, {"balanced": 0.0}), BASE, deciding=("f1", "judge"))
    assert found.arms[1].said == "open"
    assert "not enough questions" in as_text(found)


def test_unlike_lengths_are_warned_of():
    cases = arms(300, {"balanced": 0.0})
    longer = [case("q", BASE, 1, tokens=100), case("q", "balanced", 1, tokens=120)]
    assert verdict(cases, BASE).uneven == ()
    found = verdict([*cases, *longer], BASE)
    assert [one.arm.name for one in found.uneven] == ["balanced"]
    assert "WARNING: balanced: equally many characters, and up to 20 tokens apart" in as_text(found)


def test_what_an_engine_reports_counts_only_where_arms_were_apart():
    cases = arms(30, {"balanced": 0.0}, cached=50)
    assert verdict(cases, BASE).arms[1].reported == 0.5
    assert verdict(cases, BASE, isolated=False).arms[1].reported is None


def test_the_tables_columns_stand_below_each_other():
    lines = as_text(verdict(arms(300, {"balanced": -0.4}, place=0.5), BASE, shares={BASE: Share(4, 1)})).splitlines()
    assert re.split(r"\s{2,}", lines[0]) == ["arm", "f1", "difference (95 %)", "predicted", "reported", "verdict"]
    assert re.fullmatch(r"as retrieved .* 25\.0%", lines[1])
    assert lines[2].endswith("worse")
    assert any(line.startswith("second half") and "600" in line for line in lines)


def test_a_measure_by_which_nothing_is_right_calls_no_other_order_safe():
    cases = [case(name, arm, 0.0) for name in range(400) for arm in (BASE, "balanced")]
    cases += [case(name, "shuffled", 0.0, key=f"{name} {BASE}") for name in range(400)]
    found = verdict(cases, BASE)
    assert found.blind == ("f1",)
    assert [one.said for one in found.arms] == ["safe", "open", "safe"]  # the last has the base's own prompts
    assert "WARNING: f1: as retrieved, answers have 0.000, so none can lose more than 0.01" in as_text(found)
    assert as_plain(found)["blind"] == ["f1"]
    assert verdict([replace(one, marks={"f1": 0.5}) for one in cases], BASE).blind == ()


def test_a_question_that_is_asked_all_day_is_one_question():
    cases = [case(name, arm, 0.5, key=f"{name % 3} {arm}") for name in range(400) for arm in (BASE, "balanced")]
    balanced = verdict(cases, BASE).arms[1]
    assert (balanced.said, balanced.differences["f1"].pairs, balanced.questions) == ("open", 3, 400)
