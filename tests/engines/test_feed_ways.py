"""A model engine that numbers its batches, and ways from it to a feed that drop, double, delay and reorder."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from contextpilot_rag.engines.feed import CHECK, PAUSE, RECENT, SOON, Feed
from contextpilot_rag.engines.marks import weight
from tests.engines.feeding import Heard, batch

END = object()


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
        assert self.feed._weight == sum(map(weight, self.feed._held.values()))

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
