from __future__ import annotations

import random

import pytest

from contextpilot_rag.index.outcomes import ENOUGH, LONGEST_ROW, Outcomes


def told(pairs):
    outcomes = Outcomes()
    for distance, hit in pairs:
        outcomes.add(distance, hit=hit)
    return outcomes


def drawn(count, share_beyond=0.5, reach=1_000, missed=0.0, seed=0):
    """Outcomes of a cache with a reach, where some prefixes are missed for other reasons."""
    numbers = random.Random(seed)
    for _ in range(count):
        beyond = numbers.random() < share_beyond
        distance = numbers.randrange(reach, 3 * reach) if beyond else numbers.randrange(reach)
        yield distance, not beyond and numbers.random() >= missed


def test_a_miss_stands_for_all_that_is_older_once_chance_does_not_explain_it():
    assert not told([(500, False)]).conclusive(500), "there may be several engines"
    assert told([(500, False)] * 12).conclusive(500)
    assert told([*[(distance, True) for distance in range(400)], (500, False), (600, False)]).conclusive(500)


def test_a_miss_below_what_was_found_says_nothing():
    outcomes = told([(900, True)] * 9 + [(500, False)] + [(1_200, False)] * 9)
    assert not outcomes.conclusive(500)
    assert outcomes.conclusive(1_200)
    assert outcomes.conclusive(5_000), "what is gone at a shorter distance is gone at a longer one"


def test_no_reach_is_told_from_misses_alone():
    assert told([(distance, False) for distance in range(500, 700)]).reach() is None


def test_learns_where_misses_begin():
    assert told(drawn(200)).reach() == pytest.approx(1_000, rel=0.1)


def test_tells_no_reach_from_few():
    assert told([(5_000, False)] * (ENOUGH - 1)).reach() is None


def test_tells_no_reach_where_all_is_found():
    assert told([(distance, True) for distance in range(100)]).reach() is None


@pytest.mark.parametrize("seed", range(5))
def test_tells_no_reach_where_chance_decides(seed):
    # two engines: half of what was used recently is at the other one
    outcomes = told(drawn(128, missed=0.5, seed=seed))
    assert outcomes.reach() is None
    assert not outcomes.conclusive(300)


def test_a_smaller_cache_is_noticed():
    outcomes = told(drawn(128, reach=1_000))
    for distance, hit in drawn(128, reach=300, seed=1):
        outcomes.add(distance, hit=hit)
    assert outcomes.reach() == pytest.approx(300, rel=0.15)


def test_a_row_of_misses_that_chance_does_not_explain_voids_what_was_before():
    outcomes = told([(900, True)] * 100)
    told_at = None
    for number in range(1, LONGEST_ROW + 1):
        outcomes.add(200, hit=False)
        if outcomes.conclusive(200):
            told_at = number
            break
    assert told_at is not None
    assert told_at <= 10


def test_rows_as_chance_makes_them_void_nothing():
    # four engines: three of four requests go where the prefix is not
    numbers = random.Random(0)
    outcomes, concluded = Outcomes(), 0
    for _ in range(3_000):
        hit = numbers.random() < 0.25
        outcomes.add(numbers.randrange(1_000), hit=hit)
        concluded += not hit and outcomes.conclusive(300)
    assert concluded < 60


def test_misses_that_nothing_contradicts_are_no_row():
    outcomes = told([(900, True)] * 20 + [(1_500, False)] * LONGEST_ROW)
    assert len(outcomes) == 20 + LONGEST_ROW
    assert not outcomes.conclusive(500)
