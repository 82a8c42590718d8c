"""Whether what an index answered can be an answer at all."""

from __future__ import annotations

import operator
from dataclasses import replace

from ..errors import IndexFailed
from ..types import Alignment, Request, Rule


def sound(alignment: Alignment, request: Request) -> Alignment:
    """An index's answer, in plain values, once it is known to be an answer to this request.

    Raises:
        IndexFailed: it is not.
    """
    order = tuple(operator.index(rank) for rank in alignment.order)
    counts = [alignment.cached_blocks, alignment.predicted_cached_tokens, alignment.retrieved_cached_tokens]
    if alignment.request != request or sorted(order) != list(range(len(request.blocks))):
        raise IndexFailed("its answer is no order of the request's blocks")
    if not isinstance(alignment.rule, Rule) or not all(
        0 <= operator.index(count) <= request.tokens for count in counts
    ):
        raise IndexFailed("its answer has counts or a rule that cannot be")
    return replace(alignment, order=order)
