"""The search for the heaviest prefix: down the paths of a tree that are made of a request's blocks alone."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from ..types import BlockRef
from .node import Node
from .placement import PlacementRule


def heaviest(
    root: Node, request: Sequence[BlockRef], rank_of: dict[Hashable, int], max_visited: int
) -> tuple[Node, int, int]:
    """The end of the heaviest path in free order: a node, how far into it, and the tokens. This is the hot loop."""
    best_node, best_tokens = root, 0
    weight_of = {block.key: block.tokens for block in request}
    weigh = weight_of.get
    worst_first = list(reversed(rank_of))
    stack = [(child, 0) for child in held(root.children, rank_of, worst_first)]
    visited = 0
    while stack and visited < max_visited:
        node, tokens = stack.pop()
        visited += 1
        for weight in map(weigh, node.blocks):
            if weight is None:
                break
            tokens += weight
        else:
            if node.children:
                # the best rank last, so that it is popped first
                for child in held(node.children, rank_of, worst_first):
                    stack.append((child, tokens))  # noqa: PERF401 - a generator would cost more for so few
        if tokens > best_tokens:
            best_node, best_tokens = node, tokens
    length = 0
    for block in best_node.blocks:
        if block not in weight_of:
            break
        length += 1
    return best_node, length, best_tokens


def heaviest_within(
    root: Node, request: Sequence[BlockRef], rank_of: dict[Hashable, int], rule: PlacementRule, max_visited: int
) -> tuple[Node, int, int]:
    """The same under a placement rule, which needs to know where each block would stand."""
    best_node, best_length, best_tokens = root, 0, 0
    worst_first = list(reversed(rank_of))
    # (node, tokens before it, position of its first block, ranks placed before it)
    stack = [(root, 0, 0, 0)]
    visited = 0
    while stack and visited < max_visited:
        node, tokens, position, placed = stack.pop()
        visited += 1
        length = 0
        for block in node.blocks:
            rank = rank_of.get(block)
            if rank is None or not rule.allows(rank, position, placed):
                break
            tokens += request[rank].tokens
            position += 1
            length += 1
            placed |= 1 << rank
        if tokens > best_tokens:
            best_node, best_length, best_tokens = node, length, tokens
        if length == len(node.blocks) and node.children:
            children = held(node.children, rank_of, worst_first)
            stack.extend((child, tokens, position, placed) for child in children)
    return best_node, best_length, best_tokens


def held(
    children: dict[Hashable, Node], rank_of: dict[Hashable, int], worst_first: Sequence[Hashable]
) -> Sequence[Node]:
    """The children whose first block the request holds, worst rank first. Costs the smaller of the two."""
    if len(children) * 2 > len(rank_of):
        return [children[first] for first in worst_first if first in children]
    found = [first for first in children if first in rank_of]
    if len(found) > 1:
        found.sort(key=rank_of.__getitem__, reverse=True)
    return [children[first] for first in found]
