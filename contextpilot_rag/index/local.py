"""LocalIndex: the context index that lives in this process, and the protocol that it shares with later ones."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, Protocol

from ..errors import SettingsError
from ..forking import after_fork, was_held
from ..types import Alignment, BlockRef, IndexStats, Namespace, Request, Usage
from .align import align, placement_rule
from .counts import Counts
from .history import HISTORY_REQUESTS
from .lengths import plain
from .reports import Terms
from .share import Limits, Share, Size, dump_share, load_shares, locked
from .state import StatePart, TreePart, dump_tree
from .tail import POLICIES
from .tree import PrefixTree


class ContextIndex(Protocol):
    """What every context index can do. All methods may be called from many threads at once."""

    def align(self, request: Request) -> Alignment:
        """Choose an order for the request and take it as sent."""
        ...

    def predict(self, request: Request) -> int:
        """Tokens of the request that would be cached if it were sent now, in the best order its budget allows."""
        ...

    def sent(self, alignment: Alignment) -> None:
        """Take a request as sent in an order that was not chosen here: a plan's."""
        ...

    def tree(self, namespace: Namespace) -> PrefixTree | None:
        """A copy of what is believed to be cached for a namespace, for a plan to start from; None: not known."""
        ...

    def observe(self, alignment: Alignment, usage: Usage) -> None:
        """Learn what the engine reported for a request that was aligned here."""
        ...

    def forget(self, namespace: Namespace | None = None) -> None:
        """Drop what is known of a namespace, or of all."""
        ...

    def stats(self) -> IndexStats:
        """Counts since the index was made."""
        ...


class LocalIndex:
    """A context index in memory: one prefix tree a namespace, bounded in namespaces and in blocks.

    Args:
        capacity_tokens: what the engine's cache holds for one namespace, in tokens. None: no limit.
        max_blocks: entries kept for each namespace, whatever the capacity.
        max_namespaces: beyond this many, the namespace used longest ago is forgotten.
        history: recent requests of each namespace that the tails of ``order="throughput"`` look at.
        tail: the tail policy for ``order="throughput"``: "adaptive", or a name in `tail.POLICIES` to hold one fast, for
            replays and benchmarks.
        max_total_blocks: entries kept for all namespaces together, tails and their histories included. Beyond it, the
            namespaces used longest ago are forgotten; one that has no room even alone keeps what was used last. Only a
            request that is larger still is kept whole. None: no limit but those above.
        kv_block_tokens: tokens of the engine's KV blocks; a shared prefix below one counts as none. None: not known.
        cache_seconds: what was not used for so long is taken as evicted. None: however long ago.
        clock: what the time is, in seconds, for ``cache_seconds``.
        usage: usage reports prune what turned out cold, and teach how much the cache holds; see `follow_usage`.
        single: True: one cache answers all requests of a namespace, so that a miss tells of all that was used longer
            ago. False: one of several does, so that it tells of nothing. None: as earlier outcomes look.

    Raises:
        SettingsError: an unknown tail, no history, or a time to live without a clock.

    Only requests with ``order="throughput"`` are remembered for tails; others cost nothing here and decide nothing.

    >>> from contextpilot_rag.types import BlockRef
    >>> index = LocalIndex()
    >>> a, b = BlockRef("a", 100), BlockRef("b", 100)
    >>> index.align(Request((a, b))).order, index.align(Request((b, a))).order
    ((0, 1), (1, 0))
    """

    def __init__(  # noqa: PLR0913 - each is a setting
        self,
        capacity_tokens: int | None = None,
        max_blocks: int = 1_000_000,
        max_namespaces: int = 1_000,
        *,
        history: int = HISTORY_REQUESTS,
        tail: str = "adaptive",
        max_total_blocks: int | None = None,
        kv_block_tokens: int | None = None,
        cache_seconds: float | None = None,
        clock: Callable[[], float] | None = None,
        usage: bool = True,
        single: bool | None = None,
    ) -> None:
        if history < 1:
            raise SettingsError(f"history must be at least one request, not {history!r}")
        if cache_seconds is not None and clock is None:
            raise SettingsError("cache_seconds needs a clock")
        if tail != "adaptive" and tail not in POLICIES:
            raise SettingsError(f"unknown tail {tail!r}; tails are adaptive, {', '.join(POLICIES)}")
        terms = Terms(capacity_tokens, kv_block_tokens, usage, single)
        self._limits = Limits(terms, max_blocks, max_total_blocks, history, tail, cache_seconds)
        self._now = clock or float  # which is always 0
        self._max_namespaces = max_namespaces
        self._shares: OrderedDict[Namespace, Share] = OrderedDict()
        self._blocks = 0  # entries of all of them, as counted last
        self._lock = threading.Lock()  # for the map above and the counts; never held while a tree is searched
        self._counts = Counts()
        after_fork(self, LocalIndex._renew)

    def align(self, request: Request) -> Alignment:
        """Choose an order for the request and take it as sent."""
        share = self._share(request.namespace)
        with share.lock:
            share.expire(self._now())
            alignment = self._decide(request, share)
            if request.budget.order == "throughput":
                self._learn(request, share)
            return self._take(alignment, share)

    def predict(self, request: Request) -> int:
        """Tokens of the request that would be cached if it were sent now. Changes nothing."""
        now, least = self._now(), self._limits.terms.kv_block_tokens or 0
        while True:
            with self._lock:
                share = self._shares.get(request.namespace)
            if share is None:
                return 0
            with share.lock:
                if share.dropped:  # another may stand in its place
                    continue
                share.expire(now)
                return align(request, share.believed, least=least).predicted_cached_tokens

    def sent(self, alignment: Alignment) -> None:
        """Take a request as sent in an order that was not chosen here."""
        request = alignment.request
        share = self._share(request.namespace)
        with share.lock:
            self._take(alignment, share)

    def tree(self, namespace: Namespace) -> PrefixTree | None:
        """A copy of a namespace's tree; None if the namespace has none."""
        with self._lock:
            share = self._shares.get(namespace)
        if share is None:
            return None
        now = self._now()
        with share.lock:
            share.expire(now)
            return share.tree.copy(share.tree.capacity_tokens, self._limits.max_blocks)

    def observe(self, alignment: Alignment, usage: Usage) -> None:
        """Count what the engine reported, and mark the request's path as used just now."""
        usage = plain(usage)
        with self._lock:
            share = self._shares.get(alignment.request.namespace)
        pruned, expected = None, alignment.expected_cached_tokens
        if share is not None:
            with share.lock:
                pruned = share.answered(alignment, usage, self._limits, self._now())
                self._resized(share)
        self._counts.observed(usage, expected, pruned)

    def answered(self, alignment: Alignment) -> None:
        """A request was answered, and nothing was reported. Its prompt is cached; nothing is counted."""
        limits, now = self._limits, self._now()
        space = alignment.request.namespace
        self._told_of(space, lambda share: share.answered(alignment, Usage(), limits, now) or 0)

    def failed(self, alignment: Alignment) -> None:
        """A request was not computed, and will not be: what is taken as cached on its account alone is not."""
        self._told_of(alignment.request.namespace, lambda share: share.reports.failed(alignment, share.tree))

    @property
    def terms(self) -> Terms:
        """What is known of the engine's cache."""
        return self._limits.terms

    def resize(self, capacity_tokens: int | None, kv_block_tokens: int | None = None) -> None:
        """Take over what is known of the engine's cache now; evict what no longer fits.

        Args:
            capacity_tokens: what it holds for one namespace. None: not known.
            kv_block_tokens: of its KV blocks. None: not known.
        """
        self._set_terms(capacity_tokens=capacity_tokens, kv_block_tokens=kv_block_tokens)

    def follow_usage(self, follow: bool) -> None:
        """Whether usage reports prune from now on: not where the engine's own events tell what it has."""
        self._set_terms(usage=follow)

    def prune(self, namespace: Namespace, path: Sequence[Hashable]) -> int:
        """Take it that the engine no longer has a path's last block, and so nothing that follows it there.

        Args:
            namespace: whose.
            path: keys of blocks in prompt order; nothing changes if the tree does not have all of them so.

        Returns:
            How many entries of the tree were dropped.
        """
        return self._told_of(namespace, lambda share: share.tree.prune(path))

    def restore(self, namespace: Namespace, blocks: Sequence[BlockRef]) -> None:
        """Take it that the engine has these blocks in its cache. No request is counted, and no tail learns from it.

        Args:
            namespace: whose.
            blocks: distinct, in prompt order from the first.
        """
        share = self._share(namespace)
        with share.lock:
            share.tree.insert(blocks)
            self._resized(share)

    def forget(self, namespace: Namespace | None = None) -> None:
        """Drop what is known of a namespace, under any head if it names none, or of all. Counts stay."""
        with self._lock:
            for kept in list(self._shares):
                if namespace in {None, kept, replace(kept, head="")}:
                    self._drop(kept)

    def empty(self) -> None:
        """Take it that the engine has nothing in its cache any more. Others who share the index are not told."""
        LocalIndex.forget(self)

    def stats(self) -> IndexStats:
        """Counts since the index was made, and the size of its trees."""
        with self._lock:
            trees = [share.tree for share in self._shares.values()]
        return self._counts.stats(trees)

    def namespaces(self, most: int | None = None) -> dict[Namespace, Size]:
        """The namespaces that are known, used last first, and how large their trees are; at most so many."""
        with self._lock:
            shares = list(islice(reversed(self._shares.items()), most))
        return {namespace: Size(share.tree.blocks, share.tree.tokens) for namespace, share in shares}

    def dump(self) -> Iterator[StatePart]:
        """All that is known, in parts of about a millisecond's work; it may be used between any two of them.

        Namespaces used longest ago come first. What is forgotten meanwhile may be missing, or there in part.

        Raises:
            StateError: a block's key is neither bytes nor a text nor a number of 64 bits.
        """
        with self._lock:
            shares = list(self._shares.items())
        for namespace, share in shares:
            for part in dump_share(namespace, share):
                if share.dropped:
                    break
                yield part

    def load(self, parts: Iterable[StatePart]) -> None:
        """Take over what was known elsewhere, within the limits here. Namespaces that are known here stay as they are.

        Raises:
            StateError: the parts tell of no such thing; nothing was changed.
        """
        shares = load_shares(parts, self._limits)
        with self._lock:
            for namespace, share in shares:
                if namespace not in self._shares:
                    self._shares[namespace] = share
                    self._blocks += share.size
                    self._make_room(share)

    def dump_tree(self, namespace: Namespace) -> Iterator[TreePart]:
        """A namespace's tree in parts, used last first; it may be used between any two of them. Nothing: none is known.

        Raises:
            StateError: a block's key is neither bytes nor a text nor a number of 64 bits.
        """
        with self._lock:
            share = self._shares.get(namespace)
        if share is not None:
            yield from locked(share, dump_tree(share.tree))

    def _renew(self) -> None:
        """In a forked child. A tree that a thread was working on may be half of one and half of another: it is dropped.

        The engine's cache is as it was, so a little of it is not found at first.
        """
        self._lock = threading.Lock()
        self._counts.renew()
        self._shares = OrderedDict(dict.items(self._shares))  # which may have been in the middle of a change, too
        for namespace, share in list(self._shares.items()):
            if was_held(share.lock):
                self._shares.pop(namespace).dropped = True
            share.lock = threading.Lock()
        self._blocks = sum(share.size for share in self._shares.values())

    def _told_of(self, namespace: Namespace, tell: Callable[[Share], int]) -> int:
        """What telling a namespace's share gives; 0 if there is none."""
        with self._lock:
            share = self._shares.get(namespace)
        if share is None:
            return 0
        with share.lock:
            found = tell(share)
            self._resized(share)
        return found

    def _set_terms(self, **changed: Any) -> None:  # noqa: ANN401
        with self._lock:
            limits = self._limits = replace(self._limits, terms=replace(self._limits.terms, **changed))
            shares, pause = list(self._shares.values()), threading.Event()
        for share in shares:
            left = True
            while left:  # in steps: requests of the namespace get in between
                with share.lock:
                    share.resize(limits)
                    left = share.tree.settle()
                    self._resized(share)
                if left:
                    pause.wait(0.0001)  # else this thread would have the lock again before any other is awake

    def _decide(self, request: Request, share: Share) -> Alignment:
        """The order of a request, with nothing taken as sent yet. The share's lock is held."""
        limits = self._limits
        least = limits.terms.kv_block_tokens or 0
        if request.budget.order == "throughput":
            share.tail = share.tail or limits.new_tail()
        return align(request, share.believed, share.tail, least)

    def _learn(self, request: Request, share: Share) -> None:
        """Let the tails take a request into account. The share's lock is held."""
        tail = share.tail = share.tail or self._limits.new_tail()
        tail.learn(request.blocks, placement_rule(request.budget))

    def _take(self, alignment: Alignment, share: Share) -> Alignment:
        """Take a request as sent, count it, and make room. The share's lock is held."""
        alignment = share.sent(alignment, self._limits, self._now())
        self._counts.aligned(alignment)
        self._resized(share)
        return alignment

    def _resized(self, share: Share) -> None:
        """Count a share's entries anew, and make room. The share's lock is held."""
        size = share.entries
        with self._lock:
            if not share.dropped:
                self._blocks += size - share.size
                share.size = size
                self._make_room(share)

    def _make_room(self, share: Share) -> None:
        """Forget the namespaces used longest ago, but for this one, until the limits are kept. The lock is held."""
        total = self._limits.max_total_blocks
        while len(self._shares) > 1 and (
            len(self._shares) > self._max_namespaces or (total is not None and self._blocks > total)
        ):
            self._drop(next(kept for kept, other in self._shares.items() if other is not share))

    def _drop(self, namespace: Namespace) -> None:
        share = self._shares.pop(namespace)
        share.dropped = True
        self._blocks -= share.size

    def _share(self, namespace: Namespace) -> Share:
        with self._lock:
            share = self._shares.get(namespace)
            if share is None:
                share = self._shares[namespace] = self._limits.new_share()
                self._make_room(share)
            else:
                self._shares.move_to_end(namespace)
            return share
