"""What a replica brings is taken in by the event loop, between requests; and nobody waits for one that ends."""

from __future__ import annotations

import asyncio
import threading
import time

import msgspec
import pytest

from contextpilot_rag.errors import StateError
from contextpilot_rag.remote import wire
from contextpilot_rag.replicas.sink import Arrived
from contextpilot_rag.replicas.space import Space
from contextpilot_rag.service import replica_sink
from contextpilot_rag.service.auth import OpenGate
from contextpilot_rag.service.core import Service
from contextpilot_rag.service.elsewhere import Elsewhere
from contextpilot_rag.service.replica_sink import ServiceSink
from contextpilot_rag.service.settings import ServiceSettings
from contextpilot_rag.types import Namespace
from tests.service.replicated import nodes, settle
from tests.service.test_ledger import as_given

SPACE = Space("tenant:", Namespace())


def sink_of(service, **given):
    sink = ServiceSink(service, OpenGate(), Elsewhere(service), **given)
    sink.open()
    return sink


def told(count):
    """Records of so many requests and conversations."""
    (node,) = nodes(1, ServiceSettings())
    for number in range(count):
        blocks = as_given([f"block {number}", "another"])
        node.tenant("").align(wire.AlignIn(blocks, conversation=wire.TurnIn(f"talk {number}")))
    return [Arrived(name, data, own=False) for _, name, data, _ in node.outbox]


async def test_between_records_others_have_their_turn():
    service, moved, turns = Service(ServiceSettings()), [], 0
    sink = sink_of(service, moved=lambda: moved.append(1))
    records = told(20)
    work = asyncio.create_task(asyncio.to_thread(sink.apply, SPACE, records))
    take = sink._elsewhere.take

    def slowly(*args, **more):
        ends = time.perf_counter() + 0.001
        take(*args, **more)
        while time.perf_counter() < ends:
            pass

    sink._elsewhere.take = slowly
    while not work.done():
        await asyncio.sleep(0)
        turns += 1
    assert await work == 0
    assert turns > len(records)
    assert moved == [1]
    assert len(service.tenant("").ledgers) == 20
    assert service.pool("tenant", "").index.stats().tree_blocks == 40


async def test_what_is_dumped_is_taken_over_whole_with_conversations_of_that_namespace_alone():
    first, _ = both = nodes(2, ServiceSettings())
    for space in (wire.NamespaceIn(), wire.NamespaceIn(head="h"), wire.NamespaceIn(corpus="other")):
        given = wire.AlignIn(as_given("ab"), space, conversation=wire.TurnIn("talk"))
        answer = first.tenant("").align(given)
    settle(both)
    first.sink.open()
    parts = await asyncio.to_thread(lambda: list(first.sink.dump(SPACE)))
    service = Service(ServiceSettings())
    for name in ("gone", "talk"):
        service.tenant("").align(wire.AlignIn(as_given("xy"), conversation=wire.TurnIn(name)))
    service.tenant("").align(
        wire.AlignIn(as_given("xy"), wire.NamespaceIn(corpus="c"), conversation=wire.TurnIn("talk"))
    )
    sink = sink_of(service)
    await asyncio.to_thread(sink.replace, SPACE, parts)
    kept = [(namespace.corpus, namespace.head, name) for (namespace, name), _ in service.tenant("").ledgers.items()]
    assert sorted(kept) == [("", "", "talk"), ("", "h", "talk"), ("c", "", "talk")]
    assert not service.tenant("").ledgers.knows(Namespace(corpus="other"), wire.TurnIn("talk", answer.turn, 3))
    for blocks, tokens in (("ab", 20), ("xy", 0)):
        assert service.tenant("").predict(wire.AlignIn(as_given(blocks))).predicted_cached_tokens == tokens


def talking(node, *talks):
    """A node that answered a first turn of each, and what says whether it knows them."""
    node.sink.open()
    tenant = node.tenant("")
    answers = [tenant.align(wire.AlignIn(as_given("ab"), conversation=wire.TurnIn(talk))) for talk in talks]
    turns = [wire.TurnIn(talk, answer.turn, 3) for talk, answer in zip(talks, answers, strict=True)]
    return lambda: [tenant.ledgers.knows(Namespace(), turn) for turn in turns]


async def test_what_the_log_is_still_to_be_told_stays_when_a_snapshot_is_taken_over():
    (node,) = nodes(1, ServiceSettings())
    knows = talking(node, "one", "two")
    own = [Arrived(name, data, own=True) for _, name, data, _ in node.outbox]
    await asyncio.to_thread(node.sink.replace, SPACE, [])
    assert knows() == [True, True]
    await asyncio.to_thread(node.sink.stray, SPACE)  # the log is away: what was told is taken in without it for now
    await asyncio.to_thread(node.sink.apply, SPACE, own)
    await asyncio.to_thread(node.sink.replace, SPACE, [])
    assert knows() == [True, True]
    await asyncio.to_thread(node.sink.apply, SPACE, own[: len(own) // 2])  # now the log has brought half of it
    await asyncio.to_thread(node.sink.replace, SPACE, [])
    assert knows() == [False, True]
    await asyncio.to_thread(node.sink.included, SPACE, [record.name for record in own])  # and never will the rest
    await asyncio.to_thread(node.sink.replace, SPACE, [])
    assert knows() == [False, False]


async def test_conversations_that_a_snapshot_has_are_known_all_the_while_it_is_taken_over(monkeypatch):
    monkeypatch.setattr(replica_sink, "SLICE_SECONDS", 0.0)
    (node,) = nodes(1, ServiceSettings())
    knows = talking(node, *map(str, range(20)))
    own = [Arrived(name, data, own=True) for _, name, data, _ in node.outbox]
    await asyncio.to_thread(node.sink.apply, SPACE, own)
    parts = await asyncio.to_thread(lambda: list(node.sink.dump(SPACE)))
    work = asyncio.create_task(asyncio.to_thread(node.sink.replace, SPACE, parts))
    while not work.done():
        assert all(knows())
        await asyncio.sleep(0)
    await work
    assert all(knows())


@pytest.mark.parametrize(
    "part",
    [b"\xc1", msgspec.msgpack.encode(["something new"]), msgspec.msgpack.encode(["talks", [["", "", "", "", "talk"]]])],
)
async def test_a_snapshot_that_cannot_be_read_changes_nothing(part):
    service = Service(ServiceSettings())
    sink = sink_of(service)
    await asyncio.to_thread(sink.apply, SPACE, told(1))
    with pytest.raises(StateError):
        await asyncio.to_thread(sink.replace, SPACE, [part])
    assert service.pool("tenant", "").index.stats().tree_blocks == 2
    assert len(service.tenant("").ledgers) == 1


async def test_one_that_ends_keeps_no_thread_waiting():
    sink = sink_of(Service(ServiceSettings()))
    waits = threading.Event()

    async def never():
        waits.set()
        await asyncio.Event().wait()

    work = asyncio.create_task(asyncio.to_thread(sink._done, never(), "nothing"))
    await asyncio.to_thread(waits.wait)
    sink.close()
    assert await work == "nothing"
    assert await asyncio.to_thread(sink.apply, SPACE, told(1)) == 0
    assert list(sink.dump(SPACE)) == []
    sink.replace(SPACE, [])
    sink.stray(SPACE)


async def test_of_a_tenant_that_is_not_followed_nothing_is_taken_in():
    service = Service(ServiceSettings())
    sink = sink_of(service)
    stranger = Space("tenant:stranger", Namespace())
    await asyncio.to_thread(sink.apply, stranger, told(1))
    await asyncio.to_thread(sink.included, stranger, ["a-1"])
    assert list(sink.dump(stranger)) == []
    assert service.tenants == service.pools() == {}
