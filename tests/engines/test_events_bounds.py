"""EventListener where there is too much: messages, sockets, garbage, topics; and what is left behind."""

from __future__ import annotations

import logging
import time

import msgspec
import pytest
import zmq

from contextpilot_rag.engines import sockets as sockets_module
from contextpilot_rag.engines.decoding import MAX_HASH, MAX_WORD, decode
from contextpilot_rag.engines.engine import Engine
from contextpilot_rag.engines.events import EventListener
from contextpilot_rag.engines.kv import MAX_SALT, salt_extra
from contextpilot_rag.engines.link import Link
from contextpilot_rag.engines.names import Names
from contextpilot_rag.engines.sockets import AT_ONCE, new_context, received
from tests.engines.event_proxy import EventProxy
from tests.engines.publisher import Publisher, Remembering, came, engine_of, stored


def said(caplog):
    return [record.getMessage() for record in caplog.records if "contextpilot" in record.name]


def test_who_gave_up_waiting_leaves_nothing_behind(sink, listener):
    listener.add(Engine("http://a:1", name="a", events="tcp://127.0.0.1:9", replay="tcp://127.0.0.1:10"))
    for _ in range(5):
        assert not listener.drained(0.01)
    assert came(lambda: not listener._thread.drains)


@pytest.mark.parametrize("replay", ["", None])
def test_an_engine_that_begins_anew_with_another_topic_is_followed_there(sink, listener, replay):
    """Behind a proxy, so that the connection says nothing."""
    with Publisher(topic="kv@one", replay=replay) as publisher:
        proxy = EventProxy(publisher.events, publisher.replay or "")
        with proxy:
            listener.add(Engine("http://a:1", name="a", events=proxy.events, replay=proxy.replay))
            assert came(lambda: publisher.publish(stored(1)) >= 0 and sink.of("a"))
            publisher.stop()
            publisher.topic = b"kv@two"
            publisher.start()
            assert came(lambda: publisher.publish(stored(7)) >= 0 and sink.times("broken"))
            assert "'kv@two'" in sink.whys("broken")[0]
            assert came(lambda: publisher.publish(stored(7)) >= 0 and set(sink.of("a")) == {7}, 20)
            assert came(lambda: sink.said[-1] == ("flowing", "a", 0))
            assert sink.times("lost") == 1
            after = sink.said[[one[0] for one in sink.said].index("lost") :]
            assert [one[0] for one in after] == ["lost", "flowing"], "it is well again once it is connected again"


def test_a_topic_that_was_asked_for_is_kept_however_many_others_come(sink, listener):
    with Publisher(topic="kv@a") as publisher:
        listener.add(engine_of(publisher, topic="kv@a"))
        publisher.publish(stored(1))
        assert came(lambda: sink.of("a") == [1])
        ends = time.monotonic() + 2.0  # twice its patience
        while time.monotonic() < ends:
            publisher.pub.send_multipart([b"kv@b", (0).to_bytes(8, "big"), b""])
            time.sleep(0.05)
        publisher.publish(stored(2))
        assert came(lambda: sink.of("a") == [1, 2])
        assert sink.times("lost") == 0


class Driven:
    """A link whose time is told, fed by hand."""

    def __init__(self, **engine):
        self.sink, self.context = Remembering(), zmq.Context()
        self.engine = Engine("http://a:1", name="a", events="tcp://127.0.0.1:9", **engine)
        self.link = Link(self.engine, 0, self.sink, self.context, zmq.Poller(), Names(), patience=10.0)
        self.link._act(self.link.feed.connected(0.0))
        self.number = 0

    def message(self, payload, now):
        self.link._message([b"", self.number.to_bytes(8, "big"), payload], now)
        self.number += 1

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.link.close()
        self.context.destroy(linger=0)


@pytest.mark.parametrize("kind", ["payload", "frames"])
def test_garbage_now_and_then_is_said_ever_more_seldom(kind):
    good = msgspec.msgpack.encode([None, [stored(1)], 0])
    with Driven() as driven:
        for second in range(0, 7_200, 15):  # for two hours
            driven.message(good, float(second))
            if kind == "payload":
                driven.message(b"garbage", second + 0.1)
            else:
                driven.link._message([b"garbage"], second + 0.1)
            driven.message(good, second + 14.0)
        assert driven.sink.times("broken") == 2
        lines = len(driven.sink.said)
        driven.message(good, 20_000.0)
        assert driven.sink.said[-1] == ("flowing", "a", 0), "it is well at last"
        driven.message(b"garbage", 100_000.0)
        assert driven.sink.times("broken") == 3
        driven.message(good, 100_011.0)
        assert driven.sink.said[-1] == ("flowing", "a", 0), "and all is forgiven after a long time"
        assert lines < len(driven.sink.said)


def test_many_ranks_are_listened_to():
    context = new_context()
    assert context.get(zmq.MAX_SOCKETS) > 10_000
    context.term()


def test_too_many_sockets_are_said_once_and_tried_again(sink, monkeypatch, caplog):
    def few():
        context = zmq.Context()
        context.set(zmq.MAX_SOCKETS, 6)
        return context

    monkeypatch.setattr("contextpilot_rag.engines.events.new_context", few)
    with caplog.at_level(logging.INFO), EventListener(sink, patience=1.0) as listener, Publisher() as publisher:
        for number in range(6):
            listener.add(engine_of(publisher, f"e{number}"))
        assert came(lambda: sink.times("broken") >= 2)
        flowing = {one[1] for one in sink.said if one[0] == "flowing"}
        broken = [one[1] for one in sink.said if one[0] == "broken" and "cannot connect to" in one[3]]
        assert broken
        assert len(broken) == len(set(broken)), "once each"
        for name in flowing:
            listener.remove(name)
        assert came(lambda: {one[1] for one in sink.said if one[0] == "flowing"} - flowing, 20)
        assert said(caplog) == []


def test_large_messages_take_turns():
    context = zmq.Context()
    with context.socket(zmq.PUSH) as sender, context.socket(zmq.PULL) as receiver:
        sender.bind("inproc://large")
        receiver.connect("inproc://large")
        for _ in range(10):
            sender.send_multipart([b"", bytes(8), bytes(AT_ONCE // 2)])
        assert len(received(receiver, 256)) == 2
        assert len(received(receiver, 3)) == 2
        for _ in range(10):
            sender.send_multipart([b"", bytes(8), b"small"])
        assert len(received(receiver, 256)) == 2
    context.destroy(linger=0)


def test_a_message_that_is_far_too_long_and_one_that_is_too_long_are_a_hole(sink, listener, monkeypatch):
    monkeypatch.setattr("contextpilot_rag.engines.decoding.MAX_PAYLOAD", 10_000)
    with Publisher() as publisher:
        listener.add(engine_of(publisher))
        publisher.publish(stored(1))
        assert came(lambda: sink.of("a") == [1])
        publisher.raw(bytes(20_000))
        publisher.publish(stored(2))
        assert came(lambda: sink.of("a") == [2])
        assert "20,000 bytes" in sink.whys("broken")[0]


def test_what_can_wait_here_is_bounded():
    assert sockets_module.WAITING <= 256
    assert sockets_module.REPLAYED <= 20_000


def one_event(**more):
    given = {"type": "BlockStored", "block_hashes": [1], "parent_block_hash": None, "token_ids": [1], "block_size": 1}
    return decode(msgspec.msgpack.encode([1.0, [{**given, **more}], 0])).events[0]


def test_names_that_are_long_are_kept_short():
    long = b"x" * 1_000_000
    one, same, other = (one_event(block_hashes=[name]).hashes[0] for name in (long, long, long + b"y"))
    assert one == same != other
    assert len(one) == MAX_HASH
    assert one_event(block_hashes=[b"x" * MAX_HASH]).hashes == (b"x" * MAX_HASH,)
    assert len(one_event(medium="m" * 1_000_000).medium) == MAX_WORD
    salt = "s" * 1_000_000
    assert one_event(extra_keys=[[salt]]).extra == (salt_extra(salt),)
    assert len(salt_extra(salt)) < MAX_SALT
    assert salt_extra(salt) != salt_extra(salt + "s")
    assert salt_extra("s" * MAX_SALT) == "salt:" + "s" * MAX_SALT
    assert len(decode(msgspec.msgpack.encode({"ts": 1.0, "events": [], "epoch": "e" * 9_999})).epoch) == MAX_WORD
