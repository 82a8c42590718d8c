"""The inside of a FakeEngine: its cache, the events of that, and what it counts. No sockets."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from ..engines.kv import Event
from .chat import text_tokens
from .events import EventLog
from .paged import PagedPrefixCache
from .wire import EventOptions


class Core:
    """Serves prompts. Thread-safe.

    Args:
        block_size: as `PagedPrefixCache`.
        capacity_blocks: as `PagedPrefixCache`.
        options: with dialect and hashes; None: nothing is told.

    Raises:
        SettingsError: a value that cannot be.
    """

    def __init__(self, block_size: int, capacity_blocks: int | None, options: EventOptions | None) -> None:
        self.log = None if options is None else EventLog(options)
        self.cache = self._empty(block_size, capacity_blocks)
        self.queried_tokens = 0
        """Of all prompts."""
        self.hit_tokens = 0
        """Those of them that were cached."""
        self.running = 0
        """Requests that are at work."""
        self._number = 0  # of the latest request
        self._lock = threading.Lock()

    @property
    def hashes(self) -> frozenset[int]:
        """The hashes of the cache's full blocks, as events call them."""
        with self._lock:
            return self.cache.hashes

    def serve(
        self, tokens: Sequence[int], salt: str | None, answer: Callable[[int], Sequence[str]]
    ) -> tuple[int, int, Sequence[str]]:
        """Look a prompt up and cache it with its answer.

        Args:
            tokens: of the prompt.
            salt: of the prompt.
            answer: gets how many of them were cached, and says what is answered, in pieces.

        Returns:
            The request's number; how many tokens were cached; the answer.
        """
        with self._lock:
            cached = self.cache.lookup(tokens, salt)
            said = answer(cached)
            self._number += 1
            self.cache.serve(tokens, salt, text_tokens("".join(said)))
            self.queried_tokens += len(tokens)
            self.hit_tokens += cached
            return self._number, cached, said

    def prefilled(self, number: int) -> None:
        """A request is through with its prompt: what happened for it, and for those before it, is published."""
        if self.log is not None:
            self.log.release(number)

    def reset(self) -> None:
        """Empty the cache, and tell."""
        with self._lock:
            self._number += 1  # so that it is not told with the latest request, but with the next
            self.cache.clear()
            number = self._number
        if self.log is not None and not self.log.options.late_clear:
            self.log.release(number)

    def crash(self) -> None:
        """Empty the cache and tell nobody; what is told from now on is numbered from 0 again."""
        with self._lock:
            if self.log is not None:
                self.log.publish_by(None)
                self.log = EventLog(self.log.options)
            self.cache = self._empty(self.cache.block_size, self.cache.capacity_blocks)

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """One more request is running, as long as this lasts."""
        with self._lock:
            self.running += 1
        try:
            yield
        finally:
            with self._lock:
                self.running -= 1

    def _empty(self, block_size: int, capacity_blocks: int | None) -> PagedPrefixCache:
        return PagedPrefixCache(block_size, capacity_blocks, None if self.log is None else self._hold)

    def _hold(self, events: tuple[Event, ...], salt: str | None) -> None:
        # Called by the cache, under the lock, so that the log has the cache's order.
        if self.log is not None:
            self.log.hold(self._number, events, salt)
