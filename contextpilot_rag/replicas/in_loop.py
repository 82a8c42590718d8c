"""InLoop: work on what belongs to an event loop, asked for by a replica's thread, which waits for it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import CancelledError, Future
from typing import Any, TypeVar

T = TypeVar("T")


class InLoop:
    """Has things done in an event loop, as long as it is open. Never asked in that loop itself."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting: set[Future[Any]] = set()

    def open(self) -> None:
        """Work in the loop that runs."""
        self._loop = asyncio.get_running_loop()

    def close(self) -> None:
        """Work no more, and keep nobody waiting."""
        with self._lock:
            self._loop = None
            waiting = list(self._waiting)
        for future in waiting:
            future.cancel()

    def done(self, work: Coroutine[Any, Any, T], otherwise: T) -> T:
        """Have it done, and wait; or something else, where there is no loop any more."""
        with self._lock:
            if self._loop is None:
                work.close()
                return otherwise
            future = asyncio.run_coroutine_threadsafe(work, self._loop)
            self._waiting.add(future)
        try:
            return future.result()
        except CancelledError:
            return otherwise
        finally:
            with self._lock:
                self._waiting.discard(future)
