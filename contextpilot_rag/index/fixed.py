"""A fixed order: by key, whatever was asked before.

For those who cannot know what is cached: several processes that share an engine but no index, where what each believes
is mostly not so, above all if the engine keeps little, such as llama.cpp with the last prompt of each slot. All of them
give two prompts of the same blocks the same order, and those that overlap may begin alike. An index that sees all of
the traffic finds more.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from ..types import BlockRef
from .placement import PlacementRule, fit


def fixed_order(blocks: Sequence[BlockRef], placement: PlacementRule | None = None) -> tuple[int, ...]:
    """The order of the blocks' keys, as far as a budget allows it.

    Without a budget, two blocks stand in the same order relative to each other in all requests, in every process. A
    budget is about the retriever's ranks, so with one this holds only as far as it leaves room.

    Args:
        blocks: distinct, best first.
        placement: what the budget allows; None: everything.

    Returns:
        Ranks, in prompt order.

    >>> fixed_order([BlockRef("c", 1), BlockRef("a", 1), BlockRef("b", 1)])
    (1, 2, 0)
    >>> fixed_order([BlockRef("c", 1), BlockRef("a", 1), BlockRef("b", 1)], PlacementRule(protect_top=1))
    (0, 1, 2)
    """
    return fit((), sorted(range(len(blocks)), key=lambda rank: _place(blocks[rank].key)), placement)


def _place(key: Hashable) -> tuple[int, int, bytes]:
    """What keys of any kinds can be sorted by: equal for equal keys, and in every process.

    Of kinds that the pilot and the service do not make, the repr decides; where it holds an address, only this process
    agrees with itself.
    """
    if isinstance(key, bytes):
        return 0, 0, key
    if isinstance(key, str):
        return 1, 0, key.encode("utf-8", "surrogatepass")
    if isinstance(key, int):
        return 2, int(key), b""
    return 3, 0, repr(key).encode("utf-8", "surrogatepass")
