"""Rates, against a bucket that is slow and obvious."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextpilot_rag.service import rates as rates_module
from contextpilot_rag.service.auth import Caller
from contextpilot_rag.service.problems import TooMany
from contextpilot_rag.service.rates import Rates
from contextpilot_rag.service.settings import ServiceSettings


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def refusal(rates, caller, cost=1, counted=0):
    try:
        rates.take(caller, cost, counted=counted)
    except TooMany as error:
        return error
    return None


def taken(rates, caller, cost=1, counted=0):
    return refusal(rates, caller, cost, counted) is None


class Model:
    """A bucket whose level is worked out from all that was ever taken, in exact numbers."""

    def __init__(self, rate, burst):
        self.rate, self.burst, self.taken = rate, burst, []

    def level(self, now):
        level, at = Fraction(self.burst), Fraction(0)
        for when, cost in [*self.taken, (now, 0)]:
            level = min(Fraction(self.burst), level + (when - at) * self.rate) - cost
            at = when
        return level

    def take(self, now, cost):
        if self.level(now) < min(cost, self.burst):
            return False
        self.taken.append((now, cost))
        return True


# quarters of seconds and of requests: floats hold them exactly, so that no answer hangs on rounding
steps = st.lists(
    st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 12).map(lambda n: n / 4), st.integers(1, 9)), max_size=40
)


@given(steps, st.sampled_from([0.25, 0.5, 1.0, 2.0, 4.0]), st.integers(1, 6))
def test_it_answers_as_the_model_does(asked, rate, burst):
    clock = Clock()
    rates = Rates(ServiceSettings(rate=rate, burst=burst), clock)
    models = {name: Model(Fraction(rate), burst) for name in "ab"}
    for name, wait, cost in asked:
        clock.now += wait
        assert taken(rates, Caller(name), cost) == models[name].take(Fraction(clock.now), cost)


@given(steps, st.integers(1, 6))
def test_whoever_waits_as_long_as_told_is_served_and_a_moment_earlier_is_not(asked, burst):
    clock = Clock()
    rates = Rates(ServiceSettings(rate=2.0, burst=burst), clock)
    for _, wait, cost in asked:
        clock.now += wait / 4
        error = refusal(rates, Caller("a"), cost)
        if error is None:
            continue
        assert error.retry_after > 0
        assert int(error.headers["Retry-After"]) >= error.retry_after
        told = clock.now + error.retry_after
        clock.now = told - 0.01
        assert not taken(rates, Caller("a"), cost)
        clock.now = told + 1e-6
        assert taken(rates, Caller("a"), cost)


@given(steps, st.integers(1, 6))
def test_nobody_gets_more_than_burst_and_rate(asked, burst):
    clock = Clock()
    rates = Rates(ServiceSettings(rate=1.0, burst=burst), clock)
    served = 0
    for _, wait, _ in asked:
        clock.now += wait
        served += taken(rates, Caller("a"))
        assert served <= burst + clock.now


def test_no_rate_is_no_limit_and_keeps_nothing():
    rates = Rates(ServiceSettings(burst=1), Clock())
    assert all(taken(rates, Caller("a")) for _ in range(1_000))
    assert len(rates) == 0


def test_a_tenants_own_rate_counts_more_than_the_services():
    clock = Clock()
    rates = Rates(ServiceSettings(rate=1.0, burst=1), clock)
    fast, free, slow = Caller("f", rate=10.0), Caller("u", rate=0.0), Caller("s")
    assert [taken(rates, caller) for caller in (fast, free, slow)] == [True] * 3
    clock.now = 0.1
    assert [taken(rates, caller) for caller in (fast, free, slow)] == [True, True, False]


def test_all_keys_of_a_tenant_share_its_bucket():
    rates = Rates(ServiceSettings(rate=1.0, burst=1), Clock())
    assert taken(rates, Caller("a", key_id="1"))
    assert not taken(rates, Caller("a", key_id="2"))


def test_a_batch_above_the_burst_waits_for_a_full_bucket_and_leaves_a_debt():
    clock = Clock()
    rates = Rates(ServiceSettings(rate=1.0, burst=4), clock)
    assert taken(rates, Caller("a"), 10)
    clock.now = 6.0
    assert not taken(rates, Caller("a"))
    clock.now = 7.0
    assert taken(rates, Caller("a"))
    assert not taken(rates, Caller("a"), 10)


@given(st.integers(1, 12), st.integers(1, 9), st.sampled_from([0.0, 0.25, 1.0, 3.0, 8.0]))
def test_a_batch_whose_first_request_was_counted_is_answered_as_if_it_came_whole(cost, burst, wait):
    clock = Clock()
    whole, parted = (Rates(ServiceSettings(rate=1.0, burst=burst), clock) for _ in range(2))
    for _ in range(12):
        clock.now += wait
        first = taken(parted, Caller("a"))
        if not taken(whole, Caller("a"), cost):
            assert not first or not taken(parted, Caller("a"), cost, counted=1)
            return  # one of them has been charged for the try
        assert first
        assert taken(parted, Caller("a"), cost, counted=1)


def test_a_refusal_costs_nothing_and_others_nothing():
    clock = Clock()
    rates = Rates(ServiceSettings(rate=1.0, burst=2), clock)
    assert taken(rates, Caller("a"), 2)
    assert not any(taken(rates, Caller("a")) for _ in range(100))
    assert taken(rates, Caller("b"), 2)
    clock.now = 1.0
    assert taken(rates, Caller("a"))


def test_a_clock_that_stands_gives_nothing():
    clock = Clock()
    clock.now = 100.0
    rates = Rates(ServiceSettings(rate=1.0, burst=1), clock)
    assert taken(rates, Caller("a"))
    clock.now = 50.0
    assert not taken(rates, Caller("a"))


def test_buckets_are_bounded(monkeypatch):
    monkeypatch.setattr(rates_module, "_MOST", 10)
    rates = Rates(ServiceSettings(rate=1.0, burst=1), Clock())
    for number in range(100):
        assert taken(rates, Caller(str(number)))
        assert len(rates) <= 10
    assert not taken(rates, Caller("99"))


def test_a_refusal_names_no_tenant():
    rates = Rates(ServiceSettings(rate=1.0, burst=1), Clock())
    rates.take(Caller("acme"))
    with pytest.raises(TooMany) as caught:
        rates.take(Caller("acme"))
    assert "acme" not in str(caught.value)
    assert caught.value.status == 429
