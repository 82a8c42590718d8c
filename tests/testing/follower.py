"""A follower of a FakeEngine's events, as plain as can be: it reads what comes, and knows what is cached by it."""

from __future__ import annotations

import msgspec
import zmq

from contextpilot_rag.testing.events import END
from tests.until import until

SECONDS = 20


class Follower:
    """Subscribes; read() and replay() return (topic, number, payload) one after another."""

    def __init__(self, engine, topic=b""):
        self.context = zmq.Context()
        self.context.setsockopt(zmq.LINGER, 0)
        self.context.setsockopt(zmq.RCVTIMEO, SECONDS * 1000)
        self.context.setsockopt(zmq.RCVHWM, 0)
        self.live = self.context.socket(zmq.SUB)
        self.live.subscribe(topic)
        before = engine.followers
        self.live.connect(engine.events_url)
        until(lambda: engine.followers > before)  # an event is published to those who are there
        self.asked = None
        if engine.replay_url:
            self.asked = self.context.socket(zmq.DEALER)
            self.asked.connect(engine.replay_url)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.context.destroy()

    def idle(self):
        """Nothing has come. To ask lets its socket subscribe, where it has connected again."""
        return not self.live.poll(0)

    def read(self):
        topic, number, payload = self.live.recv_multipart()
        return topic, int.from_bytes(number, "big"), msgspec.msgpack.decode(payload)

    def replay(self, start=0):
        """All frames of each replayed message, without the empty one, until the end's."""
        self.asked.send_multipart([b"", start.to_bytes(8, "big")])
        messages = []
        while not messages or END not in messages[-1]:
            empty, *frames = self.asked.recv_multipart()
            assert empty == b""
            messages.append(frames)
        return messages

    def replayed(self, start=0):
        """What read() would have had."""
        *messages, _ = self.replay(start)
        return [
            (topic, int.from_bytes(number, "big"), msgspec.msgpack.decode(payload))
            for topic, number, payload in messages
        ]


def apply(there, events):
    """Take over what events say: a set of hashes."""
    for event in events:
        if event["type"] == "BlockStored":
            assert not there & set(event["block_hashes"])
            there.update(event["block_hashes"])
        elif event["type"] == "BlockRemoved":
            assert there >= set(event["block_hashes"])
            there.difference_update(event["block_hashes"])
        else:
            assert event == {"type": "AllBlocksCleared"}
            there.clear()
