"""Sink: the indexes that a replica feeds. Records and states are bytes here: what they say is the sink's own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from .space import Space


@dataclass(frozen=True, slots=True)
class Arrived:
    """A record that the log brought.

    Args:
        name: no other record has it.
        data: the record, as MessagePack.
        own: it was appended by this process.
    """

    name: str
    data: bytes
    own: bool


class Sink(Protocol):
    """What is fed. Called by the replica's reading thread, and waited for; never while anything is locked."""

    def follows(self, space: Space) -> bool:
        """Whether a space that others told of concerns this process at all."""
        ...

    def apply(self, space: Space, records: Sequence[Arrived]) -> int:
        """Take in the next records of a space's log, in this order. Raises nothing: what fails is left out.

        Returns:
            How many were left out, because they could not be true or are not understood.
        """
        ...

    def included(self, space: Space, names: Sequence[str]) -> None:
        """Own records that need not be waited for: they are part of what `replace` brings next, or are given up."""
        ...

    def stray(self, space: Space) -> None:
        """What is applied from here on came not by the log; see `FedIndex.stray`."""
        ...

    def dump(self, space: Space) -> Iterator[bytes]:
        """What is known of a space, as `replace` takes it; nothing: nothing is. Nothing is applied meanwhile."""
        ...

    def replace(self, space: Space, parts: Iterable[bytes]) -> None:
        """Know of a space what was dumped elsewhere, and nothing else.

        Raises:
            StateError: the parts tell of no such thing; nothing was changed.
        """
        ...
