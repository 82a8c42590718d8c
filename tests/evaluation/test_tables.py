from __future__ import annotations

import pytest

from contextpilot_rag.evaluation.tables import by_place, compared, differing, lengths, means
from tests.evaluation.common import case

BASE, OTHER, THIRD = "as retrieved", "balanced", "shuffled"


def test_means_and_differences_are_of_the_same_questions():
    cases = [
        case("q1", BASE, 1.0),
        case("q1", OTHER, 0.5),
        case("q2", BASE, 0.0),
        case("q2", OTHER, 0.5),
        case("q3", BASE, None),  # nothing to mark by
        case("q3", OTHER, 1.0),
    ]
    assert means(cases)[BASE] == {"f1": 0.5}
    assert means(cases)[OTHER]["f1"] == pytest.approx(2 / 3)
    found = compared(cases, BASE, "f1")
    assert set(found) == {OTHER}
    assert (found[OTHER].mean, found[OTHER].pairs, found[OTHER].changed) == (0, 2, 2)


def test_without_pairs_there_is_no_difference():
    assert compared([case("q1", BASE, 1.0), case("q2", OTHER, 1.0)], BASE, "f1") == {}
    assert compared([case("q1", OTHER, 1.0)], BASE, "f1") == {}
    assert compared([case("q1", BASE, 1.0), case("q1", OTHER, 1.0)], BASE, "judge") == {}


def test_marks_by_the_gold_blocks_place():
    cases = [
        case("q1", BASE, 1.0, place=0.0),
        case("q1", OTHER, 0.0, place=0.4),
        case("q1", THIRD, 0.0, place=0.4, key="q1 balanced"),  # the same prompt
        case("q2", BASE, 0.5, place=0.5),
        case("q2", OTHER, 0.5, place=1.0),
        case("q3", BASE, 0.9, place=None),
    ]
    rows = {row.place: row for row in by_place(cases, BASE, "f1")}
    assert {place: (row.prompts, row.mean) for place, row in rows.items()} == {
        "first": (1, 1.0),
        "first half": (1, 0.0),
        "second half": (1, 0.5),
        "last": (1, 0.5),
    }
    assert rows["first"].against is None  # the base's own
    assert rows["first half"].against.mean == -1
    assert [row.place for row in by_place(cases, BASE, "f1", arm=OTHER)] == ["first half", "last"]
    assert by_place(cases, BASE, "judge") == []


def test_lengths_are_compared_where_the_same_stands_there():
    cases = [
        case("q1", BASE, 1, content="one two", tokens=100),
        case("q1", OTHER, 1, content="two one", tokens=103),
        case("q2", BASE, 1, content="one two", tokens=100),
        case("q2", OTHER, 1, content="one two, hint", tokens=120),
        case("q3", BASE, 1, content="one two", tokens=100, key="same"),
        case("q3", OTHER, 1, content="one two", tokens=100, key="same"),
        case("q4", BASE, 1, content="one two", tokens=100),
        case("q4", OTHER, 1, content="one", tokens=50),
        case("q5", OTHER, 1, content="one", tokens=50),  # nothing to compare with
    ]
    found = lengths(cases, BASE)
    assert (found[OTHER].alike, found[OTHER].largest, found[OTHER].shorter) == (1, 3, 1)
    assert found[OTHER].tokens == pytest.approx((103 + 120 + 100 + 50) / 4)
    assert found[OTHER].added == pytest.approx((3 + 20 + 0 - 50) / 4)
    assert (found[BASE].added, found[BASE].alike, found[BASE].largest, found[BASE].shorter) == (0, 0, 0, 0)


def test_prompts_that_are_not_the_bases_own_are_counted():
    cases = [
        case("q1", BASE, 1, key="same"),
        case("q1", OTHER, 1, key="same"),
        case("q2", BASE, 1),
        case("q2", OTHER, 1),
        case("q1", THIRD, 1, key="same"),
    ]
    assert differing(cases, BASE) == {OTHER: 1, THIRD: 0}
