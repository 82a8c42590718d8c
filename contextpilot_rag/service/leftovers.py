"""Leftovers: trees that were forgotten, freed a little at a time.

To free one of 10,000 contexts at once takes some ten milliseconds, in which nobody is answered. So a tree that nothing
asks for any more is taken apart between requests, leaves first.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

from ..index.fed import FedIndex, Journal
from ..index.local import LocalIndex
from ..index.plain_keys import plain_request
from ..index.state import TreePart, dump_tree
from ..index.tree import PrefixTree
from ..types import Alignment, Namespace
from .loop_work import ended

_SLICE = 200  # nodes: some 0.2 ms
_SMALL = 1_000  # entries: freed at once
_EVICTED = 500  # entries in a step
_COPIED = 5_000  # entries of a tree that is copied in one go: some milliseconds


class Leftovers:
    """A part of a service. Until it is started, and after it was stopped, what it is given is freed at once."""

    def __init__(self) -> None:
        self._trees: deque[PrefixTree] = deque()
        self._some = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def __len__(self) -> int:
        return len(self._trees)

    def add(self, tree: PrefixTree) -> None:
        """Take a tree that nobody else will use; in any thread."""
        loop = self._loop
        if loop is not None and tree.blocks > _SMALL:
            self._trees.append(tree)
            with suppress(RuntimeError):  # the loop has just ended: it goes with the others
                loop.call_soon_threadsafe(self._some.set)

    async def start(self) -> None:
        """From here on."""
        self._task = asyncio.create_task(self._run())
        self._loop = asyncio.get_running_loop()

    async def stop(self) -> None:
        """What is left goes at once: nobody waits any more."""
        self._loop = None
        if self._task is not None:
            await ended(self._task)
            self._task = None
        self._trees.clear()

    def reload(self) -> None:
        """It reads no files."""

    async def _run(self) -> None:
        while True:
            await self._some.wait()
            self._some.clear()
            while self._trees:
                while self._trees[0].dismantle(_SLICE):  # noqa: ASYNC110  each look is a step
                    await asyncio.sleep(0)
                self._trees.popleft()


class ServedIndex(FedIndex):
    """An index whose trees are not freed where they are forgotten, and which follows a log where it has a journal.

    Args:
        leftovers: takes them.
        *args: as `FedIndex` has them.
        **more: these, too.

    Attributes:
        on_forget: called with what is to be forgotten, whether it is known here or not.
    """

    def __init__(self, leftovers: Leftovers, *args: Any, **more: Any) -> None:  # noqa: ANN401
        super().__init__(*args, keep_all=True, **more)
        self._leftovers = leftovers
        self.on_forget: Callable[[Namespace | None], object] | None = None

    def follow(self, journal: Journal | None) -> None:
        """Tell a journal from now on; nothing was told to any before."""
        self._journal = journal

    def taken(self, alignment: Alignment) -> Alignment:
        """As `sent`; the alignment, by which its usage can be reported on every replica."""
        if self._journal is None:
            self.sent(alignment)
            return alignment
        own = replace(alignment, request=plain_request(alignment.request))
        share = self._share(own.request.namespace)
        with share.lock:
            told = self._tell(own, share, learn=False)
        return replace(told, request=alignment.request)

    def forget(self, namespace: Namespace | None = None) -> None:
        """Drop what is known of a namespace, under any head if it names none, or of all."""
        super().forget(namespace)
        if self.on_forget is not None:
            self.on_forget(namespace)

    def empty(self) -> None:
        """Take it that nothing is cached any more. Nobody asked for it to be forgotten, and it may come back."""
        LocalIndex.forget(self)

    def dump_tree(self, namespace: Namespace) -> Iterator[TreePart]:
        """A namespace's tree in parts, used last first.

        What the log has not brought back yet is part of a small one; a large one lacks the last few milliseconds.
        """
        with self._lock:
            share = self._shares.get(namespace)
        whole = None
        if share is not None and share.ahead is not None and share.tree.blocks <= _COPIED:
            whole = self.tree(namespace)
        yield from super().dump_tree(namespace) if whole is None else dump_tree(whole)

    def shrink(self, capacity_tokens: int | None, kv_block_tokens: int | None) -> Iterator[None]:
        """As `resize`, in steps: in each, the largest trees lose some hundred entries together."""
        sizes = list(self.namespaces().values())
        if capacity_tokens is not None and sizes:
            large = [size for size in sizes if size.tokens > capacity_tokens]
            now = max(size.tokens for size in sizes)
            each = sum(size.tokens for size in large) // max(1, sum(size.blocks for size in large))
            step = max(1, _EVICTED * each // max(1, len(large)))
            while now - step > capacity_tokens:
                now -= step
                self.resize(now, kv_block_tokens)
                yield
        self.resize(capacity_tokens, kv_block_tokens)
        yield

    def _drop(self, namespace: Namespace) -> None:
        tree = self._shares[namespace].tree
        super()._drop(namespace)
        self._leftovers.add(tree)
