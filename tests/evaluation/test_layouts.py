from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contextpilot_rag.evaluation.layouts import LAYOUTS, OFFERED, far_ahead, orders
from contextpilot_rag.evaluation.words import Question
from tests.evaluation.common import block, question, traffics


@settings(max_examples=40)
@given(traffics, st.sampled_from(sorted(LAYOUTS)))
def test_every_layout_is_a_permutation_of_the_blocks(traffic, layout):
    for asked, order in zip(traffic, orders(traffic, layout), strict=True):
        assert sorted(order) == list(range(len(asked.blocks)))


@settings(max_examples=40)
@given(traffics, st.sampled_from(sorted(LAYOUTS)))
def test_a_layout_gives_the_same_each_time_and_in_any_environment(traffic, layout):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CONTEXTPILOT_ORDER", "fixed")
        patch.setenv("CONTEXTPILOT_MIN_GAIN", "1")
        changed = orders(traffic, layout)
    assert changed == orders(traffic, layout)


@settings(max_examples=40)
@given(traffics)
def test_controls_look_at_one_question_only(traffic):
    for layout in ("retrieved", "sorted", "shuffled", "reversed"):
        together = orders(traffic, layout)
        assert together == [orders([asked], layout)[0] for asked in traffic]


@settings(max_examples=40)
@given(traffics)
def test_protected_blocks_keep_their_places(traffic):
    for count in (1, 3):
        for order in orders(traffic, f"protect-{count}"):
            assert order[:count] == list(range(len(order)))[:count]


@settings(max_examples=40)
@given(traffics)
def test_the_best_block_stands_last_where_the_others_moved(traffic):
    for order in orders(traffic, "best-last"):
        assert order == list(range(len(order))) or order[-1] == 0


def test_the_controls_by_hand():
    asked = [question("q", [3, 1, 2])]
    assert orders(asked, "retrieved") == [[0, 1, 2]]
    assert orders(asked, "sorted") == [[1, 2, 0]]
    assert orders(asked, "reversed") == [[2, 1, 0]]


def test_what_was_sent_before_is_followed():
    traffic = [question(1, [8, 9]), question(2, [1, 9, 8])]
    assert orders(traffic, "balanced") == [[0, 1], [2, 1, 0]]
    assert orders(traffic, "protect-1")[1][0] == 0


def scored(*scores):
    return Question("q", "?", tuple(block(number, score) for number, score in enumerate(scores)))


@pytest.mark.parametrize(
    ("scores", "far"), [((10, 7), True), ((10, 9), False), ((10,), False), ((None, 1), False), ((-1, -2), True)]
)
def test_a_gap_is_a_fifth_of_the_best_score(scores, far):
    assert far_ahead(scored(*scores)) is far


def test_a_question_whose_best_block_is_far_ahead_is_left_alone():
    first = question(1, [8, 9])
    near, far = (
        Question(str(name), "?", tuple(block(number, score) for number, score in zip([1, 9, 8], scores, strict=True)))
        for name, scores in ((2, (3.0, 2.9, 2.8)), (3, (9.0, 2.0, 1.0)))
    )
    assert orders([first, near], "gap")[1] == [2, 1, 0]
    assert orders([first, far], "gap")[1] == [0, 1, 2]


def test_what_is_offered_is_a_layout():
    assert set(OFFERED) <= set(LAYOUTS)
