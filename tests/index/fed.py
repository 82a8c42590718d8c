"""Logs of one test: plain lists, and indexes that follow them."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import replace

import msgspec

from contextpilot_rag import Namespace
from contextpilot_rag.index.fed import FedIndex
from contextpilot_rag.index.records import Forgot, IndexRecord, checked
from contextpilot_rag.index.state import StatePart

_records = msgspec.msgpack.Decoder(IndexRecord)
_parts = msgspec.msgpack.Decoder(StatePart)


def written(index: FedIndex, space: Namespace) -> list[bytes]:
    """What an index knows of a namespace, as it is written down."""
    return [msgspec.msgpack.encode(part) for part in index.dump_space(space)]


def read(parts: Iterable[bytes]) -> list[StatePart]:
    return [_parts.decode(part) for part in parts]


class Follower:
    """An index, what it told, and how far it has read.

    Args:
        name: its own.
        log: of all who share it.
        reads: it is told what stands there; else the log is away.
        **options: of the index.
    """

    def __init__(self, name: str, log: list[tuple[str, Namespace, bytes]], **options) -> None:
        self.name = name
        self.log = log
        self.waiting: list[tuple[str, Namespace, bytes]] = []
        self.spaces: set[Namespace] = set()
        self.position = 0
        self.told = 0
        self._lock = threading.Lock()
        self.index = FedIndex(journal=self, **options)

    def append(self, space: Namespace, record: IndexRecord) -> str:
        with self._lock:
            self.told += 1
            name = f"{self.name}-{self.told}"
            self.waiting.append((name, space, msgspec.msgpack.encode(record)))
            self.spaces.add(space)
            return name

    def forgot(self, namespace: Namespace | None) -> None:
        known = self.spaces if namespace is None else {replace(namespace, head="")}
        for space in sorted(known, key=repr):
            head = "" if namespace is None else namespace.head
            self.index.forgetting(space, self.append(space, Forgot(head)), head)

    def tell(self, most: int = 1_000_000) -> None:
        """The log takes some of what waits."""
        with self._lock:
            some, self.waiting = self.waiting[:most], self.waiting[most:]
            self.log += some

    def read(self, most: int = 1_000_000) -> None:
        """Some of what stands in the log arrives."""
        for name, space, data in self.log[self.position : self.position + most]:
            self.position += 1
            self.spaces.add(space)
            record = checked(_records.decode(data))
            self.index.apply(space, name, record, own=name.startswith(f"{self.name}-"))


class Delivered(FedIndex):
    """An index whose log brings back what it is told, after every so many calls; 0: never."""

    def __init__(self, every: int, **options) -> None:
        self._follower = Follower("w", [], **options)
        self._every, self._calls = every, 0
        self._turn = threading.Lock()
        super().__init__(journal=self._follower, **options)
        self._follower.index = self

    def _deliver(self) -> None:
        with self._turn:
            self._calls += 1
            if self._every and self._calls % self._every == 0:
                self._follower.tell()
                self._follower.read()


def _delivering(name: str):
    def call(self, *args):
        found = getattr(FedIndex, name)(self, *args)
        self._deliver()
        return found

    return call


for _name in ("align", "sent", "observe", "answered", "failed", "forget"):
    setattr(Delivered, _name, _delivering(_name))
