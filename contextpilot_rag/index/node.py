"""Node: one run of blocks in a prefix tree."""

from __future__ import annotations

from collections.abc import Hashable

# One empty dict for all leaves, most of the nodes: a dict of their own would double their size. Never written to.
_CHILDLESS: dict[Hashable, Node] = {}


class Node:
    """A run of blocks that has been used in one piece, and what follows it.

    Args:
        parent: what stands before it; None: it is a root, which is its own parent.
        blocks: their keys, never empty but in a root.
        weights: their tokens.
    """

    __slots__ = ("blocks", "children", "parent", "tokens", "used_at", "weights")

    def __init__(self, parent: Node | None, blocks: list[Hashable], weights: list[int]) -> None:
        self.parent: Node = parent or self
        self.blocks: list[Hashable] = blocks
        self.weights: list[int] = weights
        self.tokens: int = sum(weights)
        self.children: dict[Hashable, Node] = _CHILDLESS
        self.used_at: int = 0

    def adopt(self, child: Node) -> None:
        """Add a child, or put one in the place of another that begins with the same block."""
        if self.children is _CHILDLESS:
            self.children = {}
        self.children[child.blocks[0]] = child

    def disown(self) -> None:
        """Let go of what follows."""
        self.children = _CHILDLESS

    def __repr__(self) -> str:
        return f"<{len(self.blocks)} blocks, {self.tokens} tokens, {len(self.children or ())} children>"
