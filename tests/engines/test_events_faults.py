"""EventListener when messages are lost, engines restart, peers send anything, threads and forks come in between."""

from __future__ import annotations

import os
import sys
import threading
from random import Random

import msgspec
import pytest

from contextpilot_rag.engines.engine import Engine
from contextpilot_rag.engines.events import EventCounts, EventListener
from contextpilot_rag.errors import MissingPackage
from tests.engines.event_proxy import EventProxy, Plan
from tests.engines.publisher import END, Publisher, came, engine_of, stored


def test_dropped_doubled_and_delayed_events_converge_after_one_replay(sink, listener):
    plan = Plan(drop={10, 11, 40}, double={3, 15, 60}, delay={20: 7, 50: 30})
    with Publisher() as publisher, EventProxy(publisher.events, publisher.replay, plan) as proxy:
        listener.add(Engine("http://a:1", name="a", events=proxy.events, replay=proxy.replay))
        assert came(lambda: sink.times("flowing"))
        for number in range(100):
            publisher.publish(stored(number))
            if number % 10 == 9:
                assert came(lambda number=number: proxy.seen == number + 1)
        assert listener.drained()
        assert sink.of("a") == list(range(100))
        assert not sink.times("lost")
        counts = listener.counts("a")
    assert (proxy.dropped, proxy.doubled, proxy.delayed) == (3, 3, 2)
    assert counts.gaps >= 2
    assert counts.duplicates >= 3


def test_when_all_is_dropped_one_replay_brings_it(sink, listener):
    with Publisher() as publisher, EventProxy(publisher.events, publisher.replay) as proxy:
        listener.add(Engine("http://a:1", name="a", events=proxy.events, replay=proxy.replay))
        assert came(lambda: sink.times("flowing"))
        proxy.silent = True
        for number in range(50):
            publisher.publish(stored(number))
        assert came(lambda: proxy.dropped == 50)
        assert sink.of("a") == []
        before = listener.counts("a").replays
        assert listener.drained()
        assert sink.of("a") == list(range(50))
        assert listener.counts("a").replays - before in {1, 2}  # that after connecting may be on its way just now


def test_an_engine_that_restarts_behind_a_proxy_is_noticed_by_its_numbers(sink, listener):
    with Publisher() as publisher, EventProxy(publisher.events, publisher.replay) as proxy:
        listener.add(Engine("http://a:1", name="a", events=proxy.events, replay=proxy.replay))
        assert came(lambda: sink.times("flowing"))
        for number in range(300):
            publisher.publish(stored(number))
        assert came(lambda: len(sink.of("a")) == 300)
        publisher.stop()
        publisher.start()
        assert came(lambda: publisher.publish(stored(100)) >= 0 and 100 in sink.of("a"))
        assert listener.drained()
        assert sink.of("a") == [100] * publisher.number
        assert listener.counts("a").connected


def test_nothing_that_a_peer_sends_ends_it(sink, listener):
    random = Random(7)

    def frames():
        whole = msgspec.msgpack.encode([1.0, [stored(1)], 0])
        payload = random.choice([whole, whole[: random.randrange(len(whole))], random.randbytes(random.randrange(40))])
        number = random.choice([random.randrange(50), 2**64 - 1, 2**63]).to_bytes(8, "big")
        parts = [b"", random.choice([number, number[:3], b""]), payload]
        return random.choice([parts, parts[: random.randrange(1, 3)], [*parts, b"more"], [b"t", *parts]])

    with Publisher() as publisher, Publisher() as other:
        router = publisher.router
        serving = publisher.thread
        publisher.stopping = True
        serving.join(5)
        listener.add(engine_of(publisher, "wild"))
        listener.add(engine_of(other, "tame"))
        assert came(lambda: listener.counts("wild").connected)
        for number in range(1500):
            publisher.pub.send_multipart(frames())
            if router.poll(0):
                who, *_ = router.recv_multipart()
                for _ in range(random.randrange(5)):
                    router.send_multipart([who, *random.choice([[b""], []]), *frames()])
                router.send_multipart([who, b"", *random.choice([[b""], []]), END, b""])
            if number % 100 == 0:
                other.publish(stored(number))
        assert came(lambda: len(sink.of("tame")) == 15)
        assert came(lambda: listener.counts("wild").undecodable > 100)
        publisher.stop()
        publisher.start()
        publisher.publish(stored(5), stored(6))
        assert came(lambda: sink.of("wild") == [5, 6])


def test_a_flood_to_one_holds_up_no_other(sink, listener):
    with Publisher(replay=None) as flood, Publisher() as other:
        listener.add(engine_of(flood, "flood"))
        listener.add(engine_of(other, "other"))
        assert came(lambda: listener.counts("flood").in_step and listener.counts("other").in_step)
        for number in range(20_000):
            flood.publish(stored(number))
        other.publish(stored(1))
        assert came(lambda: sink.of("other") == [1])
        assert came(lambda: len(sink.of("flood")) == 20_000)


def test_threads_that_add_remove_and_count_at_once(sink, listener):
    errors = []
    with Publisher() as publisher:
        publisher.publish(stored(1))

        def come_and_go(name):
            try:
                for _ in range(20):
                    listener.add(engine_of(publisher, name))
                    listener.counts(name)
                    listener.drained(0.01)
                    listener.remove(name)
                listener.add(engine_of(publisher, name))
            except Exception as error:  # noqa: BLE001  shown below
                errors.append(error)

        threads = [threading.Thread(target=come_and_go, args=(f"e{number}",)) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert not errors
        assert listener.drained()
        for number in range(6):
            assert sink.of(f"e{number}")[-1:] == [1]
            assert listener.counts(f"e{number}").last_seq == (0,)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_listens_to_nobody_until_an_engine_is_added(sink, listener):
    with Publisher() as publisher:
        listener.add(engine_of(publisher))
        publisher.publish(stored(1))
        assert came(lambda: sink.of("a") == [1])
        child = os.fork()
        if not child:
            status = 1
            try:
                sink.hashes.clear()
                nothing = listener.counts("a") == EventCounts()
                listener.add(engine_of(publisher))
                status = 0 if nothing and came(lambda: sink.of("a") == [1]) else 2
                listener.close()
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        publisher.publish(stored(2))
        assert came(lambda: sink.of("a") == [1, 2])


def test_without_pyzmq_it_says_what_to_install(sink, monkeypatch):
    monkeypatch.setitem(sys.modules, "zmq", None)
    listener = EventListener(sink)
    with pytest.raises(MissingPackage, match="pip install"):
        listener.add(Engine("http://a:1", events="tcp://127.0.0.1:1"))


def test_an_address_that_is_taken_is_said_and_tried_again(sink, listener):
    with Publisher(replay=None) as taken, Publisher(replay=None) as other:
        listener.add(Engine("http://a:1", name="a", events=taken.events, listen=True))
        listener.add(engine_of(other, "other"))
        assert came(lambda: sink.times("broken"))
        assert "cannot listen at" in sink.whys("broken")[0]
        assert came(lambda: listener.counts("other").in_step)
        taken.stop()
        taken.connect = True
        taken.start()
        assert came(lambda: ("flowing", "a", 0) in sink.said)
        assert came(lambda: taken.publish(stored(1)) >= 0 and sink.of("a"))
    assert sink.times("broken") == 1


def test_nobody_connects_to_us(sink, listener, tmp_path):
    listener.add(Engine("http://a:1", name="a", events=f"ipc://{tmp_path}/events", listen=True))
    assert came(lambda: sink.times("broken"))
    assert "no engine has connected" in sink.whys("broken")[0]


def test_an_engine_that_connects_to_us_goes_and_another_comes(sink, listener, tmp_path):
    address = f"ipc://{tmp_path}/events"
    with Publisher(address, connect=True) as first:
        listener.add(engine_of(first, listen=True))
        first.publish(stored(1))
        assert came(lambda: sink.of("a") == [1])
        first.stop()
        with Publisher(address, first.replay, connect=True) as second:
            second.publish(stored(2))
            assert came(lambda: sink.of("a") == [2])
            assert sink.times("lost") == 1
            assert listener.counts("a").connected


def test_what_nobody_thought_of_ends_nothing(sink, listener, monkeypatch, caplog):
    with Publisher() as publisher, Publisher() as other:
        listener.add(engine_of(publisher))
        listener.add(engine_of(other, "other"))
        publisher.publish(stored(1))
        assert came(lambda: sink.of("a") == [1] and listener.counts("other").in_step)
        link = listener._links["a"][0]

        def broken(now):
            monkeypatch.undo()
            raise KeyError

        monkeypatch.setattr(link, "_tick", broken)
        publisher.publish(stored(2))
        assert came(lambda: sink.times("lost") == 1)
        assert came(lambda: sink.of("a") == [1, 2])  # from the start
        other.publish(stored(3))
        assert came(lambda: sink.of("other") == [3])
    records = [record for record in caplog.records if "contextpilot" in record.name]
    assert ["beginning anew" in record.getMessage() for record in records] == [True]


def test_two_topics_at_one_address_are_said_and_the_first_is_followed(sink, listener):
    with Publisher(topic="kv@a") as publisher:
        listener.add(engine_of(publisher))
        publisher.publish(stored(1))
        assert came(lambda: sink.of("a") == [1])
        publisher.raw(b"", topic=b"kv@b")
        assert came(lambda: sink.times("broken") == 1)
        publisher.kept.pop()
        publisher.number -= 1
        publisher.publish(stored(2))
        assert came(lambda: sink.of("a") == [1, 2])
        assert came(lambda: sink.said[-1] == ("flowing", "a", 0))
        assert listener.counts("a").other_topics == 1
