from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import bootstrap

from contextpilot_rag.errors import InputError
from contextpilot_rag.evaluation.intervals import paired

numbers = st.floats(0, 1, allow_nan=False)
pairs = st.lists(st.tuples(numbers, numbers), min_size=1, max_size=30)


def both(drawn):
    return [one for one, _ in drawn], [other for _, other in drawn]


@settings(max_examples=30)
@given(pairs)
def test_an_interval_holds_its_mean_and_turns_round_with_its_arms(drawn):
    ours, theirs = both(drawn)
    found, turned = paired(ours, theirs, draws=200), paired(theirs, ours, draws=200)
    assert found.mean == pytest.approx(np.mean(ours) - np.mean(theirs))
    differences = np.subtract(ours, theirs)
    assert differences.min() - 1e-9 <= found.low <= found.high <= differences.max() + 1e-9
    assert (turned.mean, turned.low, turned.high) == pytest.approx((-found.mean, -found.high, -found.low))
    assert (found.pairs, found.changed) == (len(drawn), sum(one != other for one, other in drawn))


@settings(max_examples=30)
@given(pairs)
def test_equal_input_gives_equal_output(drawn):
    assert paired(*both(drawn), draws=100) == paired(*both(drawn), draws=100)


@settings(max_examples=30)
@given(st.lists(numbers, min_size=1))
def test_an_arm_does_not_differ_from_itself(marks):
    found = paired(marks, marks, draws=50)
    assert (found.mean, found.low, found.high, found.changed) == (0, 0, 0, 0)


@settings(max_examples=10)
@given(st.integers(0, 2**32 - 1))
def test_scipys_bootstrap_finds_the_same(seed):
    random = np.random.default_rng(seed)
    theirs = random.random(200)
    ours = np.clip(theirs + random.normal(0.02, 0.1, 200), 0, 1)
    found = paired(list(ours), list(theirs), draws=4_000)
    interval = bootstrap(
        (ours - theirs,), np.mean, n_resamples=4_000, method="percentile", rng=np.random.default_rng(1)
    ).confidence_interval
    width = interval.high - interval.low
    assert found.low == pytest.approx(interval.low, abs=0.1 * width)
    assert found.high == pytest.approx(interval.high, abs=0.1 * width)


def test_the_pairs_stay_together():
    """Two arms that differ by the same on each question: sure, however different the questions are."""
    theirs = [0.0, 0.9] * 50
    found = paired([mark + 0.1 for mark in theirs], theirs)
    assert found.low == pytest.approx(0.1)
    assert found.high == pytest.approx(0.1)


def test_draws_that_do_not_fit_in_one_go_are_as_many(monkeypatch):
    monkeypatch.setattr("contextpilot_rag.evaluation.intervals._AT_ONCE", 7)
    found = paired([1.0, 0.0, 1.0], [0.0, 0.0, 0.0], draws=1_000)
    assert (found.low, found.high) == (0, 1)


@pytest.mark.parametrize(("ours", "theirs"), [([], []), ([1.0], [])])
def test_what_is_no_pairs_is_refused(ours, theirs):
    with pytest.raises(InputError, match="pairs"):
        paired(ours, theirs)
