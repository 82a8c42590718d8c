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
