"""Mirrors follow caches exactly: whatever is asked, evicted, cleared and delayed."""

from __future__ import annotations

import random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from tests.engines.world import SIZE, Machine, Prompt, World, prompt
from tests.resident import resident_tokens

keys = st.lists(st.integers(0, 6), unique=True, max_size=4)
spaces = st.sampled_from([("one", None), ("two", None), ("acme", "s-acme"), ("other", "s-other")])


class MirrorMachine(RuleBasedStateMachine):
    """Two engines behind one mirror. Whenever all that they told has arrived, and all prompts are covered, it fits."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting: list[tuple[Prompt, Machine, int]] = []

    @initialize(capacity=st.sampled_from([18, 20, 25, 60]), engines=st.integers(1, 2))
    def begin(self, capacity, engines):
        self.world = World(*(Machine(f"engine-{number}", capacity) for number in range(engines)))

    def machine(self, which):
        return self.world.machines[which % len(self.world.machines)]

    @rule(
        keys=keys,
        space=spaces,
        question=st.integers(0, 3),
        head=st.sampled_from([6, 6, 6, 3, 9]),
        which=st.integers(0, 1),
        at_once=st.booleans(),
    )
    def ask(self, keys, space, question, head, which, at_once):
        one, machine = prompt(keys, *space, question, head), self.machine(which)
        cached = self.world.ask(one, machine)
        self.waiting.append((one, machine, cached))
        if at_once:
            self.settle(how=2)

    @rule(which=st.integers(0, 1), most=st.sampled_from([1, 2, 5, 100]))
    def deliver(self, which, most):
        self.world.deliver(self.machine(which), most)

    @precondition(lambda self: self.waiting)
    @rule(how=st.integers(0, 2), short=st.sampled_from([0, 0, 1, 2, 6]))
    def cover(self, how, short):
        one, machine, cached = self.waiting.pop(0)
        self.world.cover(one, machine if how else None, cached if how == 2 else None, short)

    @rule(which=st.integers(0, 1))
    def clear(self, which):
        self.machine(which).cache.clear()

    @rule(how=st.integers(0, 2))
    def settle(self, how):
        while self.waiting:
            self.cover(how, 0)
        for machine in self.world.machines:
            self.world.deliver(machine)
        self.world.check()

    def teardown(self):
        if hasattr(self, "world"):
            self.settle(0)
            assert self.world.mirror.counts().ignored == 0


TestMirrorMachine = MirrorMachine.TestCase
TestMirrorMachine.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)


def settled(world, machine, one):
    cached = world.ask(one, machine)
    world.deliver(machine)
    world.cover(one, machine, cached)
    return cached


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("reports", [True, False])
def test_who_listens_late_catches_up(seed, reports):
    numbers = random.Random(seed)
    world = World(machine := Machine("late", numbers.choice([30, 60])))

    def any_prompt(question):
        return prompt(numbers.sample(range(7), 3), question=question)

    for question in range(30):
        machine.cache.serve(any_prompt(question).tokens)
    machine.told.clear()  # nobody listened
    for question in range(100, 160):
        one = any_prompt(question)
        cached = world.ask(one, machine)
        how = numbers.random() < 0.5
        if how:
            world.deliver(machine)
        world.cover(one, machine, cached if reports else None)
        world.deliver(machine)
        assert resident_tokens(world.mirror, one.covering.keys, SIZE) == machine.has(one) * SIZE
        assert world.mirror.expected(one.space, one.blocks) == one.ends[-1] // SIZE * SIZE
    counts = world.mirror.counts()
    assert 0 < counts.adopted < 30
    assert counts.matched == counts.covered == (60 if reports else 0), (
        "who listens late cannot tell that one is missing"
    )
    machine.cache.clear()
    world.deliver(machine)
    assert world.mirror.counts().kv_blocks == world.mirror.counts().orphans == 0
    for question in range(200, 230):  # a cleared cache is a known one
        settled(world, machine, any_prompt(question))
        world.covered = world.covered[-5:]
        world.check()


@pytest.mark.parametrize("seed", range(5))
def test_after_a_loss_and_a_replay_all_is_known_again(seed):
    numbers = random.Random(seed)
    world = World(machine := Machine("engine", 40))
    everything = []
    for question in range(40):
        one = prompt(numbers.sample(range(7), 3), question=question % 3)
        cached = world.ask(one, machine)
        everything += machine.told
        world.deliver(machine)
        world.cover(one, machine, cached)
        if numbers.random() < 0.2:
            world.follow(world.mirror.lost(machine.holder))
            assert not any(list(tree.paths()) for tree in world.trees.values())
            machine.told[:0] = everything
            world.deliver(machine)
        world.check()


@pytest.mark.parametrize("seed", range(5))
def test_expected_is_what_the_engine_reports(seed):
    numbers = random.Random(seed)
    world, machine = World(), Machine("engine", 60)
    told = known = 0
    for question in range(200):
        one = prompt(numbers.sample(range(6), 3), question=question)
        expected = world.mirror.expected(one.space, one.blocks)
        cached = settled(world, machine, one)
        known += expected is not None
        told += expected == cached
        assert expected is None or expected <= cached <= expected + SIZE
    assert known == 199
    assert told > 150


def test_one_salts_events_never_credit_another():
    world = World(machine := Machine("engine", 500))
    for question in range(20):
        one, other = (prompt((1, 2, question % 5), space, salt, question) for space, salt in (("a", "A"), ("b", "B")))
        world.cover(other, machine)
        settled(world, machine, one)
        world.check()
        assert resident_tokens(world.mirror, other.covering.keys, SIZE) == 0
        assert world.tree("b").blocks == 0
