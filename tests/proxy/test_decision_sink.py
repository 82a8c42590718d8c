"""What a log feeds of a proxy: only what can be true, only of tenants that there are, and only as it is told."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from contextpilot_rag.errors import StateError
from contextpilot_rag.index.records import Forgot
from contextpilot_rag.proxy.decided import Decided, Remembered
from contextpilot_rag.proxy.decision_sink import POOL, DecisionSink, space_of
from contextpilot_rag.proxy.memory import Decision, Memory
from contextpilot_rag.replicas.sink import Arrived
from contextpilot_rag.replicas.space import Space
from contextpilot_rag.types import Namespace

from .explicitly import Clock

KEY, OTHER, THIRD = b"a" * 16, b"b" * 16, b"c" * 16
SPACE = space_of("t")
ONE, TWO = Decision((1, 0), "e", 1), Decision((0, 1))
pack = msgspec.msgpack.Encoder().encode


def opened(tenants=None):
    memory = Memory(1000, 100.0, Clock())
    sink = DecisionSink(memory, lambda: tenants)
    sink.open()
    return memory, sink


def told(*records, own=False):
    return [Arrived(f"w-{number}", record, own) for number, record in enumerate(records)]


def record(key, decision):
    order = None if decision.order is None else list(decision.order)
    return pack(Decided(key, order, decision.engine, decision.cached))


async def apart(call, *args):
    """As the replica's thread calls it."""
    return await asyncio.to_thread(call, *args)


async def test_only_spaces_of_tenants_that_there_are_are_followed():
    _, sink = opened({"t"})
    assert sink.follows(SPACE)
    assert not sink.follows(space_of("other"))
    assert not sink.follows(Space("pilot", Namespace("t")))
    assert not sink.follows(Space(POOL, Namespace("t", "model")))
    assert opened()[1].follows(space_of("whoever"))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff\x00",
        pack(["decided"]),
        pack(["decided", b"short", [0]]),
        pack(["decided", KEY, [0, 0]]),
        pack(["decided", KEY, [1, 2]]),
        pack(["decided", KEY, [1, 0], None, 3]),
        pack(["decided", KEY, [0, -1]]),
        pack(["decided", KEY, [0], "e" * 10_000]),
        pack(["sent", "", [], []]),
    ],
)
async def test_what_cannot_be_true_is_left_out_and_the_rest_is_not(data):
    memory, sink = opened()
    assert await apart(sink.apply, SPACE, told(data, record(OTHER, ONE))) == 1
    assert (memory.get(KEY, "t"), memory.get(OTHER, "t"), len(memory)) == (None, ONE, 1)


async def test_fields_of_a_later_version_are_passed_over():
    memory, sink = opened()
    assert not await apart(sink.apply, SPACE, told(pack(["decided", KEY, [1, 0], "e", 1, "more"])))
    assert memory.get(KEY, "t") == ONE


async def test_a_late_joiner_knows_what_was_dumped_and_nothing_else_but_what_the_log_is_still_to_be_told():
    memory, sink = opened()
    for number in range(450):
        memory.take(number.to_bytes(16, "big"), ONE, "t")
    memory.put(KEY, TWO, "t")  # the log has not had it
    memory.take(KEY, TWO, "u")
    parts = await apart(lambda: list(sink.dump(SPACE)))
    assert len(parts) == 3
    late, its = opened()
    late.take(OTHER, ONE, "t")
    late.put(THIRD, TWO, "t")
    await apart(its.replace, SPACE, parts)
    assert len(late) == 451
    assert (late.get(KEY, "t"), late.get(OTHER, "t"), late.get(THIRD, "t")) == (None, None, TWO)
    assert late.settled((7).to_bytes(16, "big"), "t") == (ONE, 0.0)


@pytest.mark.parametrize("part", [b"", pack(["trees"]), pack(Remembered([(Decided(KEY, [0, 0]), 1)]))])
async def test_a_snapshot_that_cannot_be_true_changes_nothing(part):
    memory, sink = opened()
    memory.take(KEY, ONE, "t")
    good = pack(Remembered([(Decided(OTHER, [0]), 1)]))
    with pytest.raises(StateError):
        await apart(sink.replace, SPACE, [good, part])
    assert (memory.get(KEY, "t"), memory.get(OTHER, "t")) == (ONE, None)


async def test_what_others_forget_goes_but_what_was_decided_here_since():
    memory, sink = opened()
    memory.take(KEY, ONE, "t")
    memory.put(OTHER, TWO, "t")
    await apart(sink.apply, SPACE, told(pack(Forgot()), record(THIRD, ONE)))
    assert [memory.get(key, "t") for key in (KEY, OTHER, THIRD)] == [None, TWO, ONE]


async def test_what_comes_before_an_own_record_that_forgets_is_not_taken_in():
    memory, sink = opened()
    sink.bar(SPACE, "w-1")
    await apart(sink.apply, SPACE, told(record(KEY, ONE), pack(Forgot()), record(OTHER, TWO)))
    assert [memory.get(key, "t") for key in (KEY, OTHER)] == [None, TWO]
    sink.bar(SPACE, "lost")
    await apart(sink.included, SPACE, ["lost"])
    await apart(sink.apply, SPACE, told(record(KEY, ONE)))
    assert memory.get(KEY, "t") == ONE


async def test_a_tenant_that_was_gone_and_is_back_is_heard():
    tenants = {"t"}
    memory, sink = opened(tenants)
    sink.bar(SPACE, "w-9")
    tenants.clear()
    assert not sink.follows(SPACE)
    tenants.add("t")
    await apart(sink.apply, SPACE, told(record(KEY, ONE)))
    assert memory.get(KEY, "t") == ONE


async def test_what_was_taken_in_without_the_log_stays_until_the_log_has_it():
    memory, sink = opened()
    memory.put(KEY, ONE, "t")
    await apart(sink.stray, SPACE)
    await apart(sink.apply, SPACE, told(record(KEY, ONE), own=True))
    await apart(sink.replace, SPACE, [])
    assert memory.get(KEY, "t") == ONE
    await apart(sink.apply, SPACE, told(record(KEY, TWO), record(KEY, ONE)))
    assert memory.get(KEY, "t").order == TWO.order


async def test_one_that_ends_keeps_no_thread_waiting():
    memory, sink = opened()
    memory.take(KEY, ONE, "t")
    sink.close()
    assert sink.apply(SPACE, told(record(OTHER, ONE))) == 0
    assert list(sink.dump(SPACE)) == []
    assert len(memory) == 1
