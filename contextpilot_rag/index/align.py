"""Aligner: the order of one request, from a prefix tree, a tail and an order budget.

Heaviest cached prefix first, then the rest: as retrieved (``balanced``), or as a tail policy puts it (``throughput``).
The idea of aligning a context to cached prefixes is from "ContextPilot: Fast Long-Context Inference via Context Reuse"
(MLSys 2026, arXiv 2511.03475); the search here is exact where the paper descends greedily.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..types import Alignment, BlockRef, OrderBudget, Request, Rule
from .believed import Believed, Prefix
from .fixed import fixed_order
from .placement import PlacementRule, fit, remaining
from .shadow import Tail


def align(request: Request, tree: Believed, tail: Tail | None = None, least: int = 0) -> Alignment:
    """Choose the order of a request's blocks. Looks at the tree and the tail and does not change them.

    The set of blocks never changes: the order is a permutation of the request's blocks. Whatever the budget forbids, or
    where the gain over the retriever's own order is too small, the retriever's order stands.

    Args:
        request: what is asked.
        tree: what the engine has cached.
        tail: arranges the rest for ``throughput``. None: as retrieved.
        least: a prefix of fewer tokens counts as none, and so does a gain: an engine shares whole KV blocks.

    >>> from contextpilot_rag.index.tree import PrefixTree
    >>> from contextpilot_rag.types import BlockRef
    >>> a, b, c = BlockRef("a", 100), BlockRef("b", 100), BlockRef("c", 100)
    >>> tree = PrefixTree()
    >>> tree.insert([a, b])
    >>> align(Request((c, a, b)), tree).order
    (1, 2, 0)
    """
    blocks, budget = request.blocks, request.budget
    retrieved = tuple(range(len(blocks)))
    kept_blocks, kept_tokens = _cached(tree, blocks, least)

    def as_retrieved(rule: Rule) -> Alignment:
        return Alignment(request, retrieved, kept_blocks, kept_tokens, kept_tokens, rule)

    if budget.order == "retrieved":
        return as_retrieved(Rule.OFF)
    placement = placement_rule(budget)
    if budget.order == "fixed":
        order = fixed_order(blocks, placement)
        found, tokens = _cached(tree, [blocks[rank] for rank in order], least)
        return Alignment(request, order, found, tokens, kept_tokens, Rule.FIXED)
    prefix = tree.heaviest_prefix(blocks, placement)
    if prefix.tokens < least:
        prefix = Prefix()
    gain = prefix.tokens - kept_tokens
    if gain < least:
        gain = 0
    enough = _enough(request)

    def refused() -> Alignment:
        # The second search tells only why; it is made only where nothing changes, and only under a limit.
        if (
            gain < enough
            and placement is not None
            and tree.heaviest_prefix(blocks).tokens - kept_tokens >= max(enough, least)
        ):
            return as_retrieved(Rule.OVER_BUDGET)
        return as_retrieved(Rule.BELOW_MIN_GAIN if gain > 0 else Rule.NOTHING_GAINED)

    if budget.order == "balanced" and gain < enough:
        return refused()
    if gain <= 0:
        prefix = Prefix(retrieved[:kept_blocks], kept_tokens)
    rest: Sequence[int] = remaining(len(blocks), prefix.ranks)
    if budget.order == "throughput" and tail is not None:
        rest = tail.arrange(blocks, prefix.ranks, rest)
    order = fit(prefix.ranks, rest, placement)
    if order == retrieved:
        return refused()
    rule = Rule.PREFIX if gain > 0 else Rule.TAIL
    return Alignment(request, order, len(prefix.ranks), prefix.tokens, kept_tokens, rule)


def _cached(tree: Believed, sequence: Sequence[BlockRef], least: int) -> tuple[int, int]:
    blocks, tokens = tree.cached_tokens(sequence)
    return (blocks, tokens) if tokens >= least else (0, 0)


def _enough(request: Request) -> float:
    """The gain in tokens that is worth another order: for "throughput", any."""
    if request.budget.order == "throughput":
        return 1
    # A hair less than the product, which may be a hair above the exact one: 0.07 * 100 > 7.
    return max(1, request.budget.min_gain * request.tokens * (1 - 1e-9))


def placement_rule(budget: OrderBudget) -> PlacementRule | None:
    """What a budget allows; None: everything."""
    if not budget.protect_top and budget.max_displacement is None:
        return None
    return PlacementRule(budget.protect_top, budget.max_displacement)
