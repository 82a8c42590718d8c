"""Admission: how many calls may do something at a time. Who waits for its turn here says nothing about the service."""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager

import anyio

from .asks import Ask, Deadline, Late

CONNECTING = 8  # at a time: many that are made together are late together, and the next time it is the same
PATIENT = 4  # calls that no request waits for; if they hang, nothing else does


class Admission:
    """Of all threads together.

    Args:
        connections: used at a time.
    """

    def __init__(self, connections: int) -> None:
        self._asking = threading.Semaphore(connections)
        self._patient = threading.Semaphore(PATIENT)
        self._connecting = threading.Semaphore(CONNECTING)

    @contextmanager
    def asking(self, ask: Ask, deadline: Deadline) -> Iterator[None]:
        """Until it may ask, and as long as it does.

        Raises:
            Late: its turn did not come in time.
        """
        with _held(self._patient if ask.patient else self._asking, deadline):
            yield

    @contextmanager
    def connecting(self, deadline: Deadline) -> Iterator[None]:
        """As `asking`, for a new connection."""
        with _held(self._connecting, deadline):
            yield


class AsyncAdmission:
    """Of one event loop. Who waits here sees to the deadline."""

    def __init__(self, connections: int) -> None:
        self._asking = anyio.Semaphore(connections)
        self._patient = anyio.Semaphore(PATIENT)
        self.connecting = anyio.Semaphore(CONNECTING)

    def asking(self, ask: Ask) -> anyio.Semaphore:
        """Held as long as it asks."""
        return self._patient if ask.patient else self._asking


class LoopAdmissions:
    """Those of all event loops, each its own.

    Args:
        connections: used at a time by each.
    """

    def __init__(self, connections: int) -> None:
        self._connections = connections
        self._of: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, AsyncAdmission] = weakref.WeakKeyDictionary()
        self._lock = threading.Lock()

    def here(self) -> AsyncAdmission:
        """Those of the loop that runs."""
        loop = asyncio.get_running_loop()
        with self._lock:
            found = self._of.get(loop)
            if found is None:
                found = self._of[loop] = AsyncAdmission(self._connections)
            return found


@contextmanager
def _held(semaphore: threading.Semaphore, deadline: Deadline) -> Iterator[None]:
    if not semaphore.acquire(timeout=deadline.left()):
        raise Late
    try:
        yield
    finally:
        semaphore.release()
