"""A model engine that numbers its batches, and ways from it to a feed that drop, double, delay and reorder."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from contextpilot_rag.engines.feed import CHECK, HELD, PAUSE, RECENT, SOON, Feed
from contextpilot_rag.engines.kv import Batch, Removed, Stored
from contextpilot_rag.engines.steps import Ask, InStep, Lost, Pass, Unanswered

END = object()


def batch(number, life=0, at=True, epoch=None):
    return Batch((Removed((life * 1_000_000 + number,)),), at=life * 10_000.0 + number if at else None, epoch=epoch)


@dataclass
class Heard:
    """What a feed said is to be done."""

    told: list[Any] = field(default_factory=list)  # (number, batch) since the last Lost
    lost: list[str] = field(default_factory=list)
    asks: list[tuple[int, int]] = field(default_factory=list)
    in_step: list[bool] = field(default_factory=list)
    unanswered: int = 0

    def __call__(self, actions):
        for action in actions:
            if isinstance(action, Pass):
                self.told.append((action.number, action.batch))
            elif isinstance(action, Lost):
                self.lost.append(action.why)
                self.told = []
            elif isinstance(action, Ask):
                self.asks.append((action.ask, action.start))
            elif isinstance(action, Unanswered):
                self.unanswered += 1
            else:
                assert isinstance(action, InStep)
                self.in_step.append(action.complete)

    @property
    def numbers(self):
        return [number for number, _ in self.told]


def answer(feed, heard, batches, now=0.0, most=100):
    """Answer all that was asked, from what an engine keeps."""
    while heard.asks and most:
        most -= 1
        ask, start = heard.asks.pop(0)
        for number, one in batches:
            if number >= start:
                heard(feed.replayed(now, ask, number, one))
        heard(feed.replay_over(now, ask))


def following(numbers=range(3), replay=True, **more):
    """A feed that has passed on these."""
    feed, heard = Feed(replay=replay), Heard()
    heard(feed.connected(0.0))
    answer(feed, heard, [])
    for number in numbers:
        heard(feed.live(0.0, number, batch(number, **more)))
    assert heard.numbers == list(numbers)
    return feed, heard


class Ways(RuleBasedStateMachine):
    """Anything may happen to messages; whatever is told is a piece of one life's history, without a hole."""

    replay = True
    stale = False  # messages of an earlier life arrive after a new one has begun
    timed = True
    patience = 10.0

    def __init__(self):
        super().__init__()
        self.now = 0.0
        self.life, self.history, self.keeps = 0, [], 4
        self.alive = self.subscribed = False
        self.live, self.requests, self.replies = [], [], []
        self.feed, self.heard = Feed(replay=self.replay, patience=self.patience), Heard()
        self.connect()

    def do(self, actions):
        self.heard(actions)
        self.requests += self.heard.asks
        self.heard.asks = []

    @rule(count=st.integers(1, 3))
    def publish(self, count):
        for _ in range(count):
            number = len(self.history)
            self.history.append(batch(number, self.life, self.timed))
            if self.subscribed:
                self.live.append((number, self.history[-1]))

    @precondition(lambda self: not self.alive)
    @rule()
    def connect(self):
        self.alive = self.subscribed = True
        self.do(self.feed.connected(self.now))

    @rule(anew=st.booleans())
    @precondition(lambda self: self.alive)
    def disconnect(self, anew):
        self.alive = self.subscribed = False
        self.requests, self.replies = [], []
        if not self.stale:
            self.live = []
        if anew:
            self.life, self.history = self.life + 1, []
        self.do(self.feed.disconnected(self.now))

    @precondition(lambda self: self.live)
    @rule(which=st.integers(0, 2), keep=st.booleans())
    def arrive(self, which, keep):
        which = min(which, len(self.live) - 1)
        number, one = self.live[which]
        if not keep:
            del self.live[which]
        if self.alive or self.stale:
            self.do(self.feed.live(self.now, number, one))

    @precondition(lambda self: self.live)
    @rule(which=st.integers(0, 2))
    def drop(self, which):
        del self.live[min(which, len(self.live) - 1)]

    @precondition(lambda self: self.requests and self.alive)
    @rule()
    def serve(self):
        ask, start = self.requests.pop(0)
        kept = list(enumerate(self.history))[-self.keeps :]
        self.replies += [(ask, number, one) for number, one in kept if number >= start]
        self.replies.append((ask, END, None))

    @precondition(lambda self: self.requests)
    @rule()
    def drop_request(self):
        self.requests.pop(0)

    @precondition(lambda self: self.replies)
    @rule(which=st.sampled_from([0, 0, 0, 1]), keep=st.booleans())
    def reply(self, which, keep):
        which = min(which, len(self.replies) - 1)
        ask, number, one = self.replies[which]
        if not keep:
            del self.replies[which]
        over = number is END
        self.do(self.feed.replay_over(self.now, ask) if over else self.feed.replayed(self.now, ask, number, one))

    @precondition(lambda self: self.replies)
    @rule()
    def drop_reply(self):
        self.replies.pop(0)

    @rule(seconds=st.sampled_from([0.1, SOON, 10.0, PAUSE]))
    def wait(self, seconds):
        self.now += seconds
        if self.alive:
            self.do(self.feed.tick(self.now))

    @rule(keeps=st.integers(1, 8))
    def keep(self, keeps):
        self.keeps = keeps

    @invariant()
    def told_is_a_piece_of_one_life(self):
        if self.stale or not self.timed:
            return
        numbers = self.heard.numbers
        assert numbers == list(range(numbers[0], numbers[0] + len(numbers))) if numbers else True
        lives = {one.events[0].hashes[0] // 1_000_000 for _, one in self.heard.told}
        assert len(lives) <= 1

    @invariant()
    def little_is_held(self):
        assert len(self.feed._recent) <= RECENT
        assert self.feed._weight == sum(1 for _ in self.feed._held)

    def teardown(self):
        """All is well from now on: what is told becomes exact, up to the newest message."""
        if not self.alive:
            self.connect()
        for number, one in self.live:
            self.do(self.feed.live(self.now, number, one))
        self.live = []
        for _ in range(6):
            self.publish(1)
            while self.live or self.requests or self.replies:
                if self.live:
                    self.do(self.feed.live(self.now, *self.live.pop(0)))
                if self.requests:
                    self.serve()
                while self.replies:
                    self.reply(0, False)
            self.now += PAUSE + CHECK
            self.do(self.feed.tick(self.now))
        while self.requests or self.replies:
            if self.requests:
                self.serve()
            if self.replies:
                self.reply(0, False)
        numbers, end = self.heard.numbers, len(self.history)
        assert numbers == list(range(numbers[0], end))
        assert [one for _, one in self.heard.told] == self.history[numbers[0] :]
        assert self.feed.in_step
        assert self.feed.complete is (numbers[0] == 0)


class WaysWithoutReplay(Ways):
    replay = False


class WaysWithLeftovers(Ways):
    """A replay that is not answered leaves nothing to tell leftovers by, so here all are."""

    stale = True
    patience = 1e9

    @precondition(lambda self: False)
    @rule()
    def drop_request(self):
        pass

    @precondition(lambda self: False)
    @rule()
    def drop_reply(self):
        pass


class WaysWithoutTimes(Ways):
    timed = False


for machine in (Ways, WaysWithoutReplay, WaysWithLeftovers, WaysWithoutTimes):
    machine.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestWays = Ways.TestCase
TestWaysWithoutReplay = WaysWithoutReplay.TestCase
TestWaysWithLeftovers = WaysWithLeftovers.TestCase
TestWaysWithoutTimes = WaysWithoutTimes.TestCase


def test_a_gap_is_closed_by_a_replay_and_what_arrived_meanwhile_comes_after_it():
    feed, heard = following()
    heard(feed.live(1.0, 5, batch(5)))
    assert not feed.in_step
    heard(feed.live(1.0, 6, batch(6)))
    assert heard.asks == [(2, 2)]  # once, from the last that it has
    answer(feed, heard, [(number, batch(number)) for number in range(6)])
    assert heard.numbers == list(range(7))
    assert not heard.lost
    assert heard.in_step == [True, True]
    assert feed.counts.gaps == 1


def test_doubled_messages_and_replays_that_overlap_are_told_once():
    feed, heard = following()
    for number in (2, 0, 1):
        heard(feed.live(1.0, number, batch(number)))
    heard(feed.check(1.0))
    answer(feed, heard, [(number, batch(number)) for number in (0, 1, 2, 2, 3, 2, 3)])
    heard(feed.live(1.0, 3, batch(3)))
    assert heard.numbers == [0, 1, 2, 3]
    assert feed.counts.duplicates == 4
    assert feed.counts.restarts == feed.counts.lost == 0


@pytest.mark.parametrize("replay", [True, False])
def test_one_late_message_is_no_restart_also_if_it_is_very_old(replay):
    feed, heard = following(range(RECENT + 10), replay)
    heard(feed.live(1.0, 0, batch(0)))
    assert not heard.lost
    assert not heard.asks


@pytest.mark.parametrize("replay", [True, False])
def test_numbers_that_begin_anew_are_a_restart(replay):
    feed, heard = following(range(6), replay)
    heard(feed.live(1.0, 1, batch(1, life=1)))
    assert len(heard.lost) == 1
    answer(feed, heard, [(number, batch(number, life=1)) for number in range(2)])
    heard(feed.live(1.0, 2, batch(2, life=1)))
    assert heard.numbers == ([0, 1, 2] if replay else [1, 2])
    assert feed.complete is replay
    assert feed.counts.restarts == 1


def test_a_restart_while_nobody_listened_is_seen_even_where_the_numbers_go_on():
    feed, heard = following(range(3))
    heard(feed.disconnected(1.0))
    heard(feed.connected(2.0))
    heard(feed.live(2.0, 3, batch(3, life=1)))
    assert heard.numbers == [0, 1, 2]  # nothing until it is clear whether it is the same engine
    answer(feed, heard, [(number, batch(number, life=1)) for number in range(4)])
    assert [one for _, one in heard.told] == [batch(number, life=1) for number in range(4)]
    assert feed.counts.restarts == 1


def test_a_restart_of_an_engine_that_has_published_nothing_yet_is_seen_by_the_next_check():
    feed, heard = following(range(3))
    heard(feed.tick(CHECK + 1))
    answer(feed, heard, [])
    assert len(heard.lost) == 1
    assert feed.in_step
    assert feed.complete


def test_a_short_break_of_the_connection_costs_nothing():
    feed, heard = following(range(3))
    heard(feed.disconnected(1.0))
    heard(feed.connected(2.0))
    answer(feed, heard, [(number, batch(number)) for number in range(5)])
    assert heard.numbers == [0, 1, 2, 3, 4]
    assert not heard.lost


def test_a_break_of_the_connection_without_replays_loses_all():
    feed, heard = following(range(3), replay=False)
    heard(feed.disconnected(1.0))
    assert len(heard.lost) == 1
    heard(feed.connected(2.0))
    heard(feed.live(3.0, 9, batch(9)))
    assert heard.numbers == [9]
    assert feed.in_step
    assert not feed.complete


def test_a_last_message_that_was_dropped_is_fetched_after_a_while():
    feed, heard = following(range(3))
    heard(feed.tick(CHECK / 2))
    assert not heard.asks
    heard(feed.tick(CHECK))
    answer(feed, heard, [(number, batch(number)) for number in range(4)])
    assert heard.numbers == [0, 1, 2, 3]


def test_what_is_not_kept_any_more_is_lost_and_the_rest_is_told():
    feed, heard = following(range(3))
    heard(feed.live(1.0, 9, batch(9)))
    answer(feed, heard, [(number, batch(number)) for number in range(5, 9)])
    assert len(heard.lost) == 1
    assert heard.numbers == [5, 6, 7, 8, 9]


def test_a_replay_without_answer_is_said_once_and_left_alone_for_a_while():
    feed, heard = following(range(3))
    heard(feed.live(1.0, 9, batch(9)))
    heard(feed.tick(5.0))
    assert heard.numbers == [0, 1, 2]
    heard(feed.tick(12.0))
    assert (heard.unanswered, heard.numbers, len(heard.lost), len(heard.asks)) == (1, [9], 1, 1)
    heard(feed.live(13.0, 11, batch(11)))
    assert (heard.numbers, len(heard.lost), len(heard.asks)) == ([11], 2, 1)
    heard(feed.live(12.0 + PAUSE, 13, batch(13)))
    assert len(heard.asks) == 2


def test_a_check_without_answer_loses_nothing():
    feed, heard = following(range(3))
    heard(feed.tick(CHECK))
    heard(feed.tick(CHECK + 10))
    assert heard.unanswered == 1
    assert not heard.lost
    assert feed.in_step


def test_a_replay_that_breaks_off_is_asked_for_from_where_it_was():
    feed, heard = following(range(3))
    heard(feed.live(1.0, 9, batch(9)))
    ask, _ = heard.asks.pop()
    for number in range(2, 6):
        heard(feed.replayed(1.0, ask, number, batch(number)))
    heard(feed.tick(20.0))
    assert heard.asks == [(ask + 1, 5)]
    answer(feed, heard, [(number, batch(number)) for number in range(9)], 20.0)
    assert heard.numbers == list(range(10))
    assert not heard.lost


def test_an_engine_that_keeps_nothing_is_not_asked_for_ever():
    feed, heard = following(range(0))
    heard(feed.live(1.0, 5, batch(5)))
    answer(feed, heard, [])
    heard(feed.live(1.0, 6, batch(6)))
    assert heard.numbers == [5, 6]
    assert feed.counts.replays < 6


def test_another_epoch_is_a_restart_whatever_the_number():
    feed, heard = following(range(3), epoch="a")
    heard(feed.live(1.0, 3, batch(3, epoch="b")))
    assert len(heard.lost) == 1


def test_a_message_that_is_not_understood_is_a_hole():
    feed, heard = following(range(3))
    heard(feed.live(1.0, 3, None))
    heard(feed.live(1.0, 4, None))
    heard(feed.live(1.0, 5, batch(5)))
    assert len(heard.lost) == 1  # after the first there was nothing more to lose
    assert heard.numbers == [5]


def test_what_is_held_is_bounded_and_what_did_not_fit_is_fetched():
    feed, heard = following(range(3))
    for number in range(4, HELD + 100):
        heard(feed.live(1.0, number, batch(number)))
    assert len(feed._held) == HELD
    answer(feed, heard, [(number, batch(number)) for number in range(5)], most=1)
    answer(feed, heard, [(number, batch(number)) for number in range(HELD + 100)])
    assert feed.counts.replays == 3
    assert heard.numbers == list(range(HELD + 100))
    assert not heard.lost


def test_what_is_held_is_bounded_in_tokens(monkeypatch):
    monkeypatch.setattr("contextpilot_rag.engines.feed.HELD_TOKENS", 100)
    feed, heard = following(range(3))
    long = Batch((Stored((7,), None, tuple(range(40)), 40),))
    for number in range(4, 10):
        heard(feed.live(1.0, number, long))
    assert len(feed._held) == 2
    answer(
        feed, heard, [*((number, batch(number)) for number in range(4)), *((number, long) for number in range(4, 10))]
    )
    assert heard.numbers == list(range(10))


def test_answers_to_an_earlier_replay_are_left_alone():
    feed, heard = following(range(3))
    heard(feed.live(1.0, 9, batch(9)))
    ask, _ = heard.asks.pop()
    heard(feed.disconnected(2.0))
    heard(feed.connected(3.0))
    assert not feed.replayed(3.0, ask, 3, batch(3))
    assert not feed.replay_over(3.0, ask)
    assert feed.asking == ask + 1
