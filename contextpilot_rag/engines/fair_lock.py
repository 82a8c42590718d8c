"""Fair lock: a lock that whoever has just given it back does not get before those who waited for it meanwhile."""

from __future__ import annotations

import threading


class FairLock:
    """A lock in turns, for work that is done in pieces: between two of them everybody else gets in.

    A plain lock that is given back and taken again at once is most often taken by the same thread, as the others have
    to wake up first. Used by ``with``.
    """

    __slots__ = ("_lock", "_next")

    def __init__(self) -> None:
        self._next = threading.Lock()  # of whoever is next: it is kept until the turn comes
        self._lock = threading.Lock()

    def __enter__(self) -> FairLock:
        with self._next:
            self._lock.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Take it, out of turn: to find out whether somebody has it."""
        return self._lock.acquire(blocking, timeout)
