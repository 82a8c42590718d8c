"""Where a request goes, and what engines have to do: against slow and obvious ways to say the same."""

from __future__ import annotations

import random
from statistics import median_low

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from contextpilot_rag.engines.choice import (
    BALANCE,
    BOUND,
    RAMP_REQUESTS,
    SLACK,
    UNCACHED,
    Joining,
    Standing,
    choose,
    welcoming,
)
from contextpilot_rag.engines.loads import BESIDE_TOKENS, Loads

tokens = st.integers(0, 5_000)
joinings = st.builds(Joining, st.integers(0, 2 * RAMP_REQUESTS), tokens, tokens)
standings = st.builds(Standing, tokens, tokens, st.none() | joinings)


@given(st.lists(st.tuples(standings, st.floats(0, 1)), min_size=1, max_size=6), st.integers(0, 3_000), tokens)
def test_the_cheapest_wins_and_nobody_is_asked_in_vain(engines, size, usual):
    given_standings = [standing for standing, _ in engines]
    missing = [share * size for _, share in engines]
    mean = sum(standing.recent for standing in given_standings) / len(engines)
    asked = []

    def uncached(place):
        asked.append(place)
        return missing[place]

    def cost(place):
        skew = min(1.0, (given_standings[place].recent - mean) / (mean + SLACK * max(size, usual) or 1))
        return given_standings[place].queue + BALANCE * size * skew + UNCACHED * missing[place]

    chosen, own = choose(given_standings, size, uncached, usual)
    allowed = welcoming(given_standings, max(size, usual))
    assert chosen == min(allowed, key=lambda place: (cost(place), given_standings[place].recent, place))
    assert own == missing[chosen]
    assert len(asked) == len(set(asked))
    assert set(asked) <= set(allowed)


@given(st.lists(standings, max_size=6), st.integers(0, 3_000))
def test_whoever_was_given_too_much_is_passed_over_unless_all_were(engines, size):
    mean = sum(standing.recent for standing in engines) / max(1, len(engines))

    def full(standing):
        joining = standing.joining
        if standing.recent > BOUND * mean + SLACK * size:
            return True
        if joining is None or joining.requests >= RAMP_REQUESTS:
            return False
        level = 0.5 + 0.5 * joining.requests / RAMP_REQUESTS
        return joining.given > level * joining.fair + SLACK * size

    free = [place for place, standing in enumerate(engines) if not full(standing)]
    assert welcoming(engines, size) == (free or list(range(len(engines))))


def test_a_prefix_that_is_elsewhere_is_left_only_for_a_much_shorter_queue():
    warm_has = [100, 1_000]
    assert choose([Standing(), Standing()], 1_000, warm_has.__getitem__)[0] == 0
    assert choose([Standing(queue=2_600), Standing()], 1_000, warm_has.__getitem__)[0] == 0
    assert choose([Standing(queue=2_800), Standing()], 1_000, warm_has.__getitem__)[0] == 1


def test_of_equal_ones_the_one_that_was_given_less_then_the_first():
    assert choose([Standing(recent=10), Standing(recent=5), Standing(recent=5)], 0, lambda _: 0)[0] == 1
    assert choose([Standing(), Standing()], 100, lambda _: 100)[0] == 0


def test_one_that_would_lose_in_any_case_is_not_searched():
    asked = []
    choose([Standing(), Standing(queue=10_000)], 1_000, lambda place: asked.append(place) or 1_000)
    assert asked == [0]


class LoadsMachine(RuleBasedStateMachine):
    """`Loads` against a list that is read from the start each time."""

    ENGINES = ("a", "b", "c")

    def __init__(self):
        super().__init__()
        self.now = 0.0
        self.loads = Loads(lambda: self.now, load_seconds=10, max_open=8)
        self.here = set()
        self.open = []  # (engine, key, tokens, at)
        self.costs = []

    def sweep(self):
        self.open = [one for one in self.open if one[3] > self.now - 10][-8:]

    @rule(engine=st.sampled_from(ENGINES), late=st.booleans())
    def join(self, engine, late):
        if engine not in self.here:
            self.here.add(engine)
            self.loads.join(engine, late=late)

    @rule(engine=st.sampled_from(ENGINES))
    def leave(self, engine):
        self.here.discard(engine)
        self.loads.leave(engine)
        self.open = [one for one in self.open if one[0] != engine]

    @precondition(lambda self: self.here)
    @rule(data=st.data(), late=st.booleans())
    def away_and_back(self, data, late):
        engine = data.draw(st.sampled_from(sorted(self.here)))
        self.loads.away(engine)
        self.open = [one for one in self.open if one[0] != engine]
        if late:
            self.loads.join(engine, late=True)

    @rule(tokens=st.integers(0, 1_000))
    def cost(self, tokens):
        self.costs.append(tokens)
        self.loads.cost(tokens)

    @precondition(lambda self: self.here)
    @rule(data=st.data(), key=st.integers(0, 3), size=st.integers(0, 1_000))
    def take(self, data, key, size):
        engine = data.draw(st.sampled_from(sorted(self.here)))
        self.open.append((engine, key, size, self.now))
        self.sweep()
        self.loads.take(engine, key, size)

    @rule(key=st.integers(0, 3), engine=st.none() | st.sampled_from(ENGINES))
    def give_back(self, key, engine):
        found = next((one for one in self.open if one[1] == key and engine in {None, one[0]}), None)
        assert self.loads.give_back(key, engine) == (found and found[0])
        if found:
            self.open.remove(found)

    @rule(seconds=st.sampled_from([0.5, 3, 11]))
    def wait(self, seconds):
        self.now += seconds
        self.sweep()
        self.loads.sweep()

    @rule()
    def fork(self):
        self.loads.clear()
        self.open.clear()

    @invariant()
    def what_is_open_is_counted(self):
        assert len(self.loads) == len(self.open)
        for engine in self.ENGINES:
            expected = sum(size for name, _, size, _ in self.open if name == engine)
            assert self.loads.outstanding(engine) == expected
            number = sum(name == engine for name, _, _, _ in self.open)
            beside = max(BESIDE_TOKENS, median_low(self.costs[-32:])) if self.costs else BESIDE_TOKENS
            assert self.loads.standing(engine).queue == expected + number * beside


TestLoads = LoadsMachine.TestCase
TestLoads.settings = settings(stateful_step_count=80)


def test_nothing_leaks_where_nobody_ever_reports():
    now = [0.0]
    loads = Loads(lambda: now[0], load_seconds=60, max_open=500)
    loads.join("a")
    for number in range(5_000):
        now[0] += 0.1
        loads.take("a", number, 10)
        assert len(loads) <= 500
        assert len(loads._books["a"].open) <= 500
        assert len(loads._by_age) <= 1_500
    assert loads.expired == 5_000 - len(loads)
    now[0] += 100
    loads.sweep()
    assert (loads.standing("a").queue, len(loads._by_age)) == (0, 0)


def test_answered_requests_behind_one_that_never_is_are_let_go():
    loads = Loads(lambda: 0.0)
    loads.join("a")
    loads.take("a", "never", 10)
    for number in range(10_000):
        loads.take("a", number, 10)
        loads.give_back(number)
    assert len(loads) == 1
    assert len(loads._by_age) < 1_100


def test_what_went_somewhere_long_ago_counts_less():
    loads = Loads(lambda: 0.0)
    for engine in "ab":
        loads.join(engine)
    for number in range(300):
        loads.take("a", number, 1_000)
    for number in range(300):
        loads.take("b", number, 1_000)
    assert 3 < loads.standing("b").recent / loads.standing("a").recent < 6  # e ** 1.5 = 4.5
    for number in range(200_000):  # the scale is taken back, which changes nothing
        loads.note("ab"[number % 2], 1_000)
    assert 0.98 < loads.standing("a").recent / loads.standing("b").recent < 1.02
    assert loads._scale < 1e101


def test_one_that_joins_late_begins_with_the_mean_and_is_ramped():
    loads = Loads(lambda: 0.0)
    loads.join("a")
    for number in range(100):
        loads.take("a", number, 1_000)
    loads.join("b", late=True)
    assert loads.standing("b").recent == loads.standing("a").recent
    loads.take("a", "next", 4_000)
    loads.take("b", "next", 500)
    assert loads.standing("b").joining == Joining(1, 532, 2_282)
    assert loads.standing("a").joining is None
    for number in range(RAMP_REQUESTS):
        loads.take("b", number, 10)
    assert loads.standing("b").joining is None


def test_the_engines_own_queue_counts_where_it_is_not_ours_and_not_for_long():
    now = [0.0]
    loads = Loads(lambda: now[0])
    loads.join("a")
    loads.take("a", 1, 1_000)
    loads.told("a", running=1, waiting=3)
    assert loads.standing("a").queue == 4 * 1_032
    loads.told("a", running=0, waiting=1)
    assert loads.standing("a").queue == 1_032
    loads.told("a", running=None, waiting=None)  # says nothing: what was said stands
    loads.told("a", running=8, waiting=0)
    assert loads.standing("a").queue == 1_032
    loads.told("a", running=8, waiting=9)
    now[0] += 31
    assert loads.standing("a").queue == 1_032
    loads.told("gone", 1, 1)


def test_engines_that_are_not_known_take_nothing():
    loads = Loads(lambda: 0.0)
    loads.take("gone", 1, 100)
    loads.note("gone", 100)
    assert (len(loads), loads.give_back(1), loads.standing("gone")) == (0, None, Standing())


def test_cold_requests_are_spread_evenly():
    loads, numbers = Loads(lambda: 0.0), random.Random(0)
    names = "abcd"
    for engine in names:
        loads.join(engine)
    went = []
    for number in range(400):
        size = numbers.randrange(500, 1_500)
        place, missing = choose([loads.standing(name) for name in names], size, lambda _, size=size: size)
        loads.take(names[place], number, missing)
        loads.give_back(number)
        went.append(place)
    assert all(85 <= went.count(place) <= 115 for place in range(4))


def test_a_request_costs_something_though_all_of_it_is_cached():
    loads, numbers = Loads(lambda: 0.0), random.Random(0)
    names = "abc"
    for engine in names:
        loads.join(engine)
    went, has = [], {0}
    for number in range(300):  # all of it is where it was sent before, and none was answered yet
        standings = [loads.standing(name) for name in names]
        place, missing = choose(standings, 300, lambda place: 300 * (place not in has), loads.usual)
        loads.take(names[place], number, missing)
        has.add(place)
        went.append(place)
    assert went[:10] == [0] * 10
    assert min(went.count(place) for place in range(3)) > 80
    loads.clear()
    for number in range(300):  # questions alone, each answered at once
        place, missing = choose([loads.standing(name) for name in names], 0, lambda _: 0, loads.usual)
        loads.take(names[place], number, missing)
        loads.give_back(number)
        loads.cost(numbers.randrange(50, 80))
        went.append(place)
    assert all(went[300:].count(place) >= 80 for place in range(3))


def test_what_a_request_costs_beside_its_blocks_is_as_most_reports_say():
    loads = Loads(lambda: 0.0)
    loads.join("a")
    loads.take("a", 1, 0)
    for tokens in (500, 10**9, 480):
        loads.cost(tokens)
    assert loads.standing("a").queue == 500
    for _ in range(32):
        loads.cost(3)
    assert loads.standing("a").queue == BESIDE_TOKENS


def test_where_all_are_away_all_are_tried_equally_often():
    loads = Loads(lambda: 0.0)
    for engine in "abc":
        loads.join(engine)
    for number in range(200):
        loads.take("ab"[number % 2], number, 1_000)
    loads.away("c")
    loads.away("a")
    for number in range(100):
        loads.take("b", number, 1_000)
    loads.away("b")
    loads.away("gone")
    assert len(loads) == 0
    assert len({loads.standing(engine).recent for engine in "abc"}) == 1
    went = []
    for number in range(60):
        place, missing = choose([loads.standing(name) for name in "abc"], 500, lambda _: 500, loads.usual)
        loads.take("abc"[place], (number, "tried"), missing)
        loads.give_back((number, "tried"))
        went.append(place)
    assert [went.count(place) for place in range(3)] == [20, 20, 20]
    loads.join("c", late=True)
    assert loads.standing("c").joining == Joining(0, 0, 0)


def test_of_one_that_leaves_no_request_is_looked_at():
    loads = Loads(lambda: 0.0)
    for engine in "ab":
        loads.join(engine)
    for number in range(4_000):
        loads.take("ab"[number % 2], "the same", number)
    requests = loads._books["a"].open["the same"].copy()
    loads.leave("a")
    assert len(loads) == 2_000
    assert not any(request.closed for request in requests)  # one by one, that took seconds
    assert [loads.give_back("the same") for _ in range(2_001)] == ["b"] * 2_000 + [None]
    loads.sweep()
    assert len(loads._by_age) < 1_100
