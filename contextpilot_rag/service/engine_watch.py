"""Engines: those that the service follows by itself, as a part of it; they move the trees of all tenants.

Threads listen to the engines and work out what follows; only what is to be done to a tree reaches the event loop, a
slice at a time between requests.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ..engines.engine import Engine, Kind, Level
from ..engines.events import EventCounts
from ..engines.following import Following
from ..engines.mirror import MirrorCounts
from ..engines.shown import shown_url
from ..types import Alignment, Namespace, Usage
from .core import Service
from .covers import Cover, Covers
from .handover import Back, Empty, Forgetting, Gone, Handover
from .loop_work import Slices, ended
from .residency import Residency


@dataclass(frozen=True, slots=True)
class FollowedEngine:
    """One engine, to be shown.

    Args:
        name: the operator's for it.
        url: its address.
        alive: whether it answers.
        level: how it is followed.
        why: why it does not answer, or is not followed by its events; empty: nothing is wrong.
        kind: which software it is.
        capacity_tokens: what its cache holds; None: not known.
        block_size: tokens of one KV block; None: not known.
        listened: whether it was said where it tells its events.
        counts: what came of these.
        lost: how often all that it had told was dropped.
        last_event: seconds since the last one; None: there was none.
    """

    name: str
    url: str
    alive: bool
    level: Level
    why: str
    kind: Kind
    capacity_tokens: int | None
    block_size: int | None
    listened: bool
    counts: EventCounts
    lost: int
    last_event: float | None


@dataclass(frozen=True, slots=True)
class FollowedFigures:
    """What is known of all engines that are followed.

    Args:
        engines: each.
        mirror: what is known of their caches, and of prompts.
        covers_dropped: what clients told of prompts and was let go.
        pruned: entries of trees that were dropped, as engines no longer have them.
        restored: paths that came back.
        emptied: how often no engine had anything any more.
        waiting: what is still to be done to trees.
    """

    engines: tuple[FollowedEngine, ...] = ()
    mirror: MirrorCounts = field(default_factory=MirrorCounts)
    covers_dropped: int = 0
    pruned: int = 0
    restored: int = 0
    emptied: int = 0
    waiting: int = 0


class EngineWatch:
    """A part of a service, and a watcher: follows engines, and keeps the service's trees in step.

    Args:
        engines: to be followed.
        service: whose trees.
        moved: told after each change of a tree.
        clock: seconds that never run backwards.
    """

    def __init__(
        self,
        engines: Sequence[Engine],
        service: Service,
        moved: Callable[[], object] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._engines = engines
        self._service = service
        self._moved = moved
        self._clock = clock
        self._handover = Handover()
        self.residency = Residency(
            engines, self._handover, clock, service.settings.capacity_tokens, self._told_everything
        )
        self._following = Following(self.residency, clock=clock)
        self._covers = Covers(self.residency)
        self._forgetting: Counter[Forgetting] = Counter()
        self._counts: Counter[str] = Counter()
        self._task: asyncio.Task[None] | None = None
        self._listened = any(engine.events for engine in engines)
        service.forgetting.append(self._forget)

    async def start(self) -> None:
        """Follow them, from here on.

        Raises:
            MissingPackage: engines tell events, and pyzmq is not installed.
        """
        self._handover.open()
        self._task = asyncio.create_task(self._run())
        self._covers.start()
        for engine in self._engines:
            self._following.add(engine)

    async def stop(self) -> None:
        """Follow nobody any more."""
        self._handover.close()  # so that no thread waits for the loop, which waits for it
        await asyncio.to_thread(self._close)
        if self._task is not None:
            await ended(self._task)
            self._task = None

    def reload(self) -> None:
        """It reads no files."""

    def cover(self, cover: Cover) -> bool:
        """Take in where a prompt stands, later; whether that is of use."""
        return self._listened and self._covers.put(cover)

    def aligned(self, tenant: str, alignment: Alignment, engine: str | None, again_tokens: int) -> None:
        """What is sent is not cached yet."""

    def observed(self, tenant: str, alignment: Alignment, engine: str | None, usage: Usage) -> None:  # noqa: ARG002
        """An engine answers, so that it should tell of it."""
        name = self.residency.called(engine)
        if name is not None:
            self._following.reported(name, usage)

    def forgot(self, tenant: str, namespace: Namespace | None) -> None:
        """Pools say themselves what is forgotten of them."""

    def figures(self) -> FollowedFigures:
        """To be shown. May wait for a moment, so not in the event loop."""
        now = self._clock()
        return FollowedFigures(
            engines=tuple(
                FollowedEngine(
                    name=name,
                    url=shown_url(member.engine.url),
                    alive=member.alive,
                    level=member.level,
                    why=member.why or member.level_why,
                    kind=member.kind,
                    capacity_tokens=member.capacity_tokens,
                    block_size=member.block_size,
                    listened=bool(member.engine.events),
                    counts=self._following.event_counts(name),
                    lost=member.lost,
                    last_event=None if member.last_event is None else now - member.last_event,
                )
                for name, member in self.residency.members.items()
            ),
            mirror=self.residency.counts(),
            covers_dropped=self._covers.dropped,
            pruned=self._counts["pruned"],
            restored=self._counts["restored"],
            emptied=self._counts["emptied"],
            waiting=len(self._handover),
        )

    def drained(self, timeout: float = 10.0) -> bool:
        """Wait until all that engines and clients told so far was found out, for tests; not in the event loop."""
        ends = self._clock() + timeout
        if not self._covers.drained(timeout) or not self._following.drained(max(0.0, ends - self._clock())):
            return False
        while len(self._handover) and self._clock() < ends:
            time.sleep(0.001)
        return not len(self._handover)

    def _told_everything(self, name: str) -> bool:
        return self._following.event_counts(name).complete

    def _close(self) -> None:
        self._following.close()
        self._covers.stop()

    def _forget(self, kind: str, name: str, namespace: Namespace | None) -> None:
        """What was found before is not to bring back what somebody has just had forgotten."""
        forgetting = self._covers.forget(Forgetting(kind, name, namespace))
        if forgetting is not None:
            self._forgetting[forgetting] += 1

    async def _run(self) -> None:
        slices = Slices()
        while True:
            await self._handover.wait()
            slices.resume()
            size = self._handover.size()
            if size is not None:
                for _ in self._service.resize(*size):
                    await slices.next()
            while (step := self._handover.next()) is not None:
                if isinstance(step, Empty):
                    dropped = False
                    for known in self._service.empty():
                        dropped = dropped or known
                        await slices.next()
                    if dropped:
                        self._counts["emptied"] += 1
                        self._moved()
                else:
                    self._take(step)
                await slices.next()

    def _take(self, step: Gone | Back | Forgetting) -> None:
        if isinstance(step, Forgetting):
            self._forgetting[step] -= 1
            if self._forgetting[step] <= 0:
                del self._forgetting[step]
            return
        kind, name, namespace = step.space
        pool = self._service.known_pool(kind, name)
        if pool is None:  # a tenant that is no more
            return
        if isinstance(step, Gone):
            dropped = pool.index.prune(namespace, [block.key for block in step.path])
            self._counts["pruned"] += dropped
        else:
            if any(forgetting.concerns(step.space) for forgetting in self._forgetting):
                return
            pool.index.restore(namespace, step.path)
            self._counts["restored"] += 1
        self._moved()
