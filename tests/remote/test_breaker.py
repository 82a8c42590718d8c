"""The breaker against a simple model: when it lets somebody ask, and what it makes of the answers."""

from __future__ import annotations

import threading

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from contextpilot_rag.remote.breaker import Breaker, Leave


class Machine(RuleBasedStateMachine):
    """Everybody who has leave to ask stands in `asking`; answers come in any order, or never."""

    def __init__(self):
        super().__init__()
        self.now = 100.0
        self.jitter = 0.0
        self.breaker = Breaker(lambda: self.now, failures=3, pause=1.0, most=8.0, jitter=lambda: self.jitter)
        self.asking: list[tuple[Leave, int]] = []
        self.epoch = 0  # grows when it opens, and when it closes
        self.failures = 0
        self.useless = 0  # how often it opened since it was closed
        self.opens_until: float | None = None

    @property
    def probing(self):
        return any(leave.probe and epoch == self.epoch for leave, epoch in self.asking)

    @rule(seconds=st.floats(0, 10), jitter=st.floats(0, 1))
    def time_passes(self, seconds, jitter):
        self.now += seconds
        self.jitter = jitter

    @rule()
    def somebody_asks(self):
        leave = self.breaker.ask()
        if self.opens_until is None:
            assert leave is not None
            assert not leave.probe
        elif self.now < self.opens_until or self.probing:
            assert leave is None
        else:
            assert leave is not None
            assert leave.probe
        if leave is not None:
            self.asking.append((leave, self.epoch))

    def take(self, data):
        leave, epoch = self.asking.pop(data.draw(st.integers(0, len(self.asking) - 1)))
        return leave, epoch == self.epoch

    @precondition(lambda self: self.asking)
    @rule(data=st.data())
    def it_answers(self, data):
        leave, counts = self.take(data)
        self.breaker.succeeded(leave)
        if counts:
            self.failures = 0
            if leave.probe:
                self.opens_until, self.useless = None, 0
                self.epoch += 1

    @precondition(lambda self: self.asking)
    @rule(data=st.data())
    def it_fails(self, data):
        leave, counts = self.take(data)
        self.breaker.failed(leave)
        if counts:
            self.failures += 1
            if leave.probe or self.failures == 3:
                pause = min(8.0, 2.0**self.useless)
                self.useless += 1
                self.opened(pause * (0.5 + self.jitter / 2))

    @precondition(lambda self: self.asking)
    @rule(data=st.data(), seconds=st.floats(-5, 100))
    def it_asks_for_rest(self, data, seconds):
        leave, counts = self.take(data)
        self.breaker.asked_for_rest(leave, seconds)
        if counts:
            self.opened(min(8.0, max(0.0, seconds)))

    @precondition(lambda self: self.asking)
    @rule(data=st.data())
    def somebody_goes_away(self, data):
        leave, _ = self.take(data)
        self.breaker.given_up(leave)

    def opened(self, pause):
        self.opens_until = self.now + pause
        self.failures = 0
        self.epoch += 1

    @invariant()
    def it_says_what_it_does(self):
        assert self.breaker.is_open == (self.opens_until is not None)
        wait = 0.0 if self.opens_until is None else max(0.0, self.opens_until - self.now)
        assert self.breaker.wait == pytest.approx(wait)
        assert self.breaker.wait <= 8.0 * (1 + 1e-9)  # a sum of floats, less one of them


TestBreaker = Machine.TestCase
TestBreaker.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)


def test_one_of_many_threads_tries_it():
    now = [0.0]
    breaker = Breaker(lambda: now[0], failures=1, pause=1.0)
    leave = breaker.ask()
    assert leave is not None
    breaker.failed(leave)
    now[0] = 2.0
    start = threading.Barrier(8)
    given: list[Leave | None] = []

    def ask():
        start.wait(10)
        given.extend(breaker.ask() for _ in range(200))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(given) == 1_600
    assert [leave.probe for leave in given if leave is not None] == [True]


def test_processes_do_not_come_back_together():
    waits = set()
    for _ in range(50):
        breaker = Breaker(lambda: 0.0, failures=1, pause=1.0)
        leave = breaker.ask()
        assert leave is not None
        breaker.failed(leave)
        waits.add(breaker.wait)
        assert 0.5 <= breaker.wait <= 1.0
    assert len(waits) > 40
