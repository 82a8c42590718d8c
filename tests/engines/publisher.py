"""A publisher of KV-cache events as vLLM and SGLang have one, and a sink that remembers: for tests."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque

import msgspec
import zmq

from contextpilot_rag.engines.engine import Engine

END = (-1).to_bytes(8, "big", signed=True)


def came(condition, seconds=10.0):
    """Whether something came to be, in so many seconds."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.005)
    return True


def stored(*numbers, parent=None):
    """An event: these KV blocks, of two tokens each."""
    tokens = [token for number in numbers for token in (number, number)]
    names = {"type": "BlockStored", "block_hashes": list(numbers), "parent_block_hash": parent}
    return {**names, "token_ids": tokens, "block_size": 2, "lora_id": None, "medium": "GPU", "lora_name": None}


class Publisher:
    """Publishes batches, numbered, and replays them. Its address stays the same when it is stopped and started again.

    Args:
        events: where; empty: at a free port.
        replay: where; empty: at a free port; None: not at all.
        topic: of all messages.
        topic_frame: replayed messages have it, too.
        connect: connect to `events`.
        keeps: so many messages are kept for replays.
    """

    def __init__(self, events="", replay="", *, topic="", topic_frame=True, connect=False, keeps=10_000):
        self.events, self.replay = events, replay
        self.topic, self.topic_frame, self.connect, self.keeps = topic.encode(), topic_frame, connect, keeps
        self.requests = []  # starts of replays that were asked for
        self.mute = False  # do not answer
        self.start()

    def start(self):
        """Begin, as an engine that has just started."""
        self.number, self.kept, self.lock = 0, deque(maxlen=self.keeps), threading.Lock()
        self.context = zmq.Context()
        self.pub = self.context.socket(zmq.PUB)
        self.pub.set_hwm(100_000)
        self.pub.linger = 0
        if self.connect:
            self.pub.connect(self.events)
        else:
            self.events = self._bind(self.pub, self.events)
        self.router = None
        if self.replay is not None:
            self.router = self.context.socket(zmq.ROUTER)
            self.router.set_hwm(100_000)
            self.router.linger = 0
            self.replay = self._bind(self.router, self.replay)
        self.stopping = False
        self.thread = threading.Thread(target=self._serve, daemon=True)
        self.thread.start()

    def _bind(self, socket, address):
        for _ in range(200):  # who was there before may need a moment
            with contextlib.suppress(zmq.ZMQError):
                socket.bind(address or "tcp://127.0.0.1:0")
                return socket.getsockopt_string(zmq.LAST_ENDPOINT).rstrip("\0")
            time.sleep(0.02)
        self.context.destroy(0)  # nobody can stop what was never made
        raise TimeoutError(address)

    def stop(self):
        """End without a word, as an engine that is killed."""
        self.stopping = True
        self.thread.join(5)
        self.pub.close(0)
        if self.router is not None:
            self.router.close(0)
        self.context.term()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if not self.stopping:
            self.stop()

    def publish(self, *events, ts=None):
        """Publish a batch of these; its number."""
        return self.raw(msgspec.msgpack.encode([time.time() if ts is None else ts, list(events), 0]))

    def raw(self, payload, topic=None):
        """Publish any payload."""
        with self.lock:
            number = self.number
            self.number += 1
            self.kept.append((number, payload))
            self.pub.send_multipart([self.topic if topic is None else topic, number.to_bytes(8, "big"), payload])
            return number

    def _serve(self):
        while not self.stopping:
            if self.router is None or not self.router.poll(20):
                time.sleep(0.001)
                continue
            who, _, start = self.router.recv_multipart()
            self.requests.append(int.from_bytes(start, "big"))
            if self.mute:
                continue
            with self.lock:
                kept = list(self.kept)
            topic, nothing = ([self.topic], [b""]) if self.topic_frame else ([], [])
            for number, payload in kept:
                if number >= self.requests[-1]:
                    self.router.send_multipart([who, b"", *topic, number.to_bytes(8, "big"), payload])
            self.router.send_multipart([who, b"", *nothing, END, b""])


def engine_of(publisher, name="a", **more):
    return Engine("http://a:1", name=name, events=publisher.events, replay=publisher.replay or "", **more)


class Remembering:
    """A sink that knows what holds: hashes of stored KV blocks by engine and rank."""

    def __init__(self):
        self.hashes = {}
        self.said = []  # what, engine, rank, perhaps why
        self.threads = set()

    def events(self, engine, rank, events):
        self.threads.add(threading.current_thread().name)
        hashes = self.hashes.setdefault((engine, rank), [])
        for event in events:
            hashes.extend(getattr(event, "hashes", ["cleared"]))

    def lost(self, engine, rank, why):
        self.hashes.pop((engine, rank), None)
        self.said.append(("lost", engine, rank, why))

    def flowing(self, engine, rank):
        self.said.append(("flowing", engine, rank))

    def broken(self, engine, rank, why):
        self.said.append(("broken", engine, rank, why))

    def of(self, engine, rank=0):
        return list(self.hashes.get((engine, rank), []))

    def times(self, what):
        return len(self.whys(what))

    def whys(self, what):
        return [one[-1] for one in self.said if one[0] == what]
