"""The sentences that a prompt adds to the blocks: fixed wording, equal in every process."""

from __future__ import annotations

from collections.abc import Sequence

ORDER_HINT = "Order of relevance, best first:"
BEST_HINT = "Most relevant:"

LOCATION_HINT = "(given above)"
"""Stands behind the label of a block that was given before, in place of its text."""

# Wording that block text may not forge at the start of a line (`prompt.escape`).
RESERVED_PHRASES: tuple[str, ...] = (ORDER_HINT, LOCATION_HINT, BEST_HINT)


def label(number: int) -> str:
    """The mark in front of a block.

    >>> label(3)
    '[3]'
    """
    return f"[{number}]"


def order_hint(order: Sequence[int], numbers: Sequence[int] | None = None) -> str:
    """Tells the model the retriever's order of relevance, by label.

    Args:
        order: for each place in the prompt, the block's rank (0 is best).
        numbers: for each place, the block's label; None: they count from 1.

    >>> order_hint([2, 0, 1])
    'Order of relevance, best first: [2] > [3] > [1]'
    >>> order_hint([1, 0], [4, 5])
    'Order of relevance, best first: [5] > [4]'
    """
    numbers = range(1, len(order) + 1) if numbers is None else numbers
    number_of_rank = dict(zip(order, numbers, strict=True))
    return f"{ORDER_HINT} " + " > ".join(label(number_of_rank[rank]) for rank in sorted(number_of_rank))
