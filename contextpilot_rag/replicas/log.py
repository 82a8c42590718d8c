"""Log: what replicas ask of the server that keeps their logs. One implementation speaks to Valkey and Redis.

For each space there is a stream of entries, and a snapshot beside it: all that stood in the stream up to a position. A
bell tells who waits in which streams there is something new. Everything here may be lost at any moment; what is lost is
warmth.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from ..errors import LogUnavailable

__all__ = ["FEW", "START", "Entry", "Log", "LogTooLarge", "LogUnavailable", "News", "Snapshot", "Written"]

START = "0-0"
"""The position before the first entry of a stream. Positions are Redis stream ids (``MILLISECONDS-NUMBER``)."""

FEW = 4
"""So many entries of one stream can always be read: what one of them says is left out if it is too large."""


class LogTooLarge(LogUnavailable):
    """What was asked for is too large to be taken in at a time."""


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry of a stream.

    Args:
        position: where it stands.
        mac: its signature.
        data: what it says.
    """

    position: str
    mac: bytes
    data: bytes


@dataclass(frozen=True, slots=True)
class Written:
    """An entry to be appended.

    Args:
        stream: to which.
        mac: its signature.
        data: what it says.
    """

    stream: str
    mac: bytes
    data: bytes


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What stood in a stream up to a position.

    Args:
        position: the last entry that it includes.
        mac: its signature.
        data: what it says.
    """

    position: str
    mac: bytes
    data: bytes


@dataclass(frozen=True, slots=True)
class News:
    """What the bell told.

    Args:
        position: of the bell, to go on from.
        streams: in which there is something new; None: in any of them, for the bell was not heard for too long.
    """

    position: str
    streams: frozenset[str] | None


class Log(Protocol):
    """The server. Methods may be called from several threads at once. None takes longer than the log's time-out, and
    all raise `LogUnavailable` where the server does not answer in it, refuses, or is full; then it is not known whether
    what was asked was done.
    """  # noqa: D205

    def append(self, entries: Sequence[Written]) -> None:
        """Append entries, each to its stream and in this order, trim the streams by length, and ring the bell.

        An entry is there whole or not at all. Where the bell was not rung for one that is there, this raises.
        """
        ...

    def now(self) -> str:
        """The bell's position now."""
        ...

    def listen(self, position: str, seconds: float) -> News:
        """Wait for the bell to ring after a position, for so long at most; then there are no streams in the news."""
        ...

    def read(self, wanted: Mapping[str, tuple[str, bool]], most: int) -> dict[str, list[Entry]]:
        """Entries of several streams, at most so many of each, oldest first.

        Args:
            wanted: for each stream a position, and whether the entry at that position is to be among them.
            most: of each.

        Raises:
            LogTooLarge: fewer are to be asked for, unless these are `FEW` of one stream.
        """
        ...

    def snapshot(self, stream: str) -> Snapshot | None:
        """A stream's snapshot; None: there is none."""
        ...

    def found(self, stream: str, snapshot: Snapshot, first: Written) -> bool:
        """Put a snapshot where there is none, and append an entry that says so, in one step.

        Returns:
            False: there is one already; nothing was done.
        """
        ...

    def standing(self, stream: str) -> str | None:
        """The position of a stream's snapshot, without the rest of it; None: there is none."""
        ...

    def compact(self, stream: str, snapshot: Snapshot, instead_of: bytes | None = None) -> bool:
        """Replace a stream's snapshot, and drop the entries before its position, in one step.

        Args:
            stream: whose.
            snapshot: takes the place of an earlier one, or of none.
            instead_of: also of one with this signature, whatever its position: it cannot be used.

        Returns:
            False: a snapshot of that position or a later one is there, or the entry at that position is not.
        """
        ...

    def streams(self, most: int) -> list[str]:
        """Streams that there are, those appended to last first."""
        ...

    def close(self) -> None:
        """End all connections; nothing is asked after that."""
        ...
