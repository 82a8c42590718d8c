from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings

from contextpilot_rag.evaluation.arms import SINGLE, TALKS
from contextpilot_rag.evaluation.making import made
from contextpilot_rag.evaluation.shares import Share, reported, shares
from tests.evaluation.common import case, question, traffics


def words(text):
    return len(text.split())


def _prompts(traffic):
    ((_, found),) = list(made(traffic, [SINGLE["as retrieved"]], system="Be brief."))
    return found


def test_a_share_by_hand():
    """Alike but for the question: all of the prompt up to it is found, and nothing is found the first time."""
    traffic = [question(1, [8, 9]), question(2, [8, 9])]
    found = shares(traffic, [SINGLE["as retrieved"]], system="Be brief.", tokenizer=words)["as retrieved"]
    ((_, prompt),) = list(_prompts(traffic[:1]))
    whole = sum(words(str(message["content"])) for message in prompt.messages)
    assert found.sent == 2 * whole
    assert found.cached == whole - words("What of 1?")
    assert found.ratio == found.cached / found.sent
    assert found.computed == found.sent - found.cached


def test_the_last_block_of_one_prompt_is_a_block_of_the_next():
    traffic = [question(1, [8]), question(2, [8, 9])]
    one, other = (
        shares([traffic[0], second], [SINGLE["as retrieved"]], tokenizer=words)["as retrieved"].cached
        for second in (traffic[1], question(2, [7, 9]))
    )
    assert one > other


def test_alignment_finds_more_of_a_traffic_that_shares_blocks():
    traffic = [question(name, numbers) for name, numbers in enumerate([[8, 9], [1, 9, 8], [2, 8, 9], [9, 8, 3]])]
    found = shares(traffic, [SINGLE["as retrieved"], SINGLE["balanced"]])
    assert found["balanced"].ratio > found["as retrieved"].ratio
    assert found["balanced"].sent == pytest.approx(found["as retrieved"].sent, rel=0.02)  # but for rounding


def test_a_small_cache_finds_less():
    traffic = [question(name, [name % 5, 5 + name % 3]) for name in range(30)]
    arms = [SINGLE["as retrieved"]]
    whole, small = (shares(traffic, arms, capacity_tokens=size)["as retrieved"] for size in (None, 60))
    assert small.ratio < whole.ratio


@settings(max_examples=8)
@given(traffics)
def test_it_does_not_matter_who_is_asked(traffic):
    arms = [SINGLE["balanced"], SINGLE["min_gain 10 %, hint: order, echo 1"]]
    found = shares(traffic, arms)
    assert found == shares([replace(one, asked=False) for one in traffic], arms)
    assert all(0 <= share.cached <= share.sent for share in found.values())


def test_turns_share_what_was_said_before():
    turns = [
        question("a1", [1, 2], answers=["one"], conversation="a"),
        question("a2", [1, 3], answers=["two"], conversation="a"),
    ]
    found = shares(turns, [TALKS["as retrieved"], TALKS["blocks replaced"]])
    assert found["as retrieved"].cached > 0
    assert found["blocks replaced"].sent < found["as retrieved"].sent


def test_nothing_sent_is_no_share():
    assert Share(0, 0).ratio == 0
    assert shares([], [SINGLE["balanced"]])["balanced"] == Share(0, 0)


def test_reported_shares_are_of_prompts_that_were_asked_for_the_arm():
    cases = [
        case("q1", "as retrieved", 1, key="a", tokens=100, cached=10),
        case("q1", "balanced", 1, key="a", tokens=100, cached=10),  # the base's own
        case("q1", "balanced, hint: order", 1, key="c", tokens=110, cached=100),  # shares its cache with the arm above
        case("q2", "as retrieved", 1, key="d", tokens=100, cached=20),
        case("q2", "balanced", 1, key="e", tokens=100, cached=50),
        case("q2", "shuffled", 1, key="f", tokens=100, cached=None),  # not reported
    ]
    assert reported(cases) == pytest.approx({"as retrieved": 0.15, "balanced": 0.5})
