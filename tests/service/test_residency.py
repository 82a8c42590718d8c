"""When trees are emptied: when no engine has anything any more, as told, and only then. Compared with a plain model."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from contextpilot_rag.engines.engine import Engine, EngineFacts
from contextpilot_rag.engines.kv import Cleared, Removed, Stored
from contextpilot_rag.service.handover import Empty, Forgetting
from contextpilot_rag.service.residency import Residency
from contextpilot_rag.types import Namespace

ENGINES = tuple(
    Engine(f"http://{name}:1", name=name, events=f"tcp://{name}:2", ranks=ranks) for name, ranks in (("a", 1), ("b", 2))
)
HOLDERS = [("a", 0), ("b", 0), ("b", 1)]


@dataclass
class Taken:
    """In place of a handover."""

    steps: list[object] = field(default_factory=list)
    sizes: list[object] = field(default_factory=list)

    def put(self, steps):
        self.steps += steps

    def sized(self, *size):
        self.sizes.append(size)

    @property
    def emptied(self):
        return sum(isinstance(step, Empty) for step in self.steps)


def stored(number):
    return Stored((number,), None, (number, number + 1), 2)


class Model:
    """What each rank may have, in plain words: None: it is not known; True or False: whether there is something."""

    def __init__(self):
        self.has = dict.fromkeys(HOLDERS)
        self.caught, self.told, self.dead = set(), set(), set()

    def empty(self):
        return all(
            name in self.dead or (self.has[name, rank] is False and (name, rank) in self.caught)
            for name, rank in HOLDERS
        )

    def step(self, what, holder):
        """Whether all is empty now, and that is new."""
        name = holder[0]
        if what == "store":
            self.told.add(holder)
            self.has[holder] = True
        elif what == "clear":
            self.told.add(holder)
            new, self.has[holder] = self.has[holder] is not False, False
            return new and self.empty()
        elif what == "lost":
            if holder not in self.told:
                return False
            self.told.discard(holder)
            new, self.has[holder] = self.has[holder] is not False, False
            return new and self.empty()
        elif what == "flow":
            if holder not in self.caught:
                self.caught.add(holder)
                return self.has[holder] is False and self.empty()
        elif what == "die" and name not in self.dead:
            self.dead.add(name)
            self._unknown(name)
            return self.empty()
        elif what == "live" and name in self.dead:
            self.dead.discard(name)
            self._unknown(name)
        return False

    def _unknown(self, name):
        for other in HOLDERS:
            if other[0] == name:
                self.has[other] = None
                self.told.discard(other)
                self.caught.discard(other)  # it is asked to tell its past again


def do(residency, what, holder, number=0):
    name, rank = holder
    if what == "store":
        residency.events(name, rank, [stored(number)])
    elif what == "clear":
        residency.events(name, rank, [Cleared()])
    elif what == "lost":
        residency.lost(name, rank, "why")
    elif what == "flow":
        residency.flowing(name, rank)
    else:
        residency.alive(name, what == "live")


@given(
    st.lists(
        st.tuples(st.sampled_from(["store", "clear", "lost", "flow", "die", "live"]), st.sampled_from(HOLDERS)),
        max_size=40,
    )
)
def test_trees_are_emptied_when_nobody_has_anything(steps):
    taken, model = Taken(), Model()
    residency = Residency(ENGINES, taken, lambda: 0.0)
    for number, (what, holder) in enumerate(steps):
        before = taken.emptied
        expected = model.step(what, holder)
        do(residency, what, holder, 10 * number)
        assert taken.emptied - before == expected, (number, what, holder)


def test_within_one_message_what_is_stored_after_a_clearing_is_there():
    taken = Taken()
    residency = Residency(ENGINES[:1], taken, lambda: 0.0)
    residency.flowing("a", 0)
    residency.events("a", 0, [stored(1), Cleared(), stored(3), Removed((9,)), Cleared(), stored(5)])
    assert taken.emptied == 2
    residency.events("a", 0, [Cleared(), Cleared()])
    assert taken.emptied == 3


def test_who_told_all_it_did_and_did_nothing_has_nothing():
    for complete in (True, False):
        taken = Taken()
        residency = Residency(ENGINES[:1], taken, lambda: 0.0, complete=lambda _, complete=complete: complete)
        residency.flowing("a", 0)
        assert taken.emptied == complete
        told = Residency(ENGINES[:1], taken, lambda: 0.0, complete=lambda _: True)
        told.events("a", 0, [stored(1)])
        told.flowing("a", 0)
        assert taken.emptied == complete


def test_sizes_are_those_of_all_that_answer_and_told_when_they_change():
    taken = Taken()
    residency = Residency(ENGINES, taken, lambda: 0.0)
    residency.facts("a", EngineFacts(capacity_tokens=1_000, block_size=16))
    assert taken.sizes == [(None, 16)], "of the other nothing is known"
    residency.facts("b", EngineFacts(capacity_tokens=500, block_size=32))
    residency.facts("b", EngineFacts(capacity_tokens=500, block_size=32))
    assert taken.sizes[1:] == [(1_500, 32)]
    for name in "ab":
        residency.level(name, "events")
    assert taken.sizes[2:] == [(3_000, 32)]
    residency.alive("b", False)
    assert taken.sizes[3:] == [(2_000, 16)]
    residency.alive("a", False)
    assert taken.sizes[4:] == [], "nobody is there, and nothing new is known"


def test_a_capacity_that_was_set_stays():
    taken = Taken()
    residency = Residency(ENGINES[:1], taken, lambda: 0.0, capacity_tokens=77)
    residency.facts("a", EngineFacts(capacity_tokens=1_000, block_size=16))
    assert taken.sizes == [(77, 16)]


def test_what_clients_call_engines():
    residency = Residency(ENGINES, Taken(), lambda: 0.0)
    assert [residency.called(name) for name in ("a", "b", "c", None)] == ["a", "b", None, None]
    only = Residency(ENGINES[:1], Taken(), lambda: 0.0)
    assert [only.called(name) for name in ("a", "theirs", None)] == ["a", "a", "a"]


def test_forgetting_is_handed_over_after_it_is_done():
    taken = Taken()
    residency = Residency(ENGINES, taken, lambda: 0.0)
    forgetting = Forgetting("tenant", "acme", Namespace())
    residency.forget(forgetting)
    assert taken.steps == [forgetting]
