"""Reports: what usage reports teach about one namespace, and about its engine's cache.

The prompts' tokens that are no block: what stands before the blocks (the head: chat template, system prompt), and what
the cache holds besides with each request (question, answer). And which prefixes are gone though they were believed to
be cached: where a report ends before a block that was believed, that block was dropped. Engines drop what was used
longest ago, so all that was used before it is gone as well, as far as earlier outcomes do not contradict; and the
cache holds no more than what was used since.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass

from ..types import Alignment, Belief, BlockRef, Usage
from .outcomes import Outcomes
from .tree import PrefixTree

UNANSWERED = 4_096  # requests whose answers are waited for; the oldest beyond them counts as answered
LATEST = 32  # reports that the lengths are taken from
KV_BLOCK_TOKENS = 16  # where it is not known

# Lengths of blocks are estimates: one is cold only if it begins by this share of the blocks before it behind the end of
# what was reported.
MARGIN = 0.1
# What is cached of a prompt none of whose blocks was believed is its head only if so much of the blocks' tokens fits
# behind it: an engine may have been sent the prompt before, and not by way of this index.
BEHIND_HEAD = 0.8
# What was used so much longer ago than the learnt reach is still believed, so that a cache that grows is noticed.
ROOM = 1.2


@dataclass(frozen=True, slots=True)
class Terms:
    """What a namespace's reports are read with.

    Args:
        capacity_tokens: what the engine's cache holds; None: not known.
        kv_block_tokens: of one KV block; None: not known.
        usage: reports prune the tree.
        single: one cache answers all requests (True), or one of several (False); None: as the outcomes look.
    """

    capacity_tokens: int | None = None
    kv_block_tokens: int | None = None
    usage: bool = True
    single: bool | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a report said of a believed prefix.

    Args:
        found: the count of uses when the deepest block that was found had been used last; None: none was, or it is
            not known.
        cold: the same for the first block that was not.
    """

    found: int | None = None
    cold: int | None = None


class Reports:
    """What the reports of one namespace have taught so far. Not thread-safe: its owner holds a lock."""

    __slots__ = ("_beside", "_heads", "_name", "_outcomes", "_unanswered")

    def __init__(self) -> None:
        self._name = secrets.randbits(62)  # no other tree's, whichever process it is in
        self._outcomes = Outcomes()
        self._unanswered: OrderedDict[int, None] = OrderedDict()
        self._heads: deque[int] = deque(maxlen=LATEST)
        self._beside: deque[int] = deque(maxlen=LATEST)

    @property
    def head(self) -> int | None:
        """Tokens before the first block, in whole KV blocks: what is cached of prompts none of whose blocks are."""
        return min(self._heads, default=None)

    @property
    def beside(self) -> int:
        """Tokens that a request adds to the cache besides blocks.

        A KV block that is shared only in part is computed again, and one that is not full is not kept: on average, the
        one makes up for the other.
        """
        if not self._beside:
            return 0
        mean = sum(self._beside) // len(self._beside)
        return max(0, mean - (self.head or 0))

    def capacity(self, terms: Terms) -> int | None:
        """What the tree may hold, and what stands beside it; None: no limit is known."""
        known = None if terms.capacity_tokens is None else max(1, terms.capacity_tokens - (self.head or 0))
        learnt = self._outcomes.reach() if terms.usage and terms.single is not False else None
        if learnt is None:
            return known
        learnt = max(1, int(ROOM * learnt))
        return learnt if known is None else min(known, learnt)

    def expected(self, alignment: Alignment, terms: Terms) -> int | None:
        """What the engine should report as cached for the whole prompt; None: the head is not known."""
        if self.head is None:
            return None
        tokens = self.head + alignment.predicted_cached_tokens
        return tokens - tokens % (terms.kv_block_tokens or 1)

    def sent(self, alignment: Alignment, sequence: Sequence[BlockRef], tree: PrefixTree) -> Belief:
        """Take a request as sent, and note what its belief rests on.

        Args:
            alignment: of the request.
            sequence: its blocks in prompt order.
            tree: what is believed to be cached.
        """
        waiting = self._unanswered
        uses = tree.uses(sequence[: alignment.cached_blocks]) if alignment.cached_blocks else ()
        noted = tuple([(end, None if at in waiting else at) for end, at in uses])
        tree.insert(sequence, self.beside)
        waiting[tree.clock] = None
        if len(waiting) > UNANSWERED:
            waiting.popitem(last=False)
        return Belief(tree.clock, noted[-1][1] if noted else None, noted, self._name)

    def answered(self, alignment: Alignment, usage: Usage, tree: PrefixTree, terms: Terms) -> int | None:
        """Learn from a report, and prune what turned out cold.

        Returns:
            How many entries were forgotten; None: nothing was found cold.
        """
        belief, tokens = alignment.belief, alignment.request.tokens
        if belief is None or belief.tree != self._name:
            return None
        self._unanswered.pop(belief.at, None)
        if usage.prompt_tokens is not None:
            self._beside.append(max(0, usage.prompt_tokens + (usage.completion_tokens or 0) - tokens))
        if usage.cached_tokens is None:
            return None
        if not belief.uses:
            whole = usage.prompt_tokens
            if alignment.order and whole and 0 < usage.cached_tokens <= whole - BEHIND_HEAD * tokens:
                self._heads.append(usage.cached_tokens)
            return None
        if not terms.usage:
            return None
        verdict = self._judge(alignment, belief.uses, usage, terms)
        if verdict.found is not None:
            self._outcomes.add(tree.used_between(verdict.found, belief.at), hit=True)
        if verdict.cold is None:
            return None
        distance, forgotten = tree.used_between(verdict.cold, belief.at), 0
        self._outcomes.add(distance, hit=False)
        if terms.single or (terms.single is None and self._outcomes.conclusive(distance)):
            forgotten = tree.forget_until(verdict.cold)
        return forgotten

    def failed(self, alignment: Alignment, tree: PrefixTree) -> int:
        """A request was not computed. What nobody else was sent with since is gone: they compute it, or did.

        Returns:
            How many entries were forgotten.
        """
        belief, start = alignment.belief, 0
        if belief is None or belief.tree != self._name:
            return 0
        self._unanswered.pop(belief.at, None)
        path = [alignment.request.blocks[rank] for rank in alignment.order]
        for end, used in tree.uses(path):
            place = max(start, alignment.cached_blocks)
            if used <= belief.at and place < end:
                return tree.prune([block.key for block in path[: place + 1]])
            start = end
        return 0

    def _judge(
        self, alignment: Alignment, uses: Sequence[tuple[int, int | None]], usage: Usage, terms: Terms
    ) -> Verdict:
        """Which of the believed blocks were found, and which the report ends before for certain."""
        blocks, order, cached = alignment.request.blocks, alignment.order, usage.cached_tokens or 0
        head, page = self.head or 0, terms.kv_block_tokens or KV_BLOCK_TOKENS
        scale = 1.0
        if usage.prompt_tokens is not None:  # estimates may be too high: the prompt is no longer than it is
            scale = min(1.0, max(0, usage.prompt_tokens - head) / max(1, alignment.request.tokens))
        before, start, found = 0.0, 0, None
        for end, at in uses:
            for place in range(start, end):
                if head + before >= cached + MARGIN * before:
                    return Verdict(found, at)
                before += scale * blocks[order[place]].tokens
                if head + before <= cached + page:
                    found = at
            start = end
        return Verdict(found)
