"""Reports: what usage reports teach about one namespace, and about its engine's cache.

The prompts' tokens that are no block: what stands before the blocks (the head: chat template, system prompt), and what
the cache holds besides with each request (question, answer). And which prefixes are gone though they were believed to
be cached: where a report ends before a block that was believed, that block was dropped. Engines drop what was used
longest ago, so all that was used before it is gone as well, as far as earlier outcomes do not contradict; and the
cache holds no more than what was used since.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta, Struct

from ..types import Alignment, Belief, BlockRef, Usage
from .lengths import KV_BLOCK_TOKENS, Lengths
from .limit import Limit
from .outcomes import Outcomes
from .tree import PrefixTree

UNANSWERED = 4_096  # requests whose answers are waited for; the oldest beyond them counts as answered

# Lengths of blocks are estimates: one is cold only if it begins by this share of the blocks before it behind the end of
# what was reported.
MARGIN = 0.1
# What is cached of a prompt none of whose blocks was believed is its head only if so much of the blocks' tokens fits
# behind it: an engine may have been sent the prompt before, and not by way of this index.
BEHIND_HEAD = 0.8


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


class ReportsPart(Struct, array_like=True, forbid_unknown_fields=True):
    """What reports have taught, as plain data: `Lengths`, `Outcomes` and `Limit`."""

    tree: Annotated[int, Meta(ge=0)]
    heads: list[int]
    leads: list[int]
    beside: list[int]
    prompts: list[tuple[int, int]]
    measure: int
    outcomes: list[tuple[int, bool]]
    since_hit: int
    row: int
    tried: float
    now: float | None


class Reports:
    """What the reports of one namespace have taught so far. Not thread-safe: its owner holds a lock."""

    __slots__ = ("_limit", "_outcomes", "_unanswered", "lengths", "name")

    def __init__(self) -> None:
        self.name = secrets.randbits(62)  # no other tree's, whichever process it is in, unless both follow one log
        self.lengths = Lengths()
        self._outcomes = Outcomes()
        self._limit = Limit()
        self._unanswered: OrderedDict[int, None] = OrderedDict()

    def rename(self) -> None:
        """Have a name that no other tree has: beliefs that were noted elsewhere say nothing here, from now on."""
        self.name = secrets.randbits(62)

    def capacity(self, terms: Terms) -> int | None:
        """What the tree may hold, and what stands beside it; None: no limit is known."""
        known = None if terms.capacity_tokens is None else max(1, terms.capacity_tokens - (self.lengths.head or 0))
        learnt = None
        if terms.usage and terms.single is not False:
            learnt = self._limit.tokens(self._outcomes, self.lengths.usual)
        if learnt is None:
            return known
        return learnt if known is None else min(known, learnt)

    def expected(self, alignment: Alignment, terms: Terms) -> int | None:
        """What the engine should report as cached for the whole prompt; None: too little is known beside the blocks."""
        lead = self.lengths.lead
        if lead is None:
            return None
        tokens = lead + alignment.predicted_cached_tokens
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
        tree.insert(sequence, self.lengths.beside)
        waiting[tree.clock] = None
        if len(waiting) > UNANSWERED:
            waiting.popitem(last=False)
        return Belief(tree.clock, noted[-1][1] if noted else None, noted, self.name)

    def answered(self, alignment: Alignment, usage: Usage, tree: PrefixTree, terms: Terms) -> int | None:
        """Learn from a report, and prune what turned out cold.

        Returns:
            How many entries were forgotten; None: nothing was found cold.
        """
        belief, tokens = alignment.belief, alignment.request.tokens
        if belief is None or belief.tree != self.name:
            return None
        self._unanswered.pop(belief.at, None)
        lengths = self.lengths
        if usage.prompt_tokens is not None:
            lengths.prompt(tokens, usage.prompt_tokens, usage.completion_tokens or 0)
        if usage.cached_tokens is None:
            return None
        lengths.cached(usage.cached_tokens)
        verdict, whole = Verdict(), usage.prompt_tokens
        if not belief.uses:
            if alignment.order and whole and 0 < usage.cached_tokens <= whole - BEHIND_HEAD * tokens:
                lengths.only_head(usage.cached_tokens)
        else:
            if usage.cached_tokens >= alignment.predicted_cached_tokens:
                lengths.all_found(usage.cached_tokens - alignment.predicted_cached_tokens)
            if terms.usage and lengths.reports_cached:
                verdict = self._judge(alignment, belief.uses, usage, terms)
        if verdict.found is not None:
            self._outcomes.add(tree.used_between(verdict.found, belief.at), hit=True)
        if verdict.cold is None:
            self._limit.held(tree.tokens + tree.beside)
            return None
        distance, forgotten = tree.used_between(verdict.cold, belief.at), 0
        # What was used again since the request was sent may have been used in between, too: nothing is said to be gone,
        # and no cache to be as small, because a report is late.
        self._outcomes.add(tree.used_between(verdict.cold, belief.at, most=True), hit=False)
        self._limit.missed(distance)
        if terms.single or (terms.single is None and self._outcomes.conclusive(distance)):
            forgotten = tree.forget_until(verdict.cold)
        return forgotten

    def failed(self, alignment: Alignment, tree: PrefixTree) -> int:
        """A request was not computed. What nobody else was sent with since is gone: they compute it, or did.

        Returns:
            How many entries were forgotten.
        """
        belief, start = alignment.belief, 0
        if belief is None or belief.tree != self.name:
            return 0
        self._unanswered.pop(belief.at, None)
        path = [alignment.request.blocks[rank] for rank in alignment.order]
        for end, used in tree.uses(path):
            place = max(start, alignment.cached_blocks)
            if used <= belief.at and place < end:
                return tree.prune([block.key for block in path[: place + 1]])
            start = end
        return 0

    def standing(self) -> ReportsPart:
        """All of it, but for which requests are not answered yet."""
        lengths, outcomes, limit = self.lengths.standing(), self._outcomes.standing(), self._limit.standing()
        return ReportsPart(self.name, *lengths, *outcomes, *limit)

    def resume(self, part: ReportsPart) -> None:
        """Go on from there."""
        self.name = part.tree
        self.lengths.resume(part.heads, part.leads, part.beside, part.prompts, part.measure)
        self._outcomes.resume(part.outcomes, part.since_hit, part.row)
        self._limit.resume(part.tried, part.now)

    def _judge(
        self, alignment: Alignment, uses: Sequence[tuple[int, int | None]], usage: Usage, terms: Terms
    ) -> Verdict:
        """Which of the believed blocks were found, and which the report ends before for certain."""
        blocks, order, cached = alignment.request.blocks, alignment.order, usage.cached_tokens or 0
        head, page = self.lengths.head or 0, terms.kv_block_tokens or self.lengths.kv_block
        # Estimates may be too high: nothing is cold for certain that may be cached if they are.
        scale = self.lengths.scale(alignment.request.tokens, usage.prompt_tokens)
        before, start, found = 0.0, 0, None
        for end, at in uses:
            for place in range(start, end):
                beyond = head + before >= cached + MARGIN * before
                before += scale * blocks[order[place]].tokens
                # Engines report whole KV blocks: where one holds several blocks, the last of these is not told.
                if beyond and (page <= KV_BLOCK_TOKENS or head + before >= cached + page):
                    return Verdict(found, at)
                if head + before <= cached + page:
                    found = at
            start = end
        return Verdict(found)
