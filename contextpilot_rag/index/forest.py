"""SetForest: what a batch shares, as trees whose edges hold sets of blocks.

A leaf is a set of blocks that some requests ask for; a node holds the blocks that all leaves below it have in common.
Sent tree by tree and depth first, each node's blocks are computed once for all below, in whatever order its edge puts
them: so the tokens saved are the sum over all inner nodes of their blocks' tokens. (Two trees that are joined under a
node with blocks B save the tokens of B, once.)

Blocks are small integers here, and weights are their tokens.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

Blocks = frozenset[int]
NONE = -1  # no parent, no child


class SetForest:
    """Binary trees over the given leaves; at first every leaf is a root of its own.

    Args:
        leaves: distinct sets of blocks.
        weights: tokens of each block.

    >>> forest = SetForest([frozenset({0, 1}), frozenset({0, 2})], [10, 5, 5])
    >>> forest.join(0, 1)
    2
    >>> forest.saved(), sorted(forest.blocks[2])
    (10, [0])
    """

    __slots__ = ("blocks", "free", "leaves", "left", "parent", "right", "tokens", "weights")

    def __init__(self, leaves: Sequence[Blocks], weights: Sequence[int]) -> None:
        self.leaves = len(leaves)
        self.weights = weights
        self.blocks: list[Blocks] = list(leaves)
        self.tokens = [self.weigh(blocks) for blocks in leaves]
        self.parent = [NONE] * len(leaves)
        self.left = [NONE] * len(leaves)
        self.right = [NONE] * len(leaves)
        self.free: list[int] = []  # inner nodes that were dissolved

    def __len__(self) -> int:
        return len(self.blocks)

    def weigh(self, blocks: Blocks) -> int:
        """Tokens of a set."""
        weights = self.weights
        return sum([weights[block] for block in blocks])

    def roots(self) -> list[int]:
        """The nodes without a parent, in the order they were made."""
        free = set(self.free)
        return [node for node, parent in enumerate(self.parent) if parent == NONE and node not in free]

    def standing(self) -> list[int]:
        """All nodes that are part of a tree."""
        return [node for node in range(len(self.blocks)) if node < self.leaves or self.left[node] != NONE]

    def inner(self) -> list[int]:
        """The nodes that join two others."""
        return [node for node in range(self.leaves, len(self.blocks)) if self.left[node] != NONE]

    def children_first(self) -> list[int]:
        """The inner nodes, each after those below it."""
        found = [root for root in self.roots() if self.left[root] != NONE]
        for node in found:  # grows while it is walked
            found += [child for child in (self.left[node], self.right[node]) if self.left[child] != NONE]
        found.reverse()
        return found

    def saved(self) -> int:
        """Tokens that the inner nodes save; requests with equal blocks are one leaf, and save more than counts here."""
        return sum(self.tokens[node] for node in self.inner())

    def join(self, one: int, other: int) -> int:
        """Put two nodes under a new one, which takes the place that ``one`` had. Ancestors are not updated.

        Returns:
            The new node.
        """
        shared = self.blocks[one] & self.blocks[other]
        above = self.parent[one]
        if self.free:
            node = self.free.pop()
            self.blocks[node], self.tokens[node] = shared, self.weigh(shared)
            self.parent[node], self.left[node], self.right[node] = above, one, other
        else:
            node = len(self.blocks)
            self.blocks.append(shared)
            self.tokens.append(self.weigh(shared))
            self.parent.append(above)
            self.left.append(one)
            self.right.append(other)
        self.parent[one] = self.parent[other] = node
        if above != NONE:
            self.replace_child(above, one, node)
        return node

    def replace_child(self, node: int, old: int, new: int) -> None:
        """Hang another child in the place of one."""
        if self.left[node] == old:
            self.left[node] = new
        else:
            self.right[node] = new

    def detach(self, node: int) -> int:
        """Make a node a root of its own; its parent dissolves. Ancestors are not updated.

        Returns:
            The sibling that took the parent's place.
        """
        parent = self.parent[node]
        sibling = self.left[parent] + self.right[parent] - node
        above = self.parent[parent]
        self.parent[sibling] = above
        if above != NONE:
            self.replace_child(above, parent, sibling)
        self.parent[node] = self.parent[parent] = self.left[parent] = self.right[parent] = NONE
        self.blocks[parent], self.tokens[parent] = frozenset(), 0
        self.free.append(parent)
        return sibling

    def ancestors(self, node: int) -> Iterator[int]:
        """The nodes above a node, nearest first."""
        node = self.parent[node]
        while node != NONE:
            yield node
            node = self.parent[node]

    def nodes_below(self, node: int) -> list[int]:
        """A node and all nodes of its tree."""
        found = [node]
        for one in found:  # grows while it is walked
            if self.left[one] != NONE:
                found += (self.left[one], self.right[one])
        return found

    def leaf_counts(self) -> list[int]:
        """For each node, how many leaves it stands above; 1 for a leaf."""
        counts = [1] * self.leaves + [0] * (len(self.blocks) - self.leaves)
        for node in self.children_first():
            counts[node] = counts[self.left[node]] + counts[self.right[node]]
        return counts

    def reweigh(self, weights: Sequence[int]) -> None:
        """Other weights for the same blocks."""
        self.weights = weights
        self.tokens = [self.weigh(blocks) for blocks in self.blocks]
