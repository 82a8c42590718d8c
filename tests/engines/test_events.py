"""EventListener with real sockets."""

from __future__ import annotations

import pytest

from contextpilot_rag.engines.engine import Engine
from contextpilot_rag.engines.events import EventCounts, EventListener
from contextpilot_rag.errors import EventError
from tests.engines.publisher import Publisher, Remembering, came, engine_of, stored


def test_events_of_the_start_and_later_ones(sink, listener):
    with Publisher() as publisher:
        publisher.publish(stored(1), stored(2))
        listener.add(engine_of(publisher))
        assert came(lambda: sink.of("a") == [1, 2])
        publisher.publish({"type": "BlockRemoved", "block_hashes": [1]}, {"type": "Unheard"})
        publisher.publish({"type": "AllBlocksCleared"})
        assert listener.drained()
        assert sink.of("a") == [1, 2, 1, "cleared"]
        counts = listener.counts("a")
    assert (counts.batches, counts.events, counts.unknown) == (3, 4, 1)
    assert (counts.connected, counts.in_step, counts.complete) == (True, True, True)
    assert counts.last_seq == (2,)
    assert sink.said[0] == ("flowing", "a", 0)
    assert not sink.times("lost")
    assert not sink.times("broken")
    assert sink.threads == {"contextpilot-events"}


@pytest.mark.parametrize("topic_frame", [True, False])
def test_replays_with_and_without_the_topic(sink, listener, topic_frame):
    with Publisher(topic="kv@a", topic_frame=topic_frame) as publisher:
        publisher.publish(stored(1))
        listener.add(engine_of(publisher, topic="kv@a"))
        assert came(lambda: sink.of("a") == [1])
        assert came(lambda: sink.times("flowing"))
        assert not sink.times("broken")


def test_without_replays_it_begins_with_what_comes(sink, listener):
    with Publisher(replay=None) as publisher:
        publisher.publish(stored(1))
        listener.add(engine_of(publisher))
        assert came(lambda: listener.counts("a").in_step)
        assert came(lambda: publisher.publish(stored(2)) and sink.of("a"))
        assert listener.drained()
        assert set(sink.of("a")) == {2}
        assert not listener.counts("a").complete


def test_an_engine_that_connects_to_us(sink, listener, tmp_path):
    address = f"ipc://{tmp_path}/events"
    with Publisher(address, connect=True) as publisher:
        listener.add(engine_of(publisher, listen=True))
        publisher.publish(stored(1))
        assert came(lambda: sink.of("a") == [1])
        assert listener.counts("a").connected


def test_ranks_are_at_the_next_ports(sink, listener):
    for _ in range(20):
        with Publisher() as first:
            ports = [int(address.rpartition(":")[2]) + 1 for address in (first.events, first.replay)]
            if ports[0] == int(first.replay.rpartition(":")[2]):
                continue
            try:
                second = Publisher(*(f"tcp://127.0.0.1:{port}" for port in ports))
            except TimeoutError:
                continue
            with second:
                first.publish(stored(1))
                second.publish(stored(2))
                listener.add(engine_of(first, ranks=2))
                assert came(lambda: (sink.of("a", 0), sink.of("a", 1)) == ([1], [2]))
                assert listener.drained()
                assert listener.counts("a").last_seq == (0, 0)
                return
    pytest.fail("no neighbouring ports are free")


def test_a_restart_drops_all_and_recovers(sink, listener):
    with Publisher() as publisher:
        listener.add(engine_of(publisher))
        for number in range(5):
            publisher.publish(stored(number))
        assert came(lambda: sink.of("a") == [0, 1, 2, 3, 4])
        publisher.stop()
        assert came(lambda: not listener.counts("a").connected)
        assert sink.of("a") == [0, 1, 2, 3, 4]  # until it is known whether it comes back with them
        publisher.start()
        publisher.publish(stored(7))
        assert came(lambda: sink.of("a") == [7])
        counts = listener.counts("a")
        assert (counts.restarts, counts.lost, counts.in_step, counts.complete) == (1, 1, True, True)


def test_a_restart_without_replays_drops_all(sink, listener):
    with Publisher(replay=None) as publisher:
        listener.add(engine_of(publisher))
        assert came(lambda: publisher.publish(stored(1)) and sink.of("a"))
        publisher.stop()
        assert came(lambda: sink.times("lost") == 1)
        publisher.start()
        assert came(lambda: publisher.publish(stored(2)) and 2 in sink.of("a"))
        assert 1 not in sink.of("a")


def test_nobody_there_is_said_once_and_again_after_somebody_was_there(sink, listener):
    with Publisher() as publisher:
        publisher.stop()
        listener.add(engine_of(publisher))
        assert came(lambda: sink.times("broken") == 1)
        assert "nobody publishes at" in sink.whys("broken")[0]
        assert not came(lambda: sink.times("broken") > 1, 1.5)
        publisher.start()
        assert came(lambda: sink.times("flowing") == 1)
        publisher.stop()
        assert came(lambda: sink.times("broken") == 2)


def test_something_else_there_is_said(sink, listener, unused_tcp_server):
    listener.add(Engine("http://a:1", name="a", events=f"tcp://127.0.0.1:{unused_tcp_server}"))
    assert came(lambda: sink.times("broken") == 1)
    assert "no ZeroMQ publisher" in sink.whys("broken")[0]


@pytest.fixture
def unused_tcp_server():
    """A server that is no ZeroMQ one, but an eternal listener."""
    import socket

    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_events_and_replays_exchanged_are_said(sink, listener):
    with Publisher() as publisher:
        listener.add(Engine("http://a:1", name="a", events=publisher.replay, replay=publisher.events))
        assert came(lambda: sink.times("broken") >= 1)
        assert not sink.times("flowing")


def test_another_topic_is_said_and_its_events_are_not_taken(sink, listener):
    with Publisher(topic="kv@b") as publisher:
        listener.add(engine_of(publisher, topic="kv@a"))
        assert came(lambda: publisher.publish(stored(1)) and sink.times("broken"))
        assert "'kv@b'" in sink.whys("broken")[0]
        assert not sink.of("a")
        assert listener.counts("a").other_topics
        assert sink.said[-1][0] == "broken"
        publisher.topic = b"kv@a"
        publisher.publish(stored(2))
        assert came(lambda: sink.said[-1][0] == "flowing")
        assert sink.times("broken") == 1


def test_a_replay_without_answer_is_said_and_events_flow(sink, listener):
    with Publisher() as publisher:
        publisher.mute = True
        listener.add(engine_of(publisher))
        assert came(lambda: sink.times("broken") == 1)
        assert "does not answer when asked for a replay" in sink.whys("broken")[0]
        assert came(lambda: sink.times("flowing") == 1)
        publisher.publish(stored(1))
        assert came(lambda: sink.of("a") == [1])


@pytest.mark.parametrize("payload", [b"", b"\xc1", b"\x93", b"[1, []]", b"\x91\x91\xabBlockStored"])
def test_what_cannot_be_understood_is_said_and_loses_what_was_told(sink, listener, payload):
    with Publisher() as publisher:
        listener.add(engine_of(publisher))
        publisher.publish(stored(1))
        assert came(lambda: sink.of("a") == [1])
        publisher.raw(payload)
        assert came(lambda: sink.times("broken") == 1)
        assert came(lambda: sink.times("lost") == 1)
        publisher.publish(stored(2))
        assert came(lambda: sink.of("a") == [2])
        assert listener.counts("a").undecodable == 1


def test_a_sink_that_fails_is_logged_once_and_the_rest_goes_on(caplog):
    class Failing(Remembering):
        def events(self, engine, rank, events):
            super().events(engine, rank, events)
            raise RuntimeError("sink")

    sink = Failing()
    with EventListener(sink) as listener, Publisher() as publisher:
        listener.add(engine_of(publisher))
        for number in range(3):
            publisher.publish(stored(number))
        assert came(lambda: sink.of("a") == [0, 1, 2])
    records = [record for record in caplog.records if "contextpilot" in record.name]
    assert len(records) == 1


def test_several_engines_come_and_go(sink, listener):
    with Publisher() as one, Publisher() as other:
        listener.add(engine_of(one, "one"))
        listener.add(engine_of(other, "other"))
        one.publish(stored(1))
        other.publish(stored(2))
        assert came(lambda: (sink.of("one"), sink.of("other")) == ([1], [2]))
        listener.remove("one")
        one.publish(stored(3))
        other.publish(stored(4))
        assert came(lambda: sink.of("other") == [2, 4])
        assert sink.of("one") == [1]
        assert listener.counts("one") == EventCounts()
        sink.hashes.clear()
        listener.add(engine_of(one, "one"))  # again: from its start
        assert came(lambda: sink.of("one") == [1, 3])


def test_an_engine_without_events_is_none(sink, listener):
    listener.add(Engine("http://a:1", name="a"))
    assert listener.counts("a") == EventCounts()
    assert listener.drained(0.1)


def test_after_close_it_takes_none_and_its_thread_has_ended(sink):
    listener = EventListener(sink)
    with Publisher() as publisher:
        listener.add(engine_of(publisher))
        assert came(lambda: sink.times("flowing"))
        thread = listener._thread._thread
        listener.close()
        listener.close()
        assert not thread.is_alive()
        with pytest.raises(EventError):
            listener.add(engine_of(publisher))


def test_it_begins_anew(sink, listener):
    with Publisher() as publisher:
        listener.add(engine_of(publisher))
        publisher.publish(stored(1))
        assert came(lambda: sink.of("a") == [1])
        for begin in (lambda: listener.again("a"), lambda: listener.add(engine_of(publisher))):
            sink.said.clear()
            begin()
            assert came(lambda: sink.times("flowing"))
            assert sink.of("a") == [1]
            assert [one[0] for one in sink.said] == ["lost", "flowing"]
