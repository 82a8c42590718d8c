"""Sinks: what a replica feeds beside the sink that it was made for, each with the spaces of a pool of its own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

from msgspec import Struct

from .sink import Arrived, Sink
from .space import Space


class Carried(Sink, Protocol):
    """A sink that ends with the replica that feeds it."""

    def close(self) -> None:
        """Take in nothing more, and keep nobody waiting. Called by any thread."""
        ...


class Carrier(Protocol):
    """A replica, for those who have something of their own to share by its log."""

    @property
    def joined(self) -> bool:
        """Whether the others are heard, and hear this one."""
        ...

    def carry(self, pool: str, sink: Carried) -> None:
        """Feed a sink with what is told of a pool, until the replica ends."""
        ...

    def look_again(self) -> None:
        """Look at all that the log has once more: what is followed has changed. `ready` waits until that is done."""
        ...

    def append(self, space: Space, record: Struct) -> str:
        """Tell the log; returns the record's name. Waits for nothing."""
        ...

    def ready(self, seconds: float) -> bool:
        """Wait until all that the log has was read, or it turns out that it is away; whether it was read."""
        ...

    def catch_up(self, seconds: float) -> bool:
        """Wait until what others told before now was taken in, but not longer; False: it may not have been."""
        ...


class Sinks:
    """A `Sink` of several.

    Args:
        rest: has all pools that no other has.
    """

    def __init__(self, rest: Sink) -> None:
        self._rest = rest
        self._carried: dict[str, Carried] = {}

    def put(self, pool: str, sink: Carried) -> None:
        """Feed a sink with a pool."""
        self._carried = {**self._carried, pool: sink}

    def drop(self) -> list[Carried]:
        """Feed none any more but the rest; those that were fed."""
        carried, self._carried = self._carried, {}
        return list(carried.values())

    def follows(self, space: Space) -> bool:
        """Whether a space that others told of concerns this process at all."""
        return self._of(space).follows(space)

    def apply(self, space: Space, records: Sequence[Arrived]) -> int:
        """Take in the next records of a space's log; how many were left out."""
        return self._of(space).apply(space, records)

    def included(self, space: Space, names: Sequence[str]) -> None:
        """Own records that need not be waited for."""
        self._of(space).included(space, names)

    def stray(self, space: Space) -> None:
        """What is applied from here on came not by the log."""
        self._of(space).stray(space)

    def dump(self, space: Space) -> Iterator[bytes]:
        """What is known of a space."""
        return self._of(space).dump(space)

    def replace(self, space: Space, parts: Iterable[bytes]) -> None:
        """Know of a space what was dumped elsewhere, and nothing else.

        Raises:
            StateError: the parts tell of no such thing; nothing was changed.
        """
        self._of(space).replace(space, parts)

    def _of(self, space: Space) -> Sink:
        return self._carried.get(space.pool, self._rest)
