"""Lane: one prefix tree, and the mirror of the cache, or caches, that it stands for."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from ..forking import after_fork, was_held
from ..index.local import LocalIndex
from ..types import Alignment, BlockRef, IndexStats, Namespace, Request
from .covering import Covering
from .engine import Level
from .known import Known
from .kv import Event
from .shown import shown_url
from .status import EngineStatus

MAX_HEADS = 10_000
EVENTS_ROOM = 2
"""Where events tell what is gone, the tree may have so many times the cache's capacity, to bound what is not told."""


class Moves(Protocol):
    """Paths of trees, each with whose it is, that are gone or back."""

    @property
    def gone(self) -> Sequence[tuple[Hashable, tuple[BlockRef, ...]]]:
        """Paths whose last block, and what follows it, is no longer cached."""
        ...

    @property
    def back(self) -> Sequence[tuple[Hashable, tuple[BlockRef, ...]]]:
        """Paths that are cached again."""
        ...


class Counted(Protocol):
    """What a mirror has."""

    @property
    def kv_blocks(self) -> int:
        """KV blocks that are there."""
        ...

    @property
    def matched(self) -> int:
        """Answered prompts that the holder told of."""
        ...

    @property
    def mismatched(self) -> int:
        """Those that it never told of: it has other tokens than it was thought to have."""
        ...


class LaneMirror(Protocol):
    """What a lane needs of a mirror. Thread-safe; holder: an engine's name and a rank."""

    def apply(self, holder: tuple[str, int], events: Sequence[Event], /) -> Moves:
        """A holder told of its cache."""
        ...

    def lost(self, holder: tuple[str, int], /) -> Moves:
        """What a holder has is not known any more."""
        ...

    def whole(self, holder: tuple[str, int], /) -> Moves:
        """A holder told all that happened since its start."""
        ...

    def remove(self, engine: str, /) -> Moves:
        """An engine is gone."""
        ...

    def cover(
        self,
        space: Hashable,
        salt: str | None,
        blocks: Sequence[BlockRef],
        covering: Covering,
        holder: tuple[str, int] | None = None,
        cached_tokens: int | None = None,
    ) -> Moves:
        """Where a prompt's blocks stand among the KV blocks."""
        ...

    def expected(self, space: Hashable, blocks: Sequence[BlockRef], /) -> int | None:
        """Tokens of a prompt that would be reported as cached."""
        ...

    def forget(self, space: Hashable, /) -> None:
        """Drop what is known of one whose tree it is."""
        ...

    def spaces(self) -> list[Hashable]:
        """Those of whom something is known."""
        ...

    def counts(self) -> Counted:
        """How much there is."""
        ...


class Lane:
    """One tree and its mirror. Thread-safe.

    Requests work on the index alone, and never wait for the lane's lock: that only keeps those who tell of the cache in
    order, so that the tree hears of a path's end and return in the order in which the mirror found them.

    Args:
        index: its trees, one for each namespace.
        mirror: what is in the cache.
    """

    def __init__(self, index: LocalIndex, mirror: LaneMirror) -> None:
        self.index = index
        self._given = index.terms  # counts where the engine says nothing
        self._mirror = mirror
        self._heads: OrderedDict[Namespace, None] = OrderedDict()  # those whose prompts' beginning is cached here
        self._size = self._given.capacity_tokens, self._given.kv_block_tokens, False
        self._lock = threading.Lock()
        self._heads_lock = threading.Lock()  # the only one that a request takes, for no longer than a look-up
        after_fork(self, Lane._renew)

    def counts(self) -> Counted:
        """What its mirror has."""
        return self._mirror.counts()

    def change(self, tell: Callable[[LaneMirror], Moves]) -> None:
        """Tell the mirror something, and the trees what follows from it."""
        with self._lock:
            self._change(tell)

    def cover(
        self,
        namespace: Namespace,
        salt: str | None,
        blocks: Sequence[BlockRef],
        covering: Covering,
        holder: tuple[str, int] | None,
        cached_tokens: int | None,
    ) -> None:
        """Where a prompt's blocks stand among the KV blocks; as `Mirror.cover`."""
        self.change(lambda mirror: mirror.cover(namespace, salt, blocks, covering, holder, cached_tokens))

    def expected(self, namespace: Namespace, blocks: Sequence[BlockRef]) -> int | None:
        """Tokens of a prompt with these blocks in this order that the engine should report as cached."""
        return self._mirror.expected(namespace, blocks)

    def resize(self, capacity_tokens: int | None, block_size: int | None, level: Level) -> None:
        """The cache's size, and how it is followed, as far as it is known now. A capacity that was set stays."""
        capacity_tokens = self._given.capacity_tokens or capacity_tokens  # what was set may be a share of it
        block_size = block_size or self._given.kv_block_tokens
        if level == "events" and capacity_tokens is not None:
            capacity_tokens *= EVENTS_ROOM
        size = capacity_tokens, block_size, level == "events"
        with self._lock:
            before, self._size = self._size, size
            if size[:2] != before[:2]:
                self.index.resize(capacity_tokens, block_size)
            if size[2] != before[2]:
                self.index.follow_usage(level != "events")

    def note_head(self, namespace: Namespace) -> None:
        """A request of a namespace with a head went here."""
        with self._heads_lock:
            self._heads[namespace] = None
            self._heads.move_to_end(namespace)
            if len(self._heads) > MAX_HEADS:
                self._heads.popitem(last=False)

    def head_tokens(self, request: Request) -> int:
        """What has to be computed before a request's blocks: a conversation's beginning is as long as they, say."""
        namespace = request.namespace
        if not namespace.head:
            return 0
        with self._heads_lock:
            return 0 if namespace in self._heads else request.tokens

    def forget(self, namespace: Namespace | None = None) -> None:
        """Drop what is known of a namespace, under any head if it names none, or of all."""
        with self._lock:
            for known in [space for space in self._mirror.spaces() if isinstance(space, Namespace)]:
                if _means(namespace, known):
                    self._mirror.forget(known)
            self._forget_heads(namespace)
            self.index.forget(namespace)

    def drop(self, engine: str) -> None:
        """An engine is gone: what was known of its cache, too."""
        with self._lock:
            self._change(lambda mirror: mirror.remove(engine))

    def empty(self) -> None:
        """Nothing is cached any more. What is known of prompts stays with the mirror."""
        with self._lock:
            self._forget_heads(None)
            self.index.empty()

    def clear(self, tell: Callable[[LaneMirror], Moves]) -> None:
        """Tell the mirror that nothing is there, so the trees, too: they know prompts that the mirror does not."""
        with self._lock:
            self._change(tell)
            self._forget_heads(None)
            self.index.empty()

    def _forget_heads(self, namespace: Namespace | None) -> None:
        with self._heads_lock:
            for known in [known for known in self._heads if _means(namespace, known)]:
                del self._heads[known]

    def _change(self, tell: Callable[[LaneMirror], Moves]) -> None:
        moves = tell(self._mirror)
        for space, path in moves.gone:
            if isinstance(space, Namespace):
                self.index.prune(space, [block.key for block in path])
        for space, path in moves.back:
            if isinstance(space, Namespace):
                self.index.restore(space, path)

    def _renew(self) -> None:
        """In a forked child. A change that was half made is made good by the next report of the same path."""
        if was_held(self._lock):
            self.index.empty()
        self._lock, self._heads_lock = threading.Lock(), threading.Lock()
        self._heads = OrderedDict(dict.items(self._heads))  # which may have been in the middle of a change, too


@dataclass(slots=True, eq=False)
class Member(Known):
    """One engine of a fleet, and what is known of it.

    Args:
        lane: its tree, or the pool's.
        requests: that were sent there.
        observed: of those, how many were reported on.
        reported: cached tokens.
        reported_of_expected: those of requests where something was expected.
        expected: what was.
        events: that it told.
        lost: how often its events were lost.
        last_event: when it told something last, by the fleet's clock.
    """

    lane: Lane = field(kw_only=True)
    requests: int = 0
    observed: int = 0
    reported: int = 0
    reported_of_expected: int = 0
    expected: int = 0
    events: int = 0
    lost: int = 0
    last_event: float | None = None

    def status(self, stats: IndexStats, outstanding: int, now: float) -> EngineStatus:
        """All of it, to be shown.

        Args:
            stats: of its index.
            outstanding: tokens that it has to prefill.
            now: by the fleet's clock.
        """
        return EngineStatus(
            name=self.engine.name,
            url=shown_url(self.engine.url),
            alive=self.alive,
            level=self.level,
            why=self.why or self.level_why,
            kind=self.kind,
            capacity_tokens=self.capacity_tokens,
            block_size=self.block_size,
            tree_blocks=stats.tree_blocks,
            tree_tokens=stats.tree_tokens,
            kv_blocks=self.lane.counts().kv_blocks,
            outstanding_tokens=outstanding,
            waiting=self.facts.waiting,
            requests=self.requests,
            observed=self.observed,
            reported_cached_tokens=self.reported,
            expected_cached_tokens=self.expected,
            events=self.events,
            lost=self.lost,
            last_event=None if self.last_event is None else now - self.last_event,
            reported_of_expected=self.reported_of_expected,
        )


def ordered(alignment: Alignment) -> list[BlockRef]:
    """Its blocks in prompt order."""
    return [alignment.request.blocks[rank] for rank in alignment.order]


def expecting(alignment: Alignment, members: Sequence[Member], lane: Lane) -> Alignment:
    """With what is expected to be reported, by whichever of these engines has most of it.

    What reports have taught is true of one cache. Of several, only the mirror knows, if it is in step with all of them.
    Nobody knows which of an engine's data-parallel ranks will answer, each with a cache of its own: then nothing is
    expected.

    Args:
        alignment: of a request that goes to one of them.
        members: the engines.
        lane: their tree.
    """
    if any(member.engine.ranks > 1 for member in members):
        return replace(alignment, expected_cached_tokens=None)
    expected = alignment.expected_cached_tokens if len(members) < 2 else None
    if members and all(member.level == "events" for member in members):
        found = lane.expected(alignment.request.namespace, ordered(alignment))
        expected = expected if found is None else found
    return replace(alignment, expected_cached_tokens=expected)


class Sized(Protocol):
    """What is known of an engine's size."""

    @property
    def capacity_tokens(self) -> int | None:
        """Tokens that its cache holds."""
        ...

    @property
    def block_size(self) -> int | None:
        """Tokens of its KV blocks."""
        ...

    @property
    def level(self) -> Level:
        """How it is followed."""
        ...


def size_of_pool(members: Sequence[Sized]) -> tuple[int | None, int | None, Level]:
    """The size of one tree for several engines, and how well it is followed.

    That is all that they hold together, if all of them say; their largest KV block; and no better than the worst.
    """
    sizes = [member.capacity_tokens for member in members]
    known = [size for size in sizes if size is not None]
    blocks = [member.block_size for member in members if member.block_size is not None]
    level: Level = "events" if all(member.level == "events" for member in members) else "usage"
    return sum(known) if known and len(known) == len(sizes) else None, max(blocks, default=None), level


def _means(namespace: Namespace | None, known: Namespace) -> bool:
    """Whether `forget` of the one drops the other."""
    return namespace in {None, known, replace(known, head="")}
