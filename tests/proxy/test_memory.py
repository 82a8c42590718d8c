"""What was decided is remembered, and no more of it than may be."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from contextpilot_rag.proxy.memory import Decision, Memory

from .explicitly import Clock


def test_the_one_used_longest_ago_goes():
    memory = Memory(2, 10.0, Clock())
    for key in (b"a", b"b"):
        memory.put(key, Decision(engine=key.decode()))
    assert memory.get(b"a") == Decision(engine="a")
    memory.put(b"c", Decision())
    assert (memory.get(b"b"), memory.get(b"a"), len(memory)) == (None, Decision(engine="a"), 2)


def test_what_was_not_used_for_long_goes():
    clock = Clock()
    memory = Memory(10, 10.0, clock)
    memory.put(b"a", Decision())
    memory.put(b"b", Decision())
    clock.now = 8.0
    assert memory.get(b"b") is not None
    clock.now = 12.0
    assert memory.get(b"a") is None
    clock.now = 18.5
    memory.put(b"c", Decision())
    assert len(memory) == 1


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 400), st.booleans())))
def test_decisions_about_many_blocks_count_as_several(steps):
    memory = Memory(10, 1.0, Clock())
    for name, blocks, put in steps:
        key = bytes([name])
        if put:
            memory.put(key, Decision(tuple(range(blocks))))
            held = [memory.get(bytes([one])) for one in range(6)]
            assert sum(len(one.order) for one in held if one is not None) <= 10 * 32
            assert (memory.get(key) is not None) is (1 + blocks // 32 <= 10)
        else:
            memory.get(key)
    for name in range(6):
        memory.put(bytes([name]), Decision())
    assert len(memory) == 6


class Told:
    """Keeps what it is told."""

    def __init__(self):
        self.all = []

    def told(self, tenant, key, decision):
        self.all.append((tenant, key, decision))


def test_what_the_log_has_first_stays_for_all_and_what_was_only_decided_here_yields():
    memory = Memory(10, 10.0, Clock())
    here, there = Decision((0, 1)), Decision((1, 0))
    memory.put(b"a", here)
    assert memory.settled(b"a") is None
    memory.take(b"a", there)
    memory.take(b"a", here)
    assert memory.get(b"a") == there
    memory.put(b"b", here)
    memory.take(b"b", here)
    memory.take(b"b", there)
    assert (memory.get(b"b"), memory.settled(b"b")) == (here, (here, 0.0))


def test_a_conversation_is_where_it_was_said_to_be_last_whatever_its_order():
    memory = Memory(10, 10.0, Clock())
    for decision in (Decision(engine="a"), Decision((1, 0), "b", 1), Decision((0, 1), "c"), Decision(engine="d")):
        memory.take(b"k", decision)
    assert memory.get(b"k") == Decision((1, 0), "d", 1)


def test_only_what_is_new_is_told_and_once_more_what_is_used_for_long():
    clock = Clock()
    memory, teller = Memory(10, 100.0, clock), Told()
    memory.teller = teller
    for decision in (Decision((1, 0)), Decision((1, 0)), Decision((1, 0), "a")):
        memory.put(b"k", decision, "t")
    assert teller.all == [("t", b"k", Decision((1, 0))), ("t", b"k", Decision((1, 0), "a"))]
    clock.now = 20.0
    memory.put(b"k", Decision((1, 0), "a"), "t")
    clock.now = 30.0
    memory.put(b"k", Decision((1, 0), "a"), "t")
    assert len(teller.all) == 3


def test_the_same_key_of_two_tenants_is_two():
    memory = Memory(10, 10.0, Clock())
    memory.take(b"k", Decision((1, 0)), "a")
    assert memory.get(b"k", "b") is None
    memory.put(b"k", Decision((0, 1)), "b")
    memory.forget_all("a")
    assert (memory.get(b"k", "a"), memory.get(b"k", "b")) == (None, Decision((0, 1)))


def test_what_is_on_its_way_to_the_log_is_not_forgotten_with_what_the_log_had():
    memory = Memory(10, 10.0, Clock())
    memory.take(b"had", Decision((1, 0)))
    memory.put(b"new", Decision((1, 0)))
    memory.take(b"stray", Decision((1, 0)), stray=True)
    for key in (b"had", b"new", b"stray"):
        memory.forget(key, stray=False)
    assert [memory.get(key) is not None for key in (b"had", b"new", b"stray")] == [False, True, True]
    memory.take(b"stray", Decision((0, 1)))  # it is one that may yield again
    assert memory.get(b"stray") == Decision((0, 1))


def test_what_others_remember_keeps_its_age():
    clock = Clock()
    memory = Memory(10, 10.0, clock)
    memory.restore(b"k", Decision((1, 0)), 8.0)
    assert memory.settled(b"k") == (Decision((1, 0)), 8.0)
    clock.now = 3.0
    assert memory.settled(b"k") is None
    assert memory.get(b"k") is None


@given(st.lists(st.tuples(st.integers(0, 3), st.permutations(range(3)), st.sampled_from(["put", "take"]))))
def test_whoever_reads_the_same_log_has_the_same_orders(steps):
    """Two replicas that decide and read in any order agree on each key once both have read all."""
    replicas = [Memory(100, 10.0, Clock()) for _ in range(2)]
    log, read = [], [0, 0]
    for place, (name, order, step) in enumerate(steps):
        which = place % 2
        if step == "put" and replicas[which].get(bytes([name])) is None:
            decision = Decision(tuple(order))
            replicas[which].put(bytes([name]), decision)
            log.append((bytes([name]), decision))
        elif read[which] < len(log):
            replicas[which].take(*log[read[which]])
            read[which] += 1
    for replica, position in zip(replicas, read, strict=True):
        for key, decision in log[position:]:
            replica.take(key, decision)
    for name in range(4):
        one, other = (replica.get(bytes([name])) for replica in replicas)
        assert one == other
