"""Aligner: the order of one request, from a prefix tree and an order budget.

Heaviest cached prefix first, then the rest as retrieved. The idea of aligning a context to cached prefixes is from
"ContextPilot: Fast Long-Context Inference via Context Reuse" (MLSys 2026, arXiv 2511.03475); the search here is exact
where the paper descends greedily.
"""

from __future__ import annotations

from ..types import Alignment, Request, Rule
from .tree import PlacementRule, PrefixTree


def align(request: Request, tree: PrefixTree) -> Alignment:
    """Choose the order of a request's blocks. Looks at the tree and does not change it.

    The set of blocks never changes: the order is a permutation of the request's blocks. Whatever the budget forbids, or
    where the gain over the retriever's own order is too small, the retriever's order stands.

    >>> from contextpilot_rag.types import BlockRef
    >>> a, b, c = BlockRef("a", 100), BlockRef("b", 100), BlockRef("c", 100)
    >>> tree = PrefixTree()
    >>> tree.insert([a, b])
    >>> align(Request((c, a, b)), tree).order
    (1, 2, 0)
    """
    budget = request.budget
    retrieved = tuple(range(len(request.blocks)))
    kept_blocks, kept_tokens = tree.cached_tokens(request.blocks)
    as_retrieved = Alignment(request, retrieved, kept_blocks, kept_tokens, kept_tokens, Rule.NOTHING_GAINED)
    if budget.order == "retrieved":
        return _with_rule(as_retrieved, Rule.OFF)

    placement = _placement_rule(request)
    # A hair less than the product, which may be a hair above the exact one: 0.07 * 100 > 7.
    enough = max(1, budget.min_gain * request.tokens * (1 - 1e-9))
    prefix = tree.heaviest_prefix(request.blocks, placement)
    gain = prefix.tokens - kept_tokens
    if gain < enough:
        if placement is not None and tree.heaviest_prefix(request.blocks).tokens - kept_tokens >= enough:
            return _with_rule(as_retrieved, Rule.OVER_BUDGET)
        return _with_rule(as_retrieved, Rule.BELOW_MIN_GAIN) if gain > 0 else as_retrieved
    in_prefix = set(prefix.ranks)
    tail = tuple(rank for rank in retrieved if rank not in in_prefix)
    return Alignment(request, prefix.ranks + tail, len(prefix.ranks), prefix.tokens, kept_tokens, Rule.PREFIX)


def _with_rule(alignment: Alignment, rule: Rule) -> Alignment:
    return Alignment(
        alignment.request,
        alignment.order,
        alignment.cached_blocks,
        alignment.predicted_cached_tokens,
        alignment.retrieved_cached_tokens,
        rule,
    )


def _placement_rule(request: Request) -> PlacementRule | None:
    budget = request.budget
    if not budget.protect_top and budget.max_displacement is None:
        return None
    return PlacementRule(budget.protect_top, budget.max_displacement)
