"""The judge: never wrong more often than it says, sure after a while, bounded, and one namespace at a time."""

from __future__ import annotations

import random
import sys
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contextpilot_rag import Namespace
from contextpilot_rag.quality import judge as module
from contextpilot_rag.quality.judge import EPOCH, Judge, Quality

ACME, GLOBEX = Namespace("acme"), Namespace("globex")


def rated(
    judge: Judge, aligned: float, control: float, requests: int, seed: int, space: Namespace = ACME
) -> int | None:
    """Ratings of requests as they come, right (1) as often as said; the number of the first that decides something."""
    chance = random.Random(seed)
    for number in range(1, requests + 1):
        name = chance.getrandbits(64)
        role = judge.role(space, name)
        if role == "off":
            continue
        right = chance.random() < (aligned if role == "aligned" else control)
        if judge.rate(space, role, name, float(right)) is not None:
            return number
    return None


@pytest.mark.parametrize(("quality", "runs"), [(0.5, 50), (0.9, 30), (0.1, 30)])
def test_where_answers_are_equal_alignment_stays_on(quality, runs):
    wrong = [seed for seed in range(runs) if rated(Judge(0.0, 0.2, 10), quality, quality, 1_500, seed) is not None]
    assert len(wrong) <= 0.05 * runs


@settings(max_examples=15)
@given(st.floats(0.05, 0.95), st.integers(0, 2**32))
def test_a_drop_that_is_allowed_turns_nothing_off(quality, seed):
    # The error is small enough for a wrong decision to be a defect, and not bad luck.
    judge = Judge(0.1, 0.2, 10)
    assert rated(judge, max(0.0, quality - 0.05), quality, 600, seed) is None
    assert not judge.is_off(ACME)


@pytest.mark.parametrize(("aligned", "control"), [(0.5, 0.7), (0.1, 0.3), (0.75, 0.95)])
def test_a_drop_of_a_fifth_turns_alignment_off(aligned, control):
    for seed in range(5):
        judge = Judge(0.0, 0.2, 10)
        needed = rated(judge, aligned, control, 6_000, seed)
        assert needed is not None
        assert judge.is_off(ACME)
        assert judge.quality(ACME).turned_off == 1


def test_what_decided_is_told_and_the_next_epoch_begins_anew():
    judge = Judge(0.0, 0.5, 10)
    for name in range(1_000):
        decided = judge.rate(ACME, "control", 2 * name, 0.9) or judge.rate(ACME, "aligned", 2 * name + 1, 0.1)
        if decided:
            break
    assert decided is not None
    assert decided.off
    assert decided.lower < -0.8 < decided.upper < 0
    assert (decided.aligned.mean, decided.control.mean) == (pytest.approx(0.1), pytest.approx(0.9))
    assert judge.quality(ACME) == Quality(off=True, epoch=2, turned_off=1)


def test_alignment_comes_back_when_its_trial_is_sure_to_be_no_worse():
    judge = Judge(0.1, 0.3, 10)
    assert rated(judge, 0.2, 0.8, 2_000, seed=1) is not None
    assert judge.is_off(ACME)
    roles = [judge.role(ACME, random.Random(seed).getrandbits(64)) for seed in range(1_000)]
    assert {role: round(roles.count(role) / 1_000, 1) for role in roles} == {"control": 0.3, "aligned": 0.3, "off": 0.4}
    assert rated(judge, 0.2, 0.8, 1_000, seed=2) is None  # still as bad
    judge.forget(GLOBEX)
    assert judge.is_off(ACME)
    judge = Judge(0.1, 0.3, 10)
    assert rated(judge, 0.2, 0.8, 2_000, seed=1) is not None
    assert rated(judge, 0.95, 0.95, 4_000, seed=3) is not None  # another model
    assert not judge.is_off(ACME)
    assert judge.quality(ACME).turned_off == 1


def test_old_ratings_fade_so_that_a_worse_model_is_noticed(monkeypatch):
    monkeypatch.setattr(module, "EPOCH", 1_000)
    judge = Judge(0.0, 0.3, 10)
    assert rated(judge, 0.8, 0.8, 950, seed=4) is None
    needed = rated(judge, 0.3, 0.8, 3_000, seed=5)
    assert needed is not None
    assert judge.quality(ACME).epoch > 2
    assert EPOCH == 20_000


def test_later_epochs_have_less_of_the_error_so_that_all_have_it_once():
    assert sum(1 / (epoch * (epoch + 1)) for epoch in range(1, 100_000)) < 1


def test_equal_requests_count_once_in_an_epoch():
    judge = Judge(0.0, 0.2, 10)
    for _ in range(5_000):  # one question, asked all day, says nothing of alignment
        judge.rate(ACME, "control", 1, 1.0)
        judge.rate(ACME, "aligned", 2**40, 0.0)
    quality = judge.quality(ACME)
    assert (quality.off, quality.aligned.count, quality.control.count) == (False, 1, 1)


@given(st.integers(0, 2**64 - 1))
def test_the_control_is_the_same_in_every_process_and_whatever_was_rated(name):
    fresh, known = Judge(0.0, 0.2, 10), Judge(0.0, 0.2, 10)
    for other in range(100):
        known.rate(ACME, "control", 2 * other, 1.0)
        known.rate(ACME, "aligned", 2 * other + 1, 0.0)
    assert known.is_off(ACME)
    assert (fresh.role(ACME, name) == "control") == (known.role(ACME, name) == "control")
    assert fresh.role(ACME, name) in ("control", "aligned")


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 2**64 - 1), st.sampled_from([0.0, 1.0])), max_size=80))
def test_tenants_do_not_influence_each_other(ratings):
    alone, beside = Judge(0.0, 0.2, 10), Judge(0.0, 0.2, 10)
    for control, name, score in ratings:
        arm = "control" if control else "aligned"
        alone.rate(ACME, arm, name, score)
        beside.rate(ACME, arm, name, score)
        beside.rate(GLOBEX, "aligned", name, 0.0)
        beside.rate(GLOBEX, "control", ~name, 1.0)
        assert alone.quality(ACME) == beside.quality(ACME)
        assert alone.role(ACME, name) == beside.role(ACME, name)


def test_memory_is_bounded_in_namespaces_and_ratings():
    judge = Judge(0.0, 0.2, most=3)
    for number in range(50):
        judge.rate(Namespace(str(number)), "control", number, 1.0)
    assert len(judge) == 3
    assert judge.quality(Namespace("0")) == Quality()
    space = judge._spaces[Namespace("49")]
    before = sys.getsizeof(space.seen)
    for number in range(2_000):
        judge.rate(Namespace("49"), "aligned", number, 1.0)
    assert sys.getsizeof(space.seen) == before <= 17_000


def test_forgetting_brings_alignment_back():
    judge = Judge(0.0, 0.3, 10)
    for space in (ACME, GLOBEX):
        assert rated(judge, 0.1, 0.9, 2_000, seed=6, space=space) is not None
    judge.forget(ACME)
    assert (judge.is_off(ACME), judge.is_off(GLOBEX)) == (False, True)
    judge.forget()
    assert not judge.is_off(GLOBEX)


def test_threads_lose_no_rating():
    judge, names = Judge(0.5, 0.2, 10), [random.Random(seed).getrandbits(64) for seed in range(4_000)]

    def rate(own):
        for name in own:
            judge.role(ACME, name)
            judge.rate(ACME, "aligned", name, 1.0)
            judge.rate(GLOBEX, "control", name, 0.5)
            judge.quality(GLOBEX)

    threads = [threading.Thread(target=rate, args=(names[start::8],)) for start in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    alone = Judge(0.5, 0.2, 10)
    rate_in_order = [alone.rate(ACME, "aligned", name, 1.0) for name in names]
    assert not any(rate_in_order)
    assert judge.quality(ACME).aligned.count == judge.quality(GLOBEX).control.count
    assert judge.quality(ACME).aligned.count == alone.quality(ACME).aligned.count
    assert judge.quality(ACME).aligned.mean == 1.0


def test_a_forked_child_goes_on_where_the_lock_was_held():
    judge = Judge(0.0, 0.3, 10)
    assert rated(judge, 0.1, 0.9, 2_000, seed=7) is not None
    judge.rate(ACME, "control", 12_345, 1.0)
    with judge._lock:
        judge._renew()  # as `forking` does in a child
    assert judge.is_off(ACME)
    assert judge.quality(ACME).control.count == 0


@pytest.mark.parametrize("early", [0.0, 0.02, 0.95])
def test_where_ratings_drift_alignment_stays_on_if_answers_are_equal(early):
    # Half of the time nothing is right, say, and then all is: in every arm alike.
    for seed in range(4):
        judge, chance = Judge(0.0, 0.1, 10), random.Random(seed)
        for number in range(6_000):
            name, mean = chance.getrandbits(64), early if number < 4_000 else 0.97 - early
            judge.rate(ACME, judge.role(ACME, name), name, float(chance.random() < mean))
        assert judge.quality(ACME).turned_off == 0


def test_ratings_that_come_after_alignment_was_turned_off_are_compared_with_their_like():
    judge, chance = Judge(0.0, 0.2, 10), random.Random(9)
    late = [(name, judge.role(ACME, name)) for name in (chance.getrandbits(64) for _ in range(3_000))]
    assert rated(judge, 0.2, 0.8, 2_000, seed=1) is not None
    for name, role in late:
        judge.rate(ACME, role, name, 1.0)
    quality = judge.quality(ACME)
    assert quality.off
    assert quality.aligned.count == pytest.approx(quality.control.count, rel=0.2)
