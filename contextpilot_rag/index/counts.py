"""Counts: what an index did since it was made."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable

from ..types import Alignment, IndexStats, Usage
from .tree import PrefixTree


class Counts:
    """Counted by whoever aligns and observes, from many threads.

    >>> counts = Counts()
    >>> counts.observed(Usage(230, 192), expected=None, pruned=None)
    >>> counts.stats([]).reported_cached_tokens
    192
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rules: Counter[str] = Counter()
        self._counts: Counter[str] = Counter()

    def renew(self) -> None:
        """In a forked child: a lock that nobody holds."""
        self._lock = threading.Lock()

    def aligned(self, alignment: Alignment) -> None:
        """A request was aligned, or taken as sent."""
        with self._lock:
            self._rules[alignment.rule.value] += 1
            self._counts["changed"] += alignment.changed
            self._counts["block_tokens"] += alignment.request.tokens
            self._counts["predicted"] += alignment.predicted_cached_tokens
            self._counts["retrieved"] += alignment.retrieved_cached_tokens

    def observed(self, usage: Usage, expected: int | None, pruned: int | None = None) -> None:
        """A report came in.

        Args:
            usage: what it says.
            expected: the cached tokens that were expected of the whole prompt; None: an estimate of the blocks alone
                says nothing of it.
            pruned: entries that were dropped for it; None: nothing was found cold.
        """
        with self._lock:
            self._counts["observed"] += 1
            self._counts["reported_prompt"] += usage.prompt_tokens or 0
            if usage.cached_tokens is None:
                self._counts["not_reported"] += 1
            else:
                self._counts["reported_cached"] += usage.cached_tokens
                if expected is not None:
                    self._counts["expected"] += expected
                    self._counts["reported_of_expected"] += usage.cached_tokens
        self.pruned(pruned)

    def pruned(self, entries: int | None) -> None:
        """So many entries were dropped because a believed prefix was gone; None: none was."""
        if entries is not None:
            with self._lock:
                self._counts["cold"] += 1
                self._counts["pruned"] += entries

    def stats(self, trees: Iterable[PrefixTree]) -> IndexStats:
        """All of it, and the size of the trees."""
        with self._lock:
            counts, rules = self._counts.copy(), dict(self._rules)
        trees = list(trees)
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
            predicted_of_reported=counts["expected"],
            cold_prefixes=counts["cold"],
            pruned_blocks=counts["pruned"],
            reported_of_expected=counts["reported_of_expected"],
        )
