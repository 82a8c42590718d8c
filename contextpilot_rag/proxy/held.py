"""Held: bytes of bodies that are here at a time, which clients decide and memory bounds."""

from __future__ import annotations

from .problems import Busy

MOST = 2**30


class Held:
    """Counts the bytes of all bodies that are looked into and not answered yet. One event loop owns it.

    Args:
        most: bytes.

    >>> held = Held(10)
    >>> room = held.room(8)
    >>> room.shrink(3)
    >>> held.room(7), room.leave(), held.bytes
    (Room of 7 bytes, None, 7)
    """

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self.bytes = 0

    def room(self, size: int) -> Room:
        """Room for a body.

        Raises:
            Busy: there is none.
        """
        if self.bytes + size > self._most:
            raise Busy("the proxy holds as many bodies as it may", headers={"retry-after": "1"})
        self.bytes += size
        return Room(self, size)


class Room:
    """What one body takes up, until it is left."""

    __slots__ = ("_held", "_size")

    def __init__(self, held: Held, size: int) -> None:
        self._held = held
        self._size = size

    def __repr__(self) -> str:
        return f"Room of {self._size} bytes"

    def shrink(self, size: int) -> None:
        """A body of unknown length is shorter than it might have been."""
        self._held.bytes -= self._size - size
        self._size = size

    def leave(self) -> None:
        """The body is here no longer. It may be said twice."""
        self.shrink(0)
