"""Pools: the indexes of one process that a replica feeds, by name."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Iterable, Iterator, Sequence
from typing import Generic, TypeVar

import msgspec

from ..errors import StateError
from ..forking import after_fork
from ..index.fed import FedIndex
from ..index.records import IndexRecord, checked
from ..index.state import StatePart
from .entries import UNREADABLE
from .sink import Arrived
from .space import Space

FedT = TypeVar("FedT", bound=FedIndex)
_SLICE_SECONDS = 0.0005
_PAUSE_SECONDS = 0.00005
_records = msgspec.msgpack.Decoder(IndexRecord)
_parts = msgspec.msgpack.Decoder(StatePart)
_encoder = msgspec.msgpack.Encoder()


class Pools(Generic[FedT]):
    """A `Sink` of indexes. They are not kept alive: one that nobody holds any more is fed no longer.

    >>> from contextpilot_rag import Namespace
    >>> pools, index = Pools(), FedIndex()
    >>> pools.put("pilot", index)
    >>> [pools.follows(Space(pool, Namespace("acme"))) for pool in ("pilot", "engine:a")]
    [True, False]
    >>> del index
    >>> pools.follows(Space("pilot", Namespace("acme")))
    False
    """

    def __init__(self) -> None:
        self._indexes: dict[str, weakref.ref[FedT]] = {}
        self._renew_lock()
        after_fork(self, Pools._renew_lock)

    def put(self, pool: str, index: FedT) -> None:
        """Feed an index with what is told of a pool, in the place of another if there is one."""
        with self._lock:
            self._indexes = {name: known for name, known in self._indexes.items() if known() is not None}
            self._indexes[pool] = weakref.ref(index)

    def get(self, pool: str) -> FedT | None:
        """The index of a pool, if there is one."""
        known = self._indexes.get(pool)
        return None if known is None else known()

    def the(self, pool: str) -> FedT:
        """The index of a pool, for one who holds it."""
        index = self.get(pool)
        if index is None:
            raise AssertionError(f"there is no index of the pool {pool}")
        return index

    def indexes(self) -> list[FedT]:
        """All of them."""
        with self._lock:
            found = [known() for known in self._indexes.values()]
        return [index for index in found if index is not None]

    def follows(self, space: Space) -> bool:
        """Whether there is an index for it."""
        return self.get(space.pool) is not None

    def apply(self, space: Space, records: Sequence[Arrived]) -> int:
        """Take in the next records of a space's log; how many of them could not be true."""
        index, refused = self.get(space.pool), 0
        if index is None:
            return 0
        began = time.perf_counter()
        for arrived in records:
            if time.perf_counter() - began > _SLICE_SECONDS:  # else whoever aligns waits for this thread
                time.sleep(_PAUSE_SECONDS)
                began = time.perf_counter()
            try:
                record = checked(_records.decode(arrived.data))
            except (*UNREADABLE, StateError):  # a later version's, or somebody's who means harm
                refused += 1
            else:
                index.apply(space.namespace, arrived.name, record, own=arrived.own)
        return refused

    def included(self, space: Space, names: Sequence[str]) -> None:
        """Own records that need not be waited for."""
        index = self.get(space.pool)
        if index is not None:
            index.included(space.namespace, names)

    def stray(self, space: Space) -> None:
        """What is applied from here on came not by the log."""
        index = self.get(space.pool)
        if index is not None:
            index.stray(space.namespace)

    def dump(self, space: Space) -> Iterator[bytes]:
        """What is known of a space; nothing: nothing is."""
        index = self.get(space.pool)
        if index is not None:
            yield from map(_encoder.encode, index.dump_space(space.namespace))

    def replace(self, space: Space, parts: Iterable[bytes]) -> None:
        """Know of a space what was dumped elsewhere, and nothing else.

        Raises:
            StateError: the parts tell of no such thing; nothing was changed.
        """
        index = self.get(space.pool)
        if index is not None:
            index.replace_space(space.namespace, _decoded(parts))

    def _renew_lock(self) -> None:
        self._lock = threading.Lock()


def _decoded(parts: Iterable[bytes]) -> Iterator[StatePart]:
    for part in parts:
        try:
            yield _parts.decode(part)
        except UNREADABLE as error:
            raise StateError(f"a part of a snapshot cannot be read: {error}") from error
