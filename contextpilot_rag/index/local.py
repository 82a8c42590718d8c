"""LocalIndex: the context index that lives in this process, and the protocol that it shares with later ones."""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict
from dataclasses import replace
from typing import Protocol

from ..errors import SettingsError
from ..types import Alignment, IndexStats, Namespace, Request, Usage
from .align import align, placement_rule
from .history import HISTORY_REQUESTS, History
from .shadow import SHADOW_BLOCKS, AdaptiveTail, FixedTail, Tail
from .tail import CANDIDATES, CANDIDATES_OF_SMALL_CACHES, POLICIES
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


class _Share:
    """One namespace: its tree, its tails, and the lock that serialises whoever works on them."""

    __slots__ = ("lock", "tail", "tree")

    def __init__(self, tree: PrefixTree) -> None:
        self.lock = threading.Lock()
        self.tree = tree
        self.tail: Tail | None = None  # made when the first request asks for it


class LocalIndex:
    """A context index in memory: one prefix tree a namespace, bounded in namespaces and in blocks.

    Args:
        capacity_tokens: what the engine's cache holds for one namespace, in tokens. None: no limit.
        max_blocks: entries kept for each namespace, whatever the capacity.
        max_namespaces: beyond this many, the namespace used longest ago is forgotten.
        history: recent requests of each namespace that the tails of ``order="throughput"`` look at.
        tail: the tail policy for ``order="throughput"``: "adaptive", or a name in `tail.POLICIES` to hold one fast, for
            replays and benchmarks.

    Only requests with ``order="throughput"`` are remembered for tails; others cost nothing here and decide nothing.

    >>> from contextpilot_rag.types import BlockRef
    >>> index = LocalIndex()
    >>> a, b = BlockRef("a", 100), BlockRef("b", 100)
    >>> index.align(Request((a, b))).order, index.align(Request((b, a))).order
    ((0, 1), (1, 0))
    """

    def __init__(
        self,
        capacity_tokens: int | None = None,
        max_blocks: int = 1_000_000,
        max_namespaces: int = 1_000,
        *,
        history: int = HISTORY_REQUESTS,
        tail: str = "adaptive",
    ) -> None:
        if tail != "adaptive" and tail not in POLICIES:
            raise SettingsError(f"unknown tail {tail!r}; tails are adaptive, {', '.join(POLICIES)}")
        self._history = history
        self._tail = tail
        self._capacity_tokens = capacity_tokens
        self._max_blocks = max_blocks
        self._max_namespaces = max_namespaces
        self._shares: OrderedDict[Namespace, _Share] = OrderedDict()
        self._lock = threading.Lock()  # for the two maps below and the counts; never held while a tree is searched
        self._rules: Counter[str] = Counter()
        self._counts: Counter[str] = Counter()

    def align(self, request: Request) -> Alignment:
        """Choose an order for the request and take it as sent."""
        share = self._share(request.namespace)
        with share.lock:
            if request.budget.order == "throughput":
                tail = share.tail = share.tail or self._new_tail()
                alignment = align(request, share.tree, tail)
                tail.learn(request.blocks, placement_rule(request.budget))
            else:
                alignment = align(request, share.tree)
            share.tree.insert([request.blocks[rank] for rank in alignment.order])
        self._count(alignment)
        return alignment

    def predict(self, request: Request) -> int:
        """Tokens of the request that would be cached if it were sent now. Changes nothing."""
        with self._lock:
            share = self._shares.get(request.namespace)
        if share is None:
            return 0
        with share.lock:
            return align(request, share.tree).predicted_cached_tokens

    def sent(self, alignment: Alignment) -> None:
        """Take a request as sent in an order that was not chosen here."""
        request = alignment.request
        share = self._share(request.namespace)
        with share.lock:
            share.tree.insert([request.blocks[rank] for rank in alignment.order])
        self._count(alignment)

    def tree(self, namespace: Namespace) -> PrefixTree | None:
        """A copy of a namespace's tree; None if the namespace has none."""
        with self._lock:
            share = self._shares.get(namespace)
        if share is None:
            return None
        with share.lock:
            return share.tree.copy(self._capacity_tokens, self._max_blocks)

    def observe(self, alignment: Alignment, usage: Usage) -> None:
        """Count what the engine reported, and mark the request's path as used just now."""
        with self._lock:
            share = self._shares.get(alignment.request.namespace)
            self._counts["observed"] += 1
            self._counts["reported_prompt"] += usage.prompt_tokens or 0
            self._counts["reported_cached"] += usage.cached_tokens or 0
            self._counts["not_reported"] += usage.cached_tokens is None
        if share is not None:
            with share.lock:
                share.tree.touch([alignment.request.blocks[rank] for rank in alignment.order])

    def forget(self, namespace: Namespace | None = None) -> None:
        """Drop what is known of a namespace, under any head if it names none, or of all. Counts stay."""
        with self._lock:
            for kept in list(self._shares):
                if namespace in {None, kept, replace(kept, head="")}:
                    del self._shares[kept]

    def stats(self) -> IndexStats:
        """Counts since the index was made, and the size of its trees."""
        with self._lock:
            counts, rules = self._counts.copy(), dict(self._rules)
            trees = [share.tree for share in self._shares.values()]
        return IndexStats(
            requests=sum(rules.values()),
            changed=counts["changed"],
            block_tokens=counts["block_tokens"],
            predicted_cached_tokens=counts["predicted"],
            retrieved_cached_tokens=counts["retrieved"],
            observed=counts["observed"],
            reported_prompt_tokens=counts["reported_prompt"],
            reported_cached_tokens=counts["reported_cached"],
            cached_not_reported=counts["not_reported"],
            namespaces=len(trees),
            tree_blocks=sum(tree.blocks for tree in trees),
            tree_tokens=sum(tree.tokens for tree in trees),
            rules=rules,
        )

    def _count(self, alignment: Alignment) -> None:
        with self._lock:
            self._rules[alignment.rule.value] += 1
            self._counts["changed"] += alignment.changed
            self._counts["block_tokens"] += alignment.request.tokens
            self._counts["predicted"] += alignment.predicted_cached_tokens
            self._counts["retrieved"] += alignment.retrieved_cached_tokens

    def _new_tail(self) -> Tail:
        history = History(self._history)
        if self._tail == "adaptive":
            candidates = CANDIDATES if self._capacity_tokens is None else CANDIDATES_OF_SMALL_CACHES
            return AdaptiveTail(history, candidates, self._capacity_tokens, min(SHADOW_BLOCKS, self._max_blocks))
        return FixedTail(POLICIES[self._tail], history)

    def _share(self, namespace: Namespace) -> _Share:
        with self._lock:
            share = self._shares.get(namespace)
            if share is None:
                share = self._shares[namespace] = _Share(PrefixTree(self._capacity_tokens, self._max_blocks))
                if len(self._shares) > self._max_namespaces:
                    self._shares.popitem(last=False)
            else:
                self._shares.move_to_end(namespace)
            return share
