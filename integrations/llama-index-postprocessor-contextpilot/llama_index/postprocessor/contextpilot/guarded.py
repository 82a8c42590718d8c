"""Guarded: a memory of the framework that is used by one turn at a time; most of them bear no other use."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar
from weakref import WeakKeyDictionary, WeakValueDictionary

from llama_index.core.llms import ChatMessage
from llama_index.core.memory import BaseMemory, Memory
from llama_index.core.memory.types import BaseChatStoreMemory
from llama_index.core.storage.chat_store import BaseChatStore, SimpleChatStore

T = TypeVar("T")

_SECONDS = 0.002  # between two looks of a task at a lock that another thread or event loop holds


class Guarded:
    """A memory behind a lock, for threads and for the tasks of any number of event loops.

    Tasks never keep their event loop waiting. A memory whose blocking methods can be used from any thread is used in
    one, so that it is free again however long the event loop of the task is busy. One that is bound to an event loop,
    such as a database's, is awaited in the task's own.

    Args:
        memory: of the framework.
    """

    def __init__(self, memory: BaseMemory) -> None:
        self.memory = memory
        self._lock = threading.Lock()
        self._holder: asyncio.AbstractEventLoop | None = None  # whose task holds the lock
        self._tasks: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()
        self._making = threading.Lock()

    def messages(self, instead: Sequence[ChatMessage] | None = None) -> list[ChatMessage]:
        """All messages.

        Args:
            instead: take their place first.

        Raises:
            RuntimeError: called inside of an event loop one of whose tasks uses the memory at the moment.
        """
        with self._held():
            if instead is not None:
                self.memory.set(list(instead))
            return self.memory.get_all()

    async def amessages(self, instead: Sequence[ChatMessage] | None = None) -> list[ChatMessage]:
        """As `messages`."""

        async def use() -> list[ChatMessage]:
            if instead is not None:
                await self.memory.aset(list(instead))
            return await self.memory.aget_all()

        return await self._used(lambda: self.messages(instead), use)

    def put(self, messages: Sequence[ChatMessage]) -> None:
        """Add messages, all or none.

        Raises:
            RuntimeError: as for `messages`.
        """
        with self._held():
            self.memory.put_messages(list(messages))

    async def aput(self, messages: Sequence[ChatMessage]) -> None:
        """As `put`."""
        await self._used(lambda: self.put(messages), lambda: self.memory.aput_messages(list(messages)))

    def reset(self) -> None:
        """Forget all.

        Raises:
            RuntimeError: as for `messages`.
        """
        with self._held():
            self.memory.reset()

    @contextmanager
    def _held(self) -> Iterator[None]:
        if not self._lock.acquire(blocking=False):
            if self._holder is not None and self._holder is _running_loop():
                raise RuntimeError(
                    "the chat engine's memory is in use by a task of this event loop, which cannot go on while it is "
                    "waited for here: await achat or astream_chat, or use the engine in a thread of its own"
                )
            self._lock.acquire()
        try:
            yield
        finally:
            self._lock.release()

    async def _used(self, blocking: Callable[[], T], use: Callable[[], Awaitable[T]]) -> T:
        loop = asyncio.get_running_loop()
        with self._making:
            tasks = self._tasks.setdefault(loop, asyncio.Lock())
        async with tasks:  # so that of each event loop one task waits
            if _for_any_thread(self.memory):
                return await asyncio.to_thread(blocking)
            while not self._lock.acquire(blocking=False):  # noqa: ASYNC110  it may be a thread's
                await asyncio.sleep(_SECONDS)
            self._holder = loop
            try:
                return await use()
            finally:
                self._holder = None
                self._lock.release()


_guards: WeakValueDictionary[int, Guarded] = WeakValueDictionary()
_finding = threading.Lock()


def guarded(memory: BaseMemory) -> Guarded:
    """The guard of a memory: one for all engines that share it.

    >>> memory = Memory.from_defaults()
    >>> one, other = guarded(memory), guarded(memory)
    >>> one is other
    True
    """
    with _finding:
        found = _guards.get(id(memory))  # which is nobody else's as long as the guard holds the memory
        if found is None:
            found = _guards[id(memory)] = Guarded(memory)
        return found


def _for_any_thread(memory: Any) -> bool:  # noqa: ANN401
    """Whether a memory's blocking methods do the same as those to be awaited, from any thread and event loop."""
    if isinstance(memory, Memory):
        return not memory.memory_blocks and _is_in_memory(memory.sql_store)
    if isinstance(memory, BaseChatStoreMemory) and type(memory).aget_all is BaseChatStoreMemory.aget_all:
        store = type(memory.chat_store)
        return store is SimpleChatStore or store.aget_messages is BaseChatStore.aget_messages
    return type(memory).aget_all is BaseMemory.aget_all


def _is_in_memory(store: object) -> bool:
    """Whether the framework's own store is a SQLite database in this process, which has a thread of its own."""
    engine = getattr(store, "_async_engine", None)  # None: not made yet
    if engine is not None:
        return str(engine.url.drivername) == "sqlite+aiosqlite" and engine.url.database in (None, "", ":memory:")
    return getattr(store, "async_database_uri", None) in ("sqlite+aiosqlite:///:memory:", "sqlite+aiosqlite://")


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
