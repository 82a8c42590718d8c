"""Handover: what threads find out about engines' caches, on its way to the trees, which the event loop owns."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from ..engines.mirror import Changes
from ..engines.passages import Path
from ..types import Namespace

Space = tuple[str, str, Namespace]
"""Whose tree it is: the pool's kind and name, and the namespace."""

MOST_STEPS = 10_000


@dataclass(frozen=True, slots=True)
class Gone:
    """A path's last block, and what follows it, is in no engine's cache any more."""

    space: Space
    path: Path


@dataclass(frozen=True, slots=True)
class Back:
    """A path is in an engine's cache again."""

    space: Space
    path: Path


@dataclass(frozen=True, slots=True)
class Empty:
    """No engine has anything any more."""


@dataclass(frozen=True, slots=True)
class Forgetting:
    """Somebody had a namespace forgotten, or all of a pool; what was found before that must not bring it back.

    Args:
        kind: of the pool.
        name: of the pool.
        namespace: under any head if it names none; None: all.
    """

    kind: str
    name: str
    namespace: Namespace | None

    def concerns(self, space: Space) -> bool:
        """Whether a tree is meant."""
        kind, name, namespace = space
        if (kind, name) != (self.kind, self.name):
            return False
        named = self.namespace
        return named is None or namespace == named or (not named.head and _headless(namespace) == _headless(named))


Step = Gone | Back | Empty | Forgetting
"""One thing to do to the trees; `Forgetting`: from here on, nothing was found before it."""


class Handover:
    """Steps from threads to the event loop, in order. Bounded: who brings more than is done waits in its thread.

    Args:
        most: steps that wait; a bunch that begins below it is taken whole.
    """

    def __init__(self, most: int = MOST_STEPS) -> None:
        self._most = most
        self._steps: deque[Step] = deque()
        self._changed = threading.Condition()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._some = asyncio.Event()
        self._size: tuple[int | None, int | None] | None = None

    def __len__(self) -> int:
        return len(self._steps)

    def open(self) -> None:
        """Take steps, for the loop that runs."""
        self._loop = asyncio.get_running_loop()

    def close(self) -> None:
        """Take none any more, and keep nobody waiting."""
        with self._changed:
            self._loop = None
            self._steps.clear()
            self._changed.notify_all()

    def put(self, steps: Sequence[Step]) -> None:
        """Bring steps, in any thread but the loop's; waits while there are too many."""
        if not steps:
            return
        with self._changed:
            self._changed.wait_for(lambda: self._loop is None or len(self._steps) < self._most)
            if self._loop is not None:
                self._steps.extend(steps)
                self._loop.call_soon_threadsafe(self._some.set)

    def sized(self, capacity_tokens: int | None, kv_block_tokens: int | None) -> None:
        """How large caches are, as it is known now. In any thread; never waits, since only the last one counts."""
        with self._changed:
            self._size = (capacity_tokens, kv_block_tokens)
            if self._loop is not None:
                self._loop.call_soon_threadsafe(self._some.set)

    async def wait(self) -> None:
        """Until there is something to be done."""
        if not self._steps and self._size is None:
            self._some.clear()
            if not self._steps and self._size is None:  # it came just before
                await self._some.wait()

    def size(self) -> tuple[int | None, int | None] | None:
        """The size that came since the last time: capacity and KV block; None: none."""
        with self._changed:
            size, self._size = self._size, None
        return size

    def next(self) -> Step | None:
        """The next step; None: there is none."""
        with self._changed:
            if not self._steps:
                return None
            step = self._steps.popleft()
            if len(self._steps) == self._most - 1:
                self._changed.notify_all()
            return step


def steps_of(changes: Changes, *, empty: bool = False) -> list[Step]:
    """What follows for the trees.

    Args:
        changes: as the mirror found them.
        empty: no engine had anything when the changes began, so there is nothing to be looked for.
    """
    gone: list[Step] = [Empty()] if empty else [Gone(_space(space), path) for space, path in changes.gone]
    return gone + [Back(_space(space), path) for space, path in changes.back]


def _space(space: object) -> Space:
    assert isinstance(space, tuple)  # noqa: S101  nothing else is put into the mirror
    return space


def _headless(namespace: Namespace) -> tuple[str, str, str]:
    return namespace.tenant, namespace.model, namespace.corpus
