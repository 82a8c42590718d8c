"""Mirrors follow caches exactly: whatever is asked, evicted, cleared and delayed."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from contextpilot_rag.engines.kv import Cleared
from tests.engines.world import Machine, World, prompt

keys = st.lists(st.integers(0, 6), unique=True, max_size=4)
spaces = st.sampled_from([("one", None), ("two", None), ("acme", "s-acme"), ("other", "s-other")])


class MirrorMachine(RuleBasedStateMachine):
    """Two engines behind one mirror. Whenever all that they told has arrived, and all prompts are covered, it fits."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting = []

    @initialize(capacity=st.integers(18, 60), engines=st.integers(1, 2))
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

    @rule(which=st.integers(0, 1), most=st.integers(1, 6))
    def deliver(self, which, most):
        self.world.deliver(self.machine(which), most)

    @precondition(lambda self: self.waiting)
    @rule(how=st.integers(0, 2), short=st.integers(0, 2))
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
