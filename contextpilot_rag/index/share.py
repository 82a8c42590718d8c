"""Share: what an index keeps for one namespace."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import TypeVar

from ..errors import StateError
from ..types import Alignment, Namespace, Usage
from .ages import Ages
from .ahead import Ahead
from .believed import Believed, Both
from .history import HISTORY_REQUESTS, History
from .plain_keys import MOST_BLOCKS
from .reports import Reports, Terms
from .shadow import PACE, SHADOW_BLOCKS, AdaptiveTail, FixedTail, Standing, Tail
from .state import (
    HistoryPart,
    NamespacePart,
    StatePart,
    TreePart,
    UsesPart,
    dump_history,
    dump_tree,
    load_history,
    load_tree,
)
from .tail import CANDIDATES, CANDIDATES_OF_SMALL_CACHES, POLICIES
from .tree import PrefixTree

PartT = TypeVar("PartT", TreePart, HistoryPart)


@dataclass(frozen=True, slots=True)
class Limits:
    """What each share is made with.

    Args:
        terms: what reports are read with, the capacity among them.
        max_blocks: entries of a tree.
        max_total_blocks: entries of all that all shares keep.
        history: recent requests that tails look at.
        tail: "adaptive", or a policy's name.
        cache_seconds: what was not used for so long is taken as evicted.
    """

    terms: Terms = field(default_factory=Terms)
    max_blocks: int = 1_000_000
    max_total_blocks: int | None = None
    history: int = HISTORY_REQUESTS
    tail: str = "adaptive"
    cache_seconds: float | None = None

    def new_share(self) -> Share:
        """An empty share."""
        return self.share_of(PrefixTree(self.terms.capacity_tokens, self.tree_blocks(0)))

    def share_of(self, tree: PrefixTree, tail: Tail | None = None) -> Share:
        """A share with a tree and tails."""
        ages = None if self.cache_seconds is None else Ages(self.cache_seconds)
        share = Share(tree, tail, ages=ages)
        share.size = share.entries
        tree.pace = PACE
        return share

    def new_tail(self) -> Tail:
        """Tails of one namespace. Where all shares have a limit together, they take at most half of it."""
        candidates = CANDIDATES if self.terms.capacity_tokens is None else CANDIDATES_OF_SMALL_CACHES
        history, shadows = History(self.history), min(SHADOW_BLOCKS, self.max_blocks)
        if self.max_total_blocks is not None:
            most = max(1, self.max_total_blocks // (2 * len(candidates) + 2))
            history, shadows = History(self.history, most), min(shadows, most)
        if self.tail == "adaptive":
            return AdaptiveTail(history, candidates, self.terms.capacity_tokens, shadows)
        return FixedTail(POLICIES[self.tail], history)

    def tree_blocks(self, tail: int) -> int:
        """Entries that a tree may have beside a tail of so many."""
        if self.max_total_blocks is None:
            return self.max_blocks
        return max(1, min(self.max_blocks, self.max_total_blocks - tail))


@dataclass(slots=True, eq=False)
class Share:
    """One namespace: its tree, its tails, and the lock that serialises whoever works on them.

    Args:
        tree: what is believed cached.
        tail: made when the first request asks for it.
        size: entries of both, as they were counted last.
        dropped: the index does not have it any more.
        reports: what usage reports have taught.
        ages: what is too old, where there is a time to live.
        origin: the record that the tree began with, where it follows a log; empty: none came yet.
        ahead: what was sent from here and is not in the tree yet, where the tree follows a log.
        lock: is held by whoever works on the tree or the tail.
    """

    tree: PrefixTree
    tail: Tail | None = None
    size: int = 0
    dropped: bool = False
    reports: Reports = field(default_factory=Reports)
    ages: Ages | None = None
    origin: str = ""
    ahead: Ahead | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def entries(self) -> int:
        """Of the trees and the tails."""
        own = self.tree.blocks if self.ahead is None else self.tree.blocks + self.ahead.tree.blocks
        return own + (self.tail.entries if self.tail else 0)

    @property
    def believed(self) -> Believed:
        """What orders are chosen by."""
        return self.tree if self.ahead is None else Both(self.tree, self.ahead.tree)

    def expire(self, now: float) -> None:
        """Forget what is too old."""
        until = None if self.ages is None else self.ages.expired(now)
        if until is not None:
            self.tree.forget_until(until)

    def _used(self, now: float) -> None:
        if self.ages is not None:
            self.ages.note(now, self.tree.clock)

    def sent(self, alignment: Alignment, limits: Limits, now: float) -> Alignment:
        """Take a request as sent; the alignment with what is expected of it."""
        blocks = alignment.request.blocks
        if self.tail is not None:
            self.tree.max_blocks = limits.tree_blocks(self.tail.entries)
        expected = alignment.expected_cached_tokens
        if expected is None:
            expected = self.reports.expected(alignment, limits.terms)
        sequence = [blocks[rank] for rank in alignment.order]
        belief = self.reports.sent(alignment, sequence, self.tree)
        self._used(now)
        return replace(alignment, expected_cached_tokens=expected, belief=belief)

    def answered(self, alignment: Alignment, usage: Usage, limits: Limits, now: float) -> int | None:
        """Learn from a report, and mark the request's path as used just now.

        Returns:
            How many entries were pruned; None: nothing was found cold.
        """
        pruned = self.reports.answered(alignment, usage, self.tree, limits.terms)
        self.tree.touch([alignment.request.blocks[rank] for rank in alignment.order])
        self._used(now)
        if usage.cached_tokens is not None:
            self.resize(limits)
        return pruned

    def resume(self, uses: UsesPart, limits: Limits) -> None:
        """Be the very same as another, whose nodes are here."""
        self.tree.resume(uses.times, uses.clock, uses.gone, uses.beside)
        self.origin = uses.origin
        self.reports.resume(uses.reports)
        self.tree.capacity_tokens = self.reports.capacity(limits.terms)

    def resize(self, limits: Limits) -> None:
        """Have the capacity that is known or learnt now; tails imagine the one that was given."""
        if self.tail is not None:
            self.tail.resize(limits.terms.capacity_tokens)
        capacity = self.reports.capacity(limits.terms)
        if capacity != self.tree.capacity_tokens:
            self.tree.resize(capacity)


@dataclass(frozen=True, slots=True)
class Size:
    """How large a namespace's tree is.

    Args:
        blocks: its entries.
        tokens: theirs.
    """

    blocks: int
    tokens: int


def dump_share(namespace: Namespace, share: Share, *, exact: bool = False) -> Iterator[StatePart]:
    """A share in parts; it may be used between any two of them, and is locked only while one is made.

    Args:
        namespace: whose it is.
        share: of it.
        exact: so that it can be the very same elsewhere, with all that reports have taught; if it is not changed
            between two parts.
    """
    times: list[int] = []
    yield NamespacePart(namespace.tenant, namespace.model, namespace.corpus, namespace.head)
    yield from locked(share, dump_tree(share.tree, times))
    if exact:
        with share.lock:
            uses = UsesPart(times, *share.tree.standing, share.origin, share.reports.standing())
        yield uses
    tail = share.tail
    if tail is None:
        return
    with share.lock:
        standing, history = tail.standing(), dump_history(tail.history)
    yield standing or HistoryPart([], [])
    yield from locked(share, history)


def locked(share: Share, steps: Iterator[PartT]) -> Iterator[PartT]:
    """The same steps, each taken under the share's lock."""
    while True:
        with share.lock:
            step = next(steps, None)
        if step is None:
            return
        yield step


def load_shares(parts: Iterable[StatePart], limits: Limits) -> list[tuple[Namespace, Share]]:
    """Shares as parts tell of them, each within the limits.

    Raises:
        StateError: the parts tell of none.
    """
    groups: list[tuple[NamespacePart, list[TreePart], list[HistoryPart], list[Standing], list[UsesPart]]] = []
    for part in parts:
        if isinstance(part, NamespacePart):
            groups.append((part, [], [], [], []))
        elif not groups:
            raise StateError("a saved state begins with no namespace")
        elif isinstance(part, TreePart):
            groups[-1][1].append(part)
        elif isinstance(part, HistoryPart):
            groups[-1][2].append(part)
        elif isinstance(part, Standing):
            groups[-1][3].append(part)
        else:
            groups[-1][4].append(part)
    shares = []
    for head, trees, histories, standings, exact in groups:
        tail = None
        if histories:
            tail = limits.new_tail()
            load_history(histories, tail.history)
            for standing in standings:
                tail.resume(standing)
        most = limits.tree_blocks(tail.entries if tail else 0)
        tree = _exact_tree(trees, most) if exact else load_tree(trees, limits.terms.capacity_tokens, most)
        share = limits.share_of(tree, tail)
        for uses in exact:
            share.resume(uses, limits)
        shares.append((Namespace(head.tenant, head.model, head.corpus, head.head), share))
    return shares


def _exact_tree(parts: Iterable[TreePart], most: int) -> PrefixTree:
    """With what is over its limits, too: the request that was sent last is kept, however large."""
    tree = load_tree(parts, None, most + MOST_BLOCKS)
    tree.max_blocks = most
    return tree
