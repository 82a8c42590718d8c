"""Bounds of a mean hold after each number, as often as they say."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextpilot_rag.quality.bounds import Bounds


def broken(mean: float, draw, error: float, numbers: int, seed: int) -> bool:
    """Whether a bound is ever on the wrong side of the mean."""
    bounds, chance = Bounds(error), random.Random(seed)
    for _ in range(numbers):
        bounds.add(draw(chance))
        if not bounds.lower <= mean <= bounds.upper:
            return True
    return False


@pytest.mark.parametrize(
    ("mean", "draw"),
    [
        (0.5, lambda chance: float(chance.random() < 0.5)),
        (0.9, lambda chance: float(chance.random() < 0.9)),
        (0.5, random.Random.random),
    ],
    ids=["halves", "mostly right", "any number"],
)
def test_they_are_seldom_wrong_however_often_one_looks(mean, draw):
    wrong = sum(broken(mean, draw, error=0.1, numbers=400, seed=seed) for seed in range(100))
    assert wrong <= 20  # of 100: each side has a chance of 0.1


@given(st.lists(st.floats(0, 1), max_size=60))
def test_they_are_within_what_is_possible(numbers):
    bounds = Bounds(0.05)
    assert (bounds.lower, bounds.upper) == (0, 1)
    for number in numbers:
        bounds.add(number)
    assert bounds.count == len(numbers)
    assert 0 <= bounds.lower <= bounds.upper <= 1


def test_they_close_in_and_a_smaller_error_takes_longer():
    widths = []
    for error in (0.1, 0.001):
        bounds = Bounds(error)
        for number in range(2_000):
            bounds.add(number % 2)
        widths.append(bounds.upper - bounds.lower)
    assert widths[0] < widths[1] < 0.2


def test_numbers_that_hardly_differ_are_known_sooner():
    alike, apart = Bounds(0.05), Bounds(0.05)
    for number in range(500):
        alike.add(0.5 + 0.01 * (number % 2))
        apart.add(number % 2)
    assert alike.upper - alike.lower < (apart.upper - apart.lower) / 3
