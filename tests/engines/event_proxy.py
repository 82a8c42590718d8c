"""A proxy between an engine that publishes KV-cache events and whoever listens: drops, doubles, delays on demand.

The engine binds its addresses, the listener connects to `EventProxy.events` and `EventProxy.replay`.
"""

from __future__ import annotations

import contextlib
import threading
import time
from dataclasses import dataclass, field
from typing import Any

import zmq


@dataclass
class Plan:
    """What happens to published messages, told by how many have come through: the first is 0."""

    drop: set[int] = field(default_factory=set)
    double: set[int] = field(default_factory=set)
    delay: dict[int, int] = field(default_factory=dict)  # until so many more have come


class EventProxy:
    """See above. Usable as a context manager.

    Args:
        events: where the engine publishes.
        replay: where it replays, or empty.
        plan: what is done; may be changed at any time.
    """

    def __init__(self, events: str, replay: str = "", plan: Plan | None = None) -> None:
        self.plan = plan or Plan()
        self.seen = self.dropped = self.doubled = self.delayed = self.replayed = 0
        self.silent = False  # drop all that is published
        self.deaf = False  # drop requests for replays
        self._context: zmq.Context[Any] = zmq.Context()
        self._from = self._socket(zmq.SUB)
        self._from.setsockopt(zmq.SUBSCRIBE, b"")
        self._from.connect(events)
        self._to = self._socket(zmq.PUB)
        self._to.bind("tcp://127.0.0.1:0")
        self.events = self._to.getsockopt_string(zmq.LAST_ENDPOINT).rstrip("\0")
        self.replay = ""
        self._asking: Any = None
        self._asked: Any = None
        if replay:
            self._asking, self._asked = self._socket(zmq.ROUTER), self._socket(zmq.DEALER)
            self._asking.bind("tcp://127.0.0.1:0")
            self._asked.connect(replay)
            self.replay = self._asking.getsockopt_string(zmq.LAST_ENDPOINT).rstrip("\0")
        self._asker: bytes = b""
        self._later: list[tuple[int, list[bytes]]] = []
        self._stopping = False
        self._failed: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="event-proxy", daemon=True)
        self._thread.start()
        time.sleep(0.05)  # most often enough for the subscription; what is missed is a drop, which listeners survive

    def __enter__(self) -> EventProxy:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """End it."""
        self._stopping = True
        self._thread.join(5)
        self._context.destroy(linger=0)
        if self._failed is not None:
            raise self._failed

    def let_go(self) -> None:
        """Delay nothing any more."""
        self.plan = Plan()
        self._later = [(0, frames) for _, frames in self._later]

    def _socket(self, kind: int) -> Any:
        socket = self._context.socket(kind)
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.RCVHWM, 100_000)
        socket.setsockopt(zmq.SNDHWM, 100_000)
        return socket

    def _run(self) -> None:
        try:
            poller = zmq.Poller()
            for socket in (self._from, self._asking, self._asked):
                if socket is not None:
                    poller.register(socket, zmq.POLLIN)
            while not self._stopping:
                ready = dict(poller.poll(20))
                if self._from in ready:
                    self._published(self._from.recv_multipart())
                self._due()
                if self._asking in ready:
                    self._asker, *request = self._asking.recv_multipart()
                    if not self.deaf:
                        self._asked.send_multipart(request)
                if self._asked in ready:
                    with contextlib.suppress(zmq.Again):
                        while True:
                            self._asking.send_multipart([self._asker, *self._asked.recv_multipart(zmq.NOBLOCK)])
                            self.replayed += 1
        except BaseException as error:  # noqa: BLE001  shown when it is stopped
            self._failed = error

    def _published(self, frames: list[bytes]) -> None:
        number = self.seen
        self.seen += 1
        if self.silent or number in self.plan.drop:
            self.dropped += 1
        elif number in self.plan.delay:
            self.delayed += 1
            self._later.append((number + self.plan.delay[number], frames))
        else:
            self._to.send_multipart(frames)
            if number in self.plan.double:
                self.doubled += 1
                self._to.send_multipart(frames)

    def _due(self) -> None:
        due = [frames for number, frames in self._later if number < self.seen]
        self._later = [(number, frames) for number, frames in self._later if number >= self.seen]
        for frames in due:
            self._to.send_multipart(frames)
