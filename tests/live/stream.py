"""An engine's events as they are on the wire, read with nothing of ours: what the tests compare with."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, NamedTuple

import msgspec
import zmq

from .under_test import EngineUnderTest

SECONDS = 10.0
END = -1


class Message(NamedTuple):
    """One message: its number, its events."""

    seq: int
    events: list[dict[str, Any]]
    topic: bytes


class Stream:
    """A subscriber to an engine; in step from when it is entered.

    Args:
        engine: that runs.
    """

    def __init__(self, engine: EngineUnderTest) -> None:
        self._engine = engine
        self._context = zmq.Context()
        self._live = self._context.socket(zmq.SUB)
        self._live.setsockopt(zmq.RCVHWM, 0)
        self._live.setsockopt(zmq.SUBSCRIBE, b"")
        self._live.connect(engine.events)
        self.seen: list[Message] = []

    def __enter__(self) -> Stream:
        # A subscriber hears nothing until the publisher has heard of it: until then, something is said.
        deadline = time.monotonic() + SECONDS
        for number in range(10_000):
            self._engine.chat(f"Are you there? {number} {time.monotonic_ns()} " + "Say something. " * 30)
            if self._live.poll(100):
                break
            assert time.monotonic() < deadline, "no event came"
        while self._live.poll(200):
            self._read()
        self.seen.clear()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._context.destroy(linger=0)

    def until(self, enough: Callable[[list[dict[str, Any]]], bool]) -> list[dict[str, Any]]:
        """All events since it was entered, as soon as they are enough. Nothing may be missing among them."""
        deadline = time.monotonic() + SECONDS
        while not enough(self.events):
            left = deadline - time.monotonic()
            assert left > 0, f"not enough events came: {[shown(event) for event in self.events]}"
            if self._live.poll(round(1000 * left) + 1):
                self._read()
        numbers = [message.seq for message in self.seen]
        assert numbers == list(range(numbers[0], numbers[0] + len(numbers))) if numbers else True
        return self.events

    def silent(self, seconds: float = 0.3) -> bool:
        """Whether nothing more comes."""
        return not self._live.poll(round(1000 * seconds))

    @property
    def events(self) -> list[dict[str, Any]]:
        """All events since it was entered."""
        return [event for message in self.seen for event in message.events]

    def _read(self) -> None:
        topic, seq, payload = self._live.recv_multipart()
        self.seen.append(Message(struct.unpack(">Q", seq)[0], _events(payload), topic))


def replayed(engine: EngineUnderTest, start: int = 0) -> list[Message]:
    """What an engine replays from a number on, to the mark of the end."""
    return list(_replay(engine, start))


def _replay(engine: EngineUnderTest, start: int) -> Iterator[Message]:
    with zmq.Context() as context, context.socket(zmq.DEALER) as asking:
        asking.setsockopt(zmq.LINGER, 0)
        asking.setsockopt(zmq.RCVHWM, 0)
        asking.connect(engine.replay)
        asking.send_multipart([b"", struct.pack(">Q", start)])
        while True:
            assert asking.poll(round(1000 * SECONDS)), "the replay does not end"
            empty, *topic, seq, payload = asking.recv_multipart()
            assert empty == b""
            if struct.unpack(">q", seq)[0] == END:
                assert payload == b""
                return
            yield Message(struct.unpack(">Q", seq)[0], _events(payload), b"".join(topic))


def _events(payload: bytes) -> list[dict[str, Any]]:
    _, events, *_ = msgspec.msgpack.decode(payload)
    return list(events)


def kinds(events: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    """The events of a kind."""
    return [event for event in events if event["type"] == kind]


def hashes(events: list[dict[str, Any]], kind: str) -> list[int]:
    """All hashes of the events of a kind, in order."""
    return [one for event in kinds(events, kind) for one in event["block_hashes"]]


def stored(count: int) -> Callable[[list[dict[str, Any]]], bool]:
    """Enough: so many KV blocks were stored."""
    return lambda events: len(hashes(events, "BlockStored")) >= count


def shown(event: dict[str, Any]) -> str:
    """An event in a few words."""
    return f"{event['type']} of {len(event.get('block_hashes', ()))}"


def resident(events: list[dict[str, Any]]) -> set[int]:
    """Which KV blocks are there after these events. One that was stored twice is there until it was removed twice."""
    copies: dict[int, int] = {}
    for event in events:
        step = {"BlockStored": 1, "BlockRemoved": -1}.get(event["type"], 0)
        if event["type"] == "AllBlocksCleared":
            copies.clear()
        for one in event.get("block_hashes", ()):
            copies[one] = copies.get(one, 0) + step
    return {one for one, count in copies.items() if count > 0}
