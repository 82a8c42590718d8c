"""The effect's bounds hold at every look, also where ratings drift."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextpilot_rag.quality.effect import Effect
from contextpilot_rag.types import Arm

DRIFTS = {
    "none": lambda part: 0.7,
    "ever better": lambda part: 0.1 + 0.8 * part,
    "nights and days": lambda part: 0.9 if int(10 * part) % 2 else 0.2,
    "another measure": lambda part: 0.0 if part < 0.6 else 0.9,
}


def broken(seed: int, drift, control: float, harm: float, ratings: int = 800) -> bool:
    """Whether a bound is ever on the wrong side of what alignment does."""
    effect, chance = Effect(0.1, control), random.Random(seed)
    for number in range(ratings):
        arm: Arm = "control" if chance.random() < control else "aligned"
        score = 0.1 + 0.8 * drift(number / ratings) * chance.random() - (harm if arm == "aligned" else 0)
        effect.add(arm, score)
        if not effect.lower <= -harm <= effect.upper:
            return True
    return False


@pytest.mark.parametrize("drift", DRIFTS.values(), ids=list(DRIFTS))
@pytest.mark.parametrize(("control", "harm"), [(0.1, 0.0), (0.5, 0.1)])
def test_they_are_seldom_wrong_however_ratings_drift(drift, control, harm):
    assert sum(broken(seed, drift, control, harm) for seed in range(20)) <= 6  # each side has a chance of 0.1


@given(
    st.sampled_from([0.001, 0.1, 0.5]),
    st.lists(st.tuples(st.sampled_from(["aligned", "control"]), st.floats(0, 1)), max_size=60),
)
def test_they_are_within_what_is_possible(control, ratings):
    effect = Effect(0.05, control)
    for arm, score in ratings:
        effect.add(arm, score)
        assert -1 <= effect.lower <= effect.upper <= 1


def test_a_harm_is_known_after_a_while():
    effect, chance = Effect(0.025, 0.1), random.Random(1)
    for _ in range(2_000):
        arm = "control" if chance.random() < 0.1 else "aligned"
        effect.add(arm, float(chance.random() < (0.7 if arm == "control" else 0.4)))
    assert effect.upper < 0
