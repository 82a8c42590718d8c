"""The KV-cache events of a FakeEngine: their numbers and their history, and the ZeroMQ sockets that they go out by."""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import TYPE_CHECKING

from ..engines.kv import Event
from ..errors import EngineUnavailable, MissingPackage
from .wire import EventOptions, encoded

if TYPE_CHECKING:
    import zmq

END = (-1).to_bytes(8, "big", signed=True)
"""Stands where a number would, behind the last message that is replayed."""

_HIGH_WATER = 100_000
_STOP_SECONDS = 10.0


class EventLog:
    """What an engine has published since it began, numbered from 0; the latest can be replayed. Thread-safe.

    A step's events are held back until the request that they happened for is through with its prompt, as an engine
    publishes them then; but never longer than those of a later one, so that the order stays.

    Args:
        options: with dialect and hashes.
    """

    def __init__(self, options: EventOptions) -> None:
        self.options = options
        self._lock = threading.Lock()
        self._held: deque[tuple[int, tuple[Event, ...], str | None]] = deque()
        self._next = 0
        self._kept: deque[tuple[int, bytes]] = deque(maxlen=options.buffer_steps)
        self._publisher: EventPublisher | None = None

    def hold(self, number: int, events: tuple[Event, ...], salt: str | None) -> None:
        """Take what happened for a request.

        Args:
            number: the request's; they go up.
            events: of one step.
            salt: the request's.
        """
        with self._lock:
            self._held.append((number, events, salt))

    def release(self, number: int) -> None:
        """Publish what was held of the requests up to this one."""
        with self._lock:
            while self._held and self._held[0][0] <= number:
                _, events, salt = self._held.popleft()
                payload = encoded(events, salt, self.options, time.time())
                self._kept.append((self._next, payload))
                if self._publisher is not None:
                    self._publisher.send(self._next, payload)
                self._next += 1

    def since(self, start: int) -> list[tuple[int, bytes]]:
        """The messages that are kept, numbers and payloads, from a number on."""
        with self._lock:
            return [one for one in self._kept if one[0] >= start]

    def publish_by(self, publisher: EventPublisher | None) -> None:
        """What is released from now on goes out there; None: nowhere."""
        with self._lock:
            self._publisher = publisher


class EventPublisher:
    """Publishes an engine's events over ZeroMQ on 127.0.0.1 from when it is made until `close`, and replays them.

    A message has three frames: topic, number (8 bytes, big-endian), payload. Who sends an empty frame and a number to
    the replaying address gets all kept messages from that number on, each behind an empty frame, and then one that has
    `END` for a number.

    Args:
        log: what is published.
        events_port: 0: any free one.
        replay_port: 0: any free one.

    Raises:
        EngineUnavailable: a port is taken.
        MissingPackage: pyzmq is not installed.
    """

    def __init__(self, log: EventLog, events_port: int = 0, replay_port: int = 0) -> None:
        try:
            import zmq
        except ModuleNotFoundError as error:
            raise MissingPackage.of(error, "the FakeEngine's events need", "contextpilot-rag[testing]") from error
        self._log = log
        self._topic = log.options.topic.encode()
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._context.setsockopt(zmq.LINGER, 0)
        self._lock = threading.Lock()  # of the socket for events
        self._followers = 0
        self._thread: threading.Thread | None = None
        self.replay_url = ""
        try:
            # PUB that says who subscribes.
            self._events = self._context.socket(zmq.XPUB)
            self._events.setsockopt(zmq.XPUB_VERBOSER, 1)
            self._events.set_hwm(_HIGH_WATER)
            if log.options.connect:
                self.events_url = log.options.connect
                self._events.connect(self.events_url)
            else:
                self.events_url = _bound(self._events, events_port)
            if log.options.replay:
                # A pair of sockets ends the thread: sockets may not be closed by another one.
                self._end, ended = self._context.socket(zmq.PAIR), self._context.socket(zmq.PAIR)
                self._end.bind("inproc://end")
                ended.connect("inproc://end")
                replay = self._context.socket(zmq.ROUTER)
                replay.set_hwm(2 * (log.options.buffer_steps + 1))
                self.replay_url = _bound(replay, replay_port)
                self._thread = threading.Thread(
                    target=self._replay, args=(replay, ended), name="FakeEngine events", daemon=True
                )
                self._thread.start()
        except BaseException as error:
            self._context.destroy()
            if isinstance(error, zmq.ZMQError):
                raise EngineUnavailable(f"the FakeEngine cannot publish its events: {error}") from error
            raise
        log.publish_by(self)

    def send(self, number: int, payload: bytes) -> None:
        """Publish a message. Only the log does, one at a time; a follower that does not keep up loses some."""
        with self._lock:
            self._events.send_multipart((self._topic, number.to_bytes(8, "big"), payload))

    def followers(self) -> int:
        """How many subscriptions there are: these get what is published from now on."""
        import zmq

        with self._lock:
            while not self._events.closed and self._events.poll(0, zmq.POLLIN):
                self._followers += 1 if self._events.recv()[:1] == b"\x01" else -1
            return self._followers

    def close(self) -> None:
        """Close the sockets. Their ports are free afterwards.

        Raises:
            EngineUnavailable: the thread that replays does not end.
        """
        self._log.publish_by(None)
        if self._thread is not None:
            self._end.send(b"")
            self._thread.join(_STOP_SECONDS)
            if self._thread.is_alive():
                raise EngineUnavailable(f"the FakeEngine's events did not end in {_STOP_SECONDS} s")
        with self._lock:
            self._context.destroy()
            self._followers = 0

    def _replay(self, replay: zmq.Socket[bytes], ended: zmq.Socket[bytes]) -> None:
        import zmq

        poller = zmq.Poller()
        poller.register(replay, zmq.POLLIN)
        poller.register(ended, zmq.POLLIN)
        with replay, ended:
            while ended not in (ready := dict(poller.poll())):
                if replay in ready:
                    self._answer(replay)

    def _answer(self, replay: zmq.Socket[bytes]) -> None:
        frames = replay.recv_multipart()
        if len(frames) != 3:
            return
        topic, nobody = ((self._topic,), (b"",)) if self._log.options.replay_topic_frame else ((), ())
        peer = frames[0]
        for number, payload in self._log.since(int.from_bytes(frames[2], "big")):
            replay.send_multipart((peer, b"", *topic, number.to_bytes(8, "big"), payload))
        replay.send_multipart((peer, b"", *nobody, END, b""))


def _bound(socket: zmq.Socket[bytes], port: int) -> str:
    """Bind a socket on the loopback interface. Returns the address."""
    import zmq

    if type(port) is not int or not 0 <= port < 2**16:  # ZeroMQ would take what remains of it
        raise EngineUnavailable(f"the FakeEngine cannot publish its events: there is no port {port!r}")
    socket.bind(f"tcp://127.0.0.1:{port or '*'}")
    return str(socket.getsockopt_string(zmq.LAST_ENDPOINT))
