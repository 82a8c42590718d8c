"""Re-insertion: take each node of a forest out, and put it where it saves most now.

Merging decides early what later joins would have wanted otherwise. Taking single nodes out, with all that hangs on
them, and putting them back repairs most of that: a local search over subtrees (prune and regraft, as it is known from
evolutionary trees). Nothing is moved that does not save more than before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from .forest import NONE, Blocks, SetForest
from .members import Members, Row
from .merge import Worth

_WORTH_ANOTHER = 0.0015  # another pass is made only if the last one saved this share more


def refine(
    forest: SetForest,
    nodes: Sequence[int],
    worth: Worth,
    enough: float = _WORTH_ANOTHER,
    late: Callable[[], bool] = lambda: False,
) -> None:
    """Move nodes to better places, within a forest or one subtree of it: leaves, then inner nodes, and so on.

    Args:
        forest: is changed; never saves less than before.
        nodes: all nodes of the forest, or all of one subtree.
        worth: what counts. A ``min_gain`` cannot be kept here: refine only forests without one.
        enough: another pass is made only if the last one saved this share more.
        late: asked before each node; True stops.
    """
    search = _Search(forest, nodes, worth)
    before, pass_leaves = search.saved(), True
    while True:
        for node in search.nodes():
            if (node < forest.leaves) == pass_leaves:
                if late():
                    return
                search.improve(node)
        after = search.saved()
        if after - before <= enough * before:
            return
        before, pass_leaves = after, not pass_leaves


class _Search:
    """Finds and makes moves. Each node has a place in the table of overlaps."""

    def __init__(self, forest: SetForest, nodes: Sequence[int], worth: Worth) -> None:
        self._forest = forest
        self._worth = worth
        self._node_at = list(nodes)
        self._place = dict(zip(nodes, range(len(nodes)), strict=True))
        # A root that goes under another makes one more inner node; there are never more of them than leaves.
        size = max(2 * sum(node < forest.leaves for node in nodes), len(nodes))
        self._members = Members(size + 1, [forest.blocks[node] for node in nodes], forest.weights)
        # By place; the last place is nobody's and stands for whatever is above this subtree.
        self._tokens: Row = np.zeros(size + 1, np.float32)
        self._parent = np.full(size + 1, size, np.intp)
        for node in nodes:
            self._set_tokens(node)
            self._set_parent(node)
        self._whole = len(nodes) == len(forest) - len(forest.free)

    def nodes(self) -> list[int]:
        """All nodes, also those that moves have made."""
        return list(self._node_at)

    def saved(self) -> float:
        """Tokens that the nodes save."""
        return float(self._tokens[[self._place[node] for node in self._node_at if node >= self._forest.leaves]].sum())

    def improve(self, node: int) -> None:
        """Move a node if that saves more."""
        forest = self._forest
        blocks, parent = forest.blocks[node], forest.parent[node]
        if not blocks:
            return
        kept, grown = self._leave(node)
        if kept >= forest.tokens[node]:
            return  # all of it is shared as it is
        # Wherever in this subtree the node goes, what stands above the subtree shrinks again.
        above = sum(forest.weigh(new - blocks) for up, new in grown.items() if up not in self._place)
        best: float = kept + above
        target = node  # stays
        if self._whole and (alone := self._worth.cached(blocks)) > best:
            best, target = alone, NONE
        places, gains = self._better(node, parent, grown, best)
        if len(places) > 0 and not self._worth.plain:
            tops = [self._top(self._node_at[place], parent) for place in places]
            gains = gains - [self._cached_loss(grown.get(top, forest.blocks[top]), blocks) for top in tops]
        if len(places) > 0 and gains.max() > best:
            target = self._node_at[places[gains.argmax()]]
        if target != node:
            self._move(node, target, grown)

    def _better(
        self, node: int, parent: int, grown: dict[int, Blocks], best: float
    ) -> tuple[npt.NDArray[np.intp], npt.NDArray[Any]]:
        """The places where a node would save more than ``best``, and how much.

        Next to a target, a node saves what it shares with it; every node above loses what it does not share.
        """
        forest, place = self._forest, self._place
        blocks = forest.blocks[node]
        shared = self._members.overlaps(blocks)
        losses = self._tokens - shared
        for up, new in grown.items():
            if up in place:
                shared[place[up]] = forest.weigh(new & blocks)
                losses[place[up]] = forest.weigh(new - blocks)
        shared[place[node]], losses[place[node]] = 0, np.inf  # never inside itself
        if parent in place:
            shared[place[parent]] = losses[place[parent]] = 0  # dissolves when the node leaves
        losses[-1] = 0
        # Where nothing is shared nothing can be saved; places that no node has share nothing.
        places = np.flatnonzero(shared > max(best, 0.0))
        gains, ups = shared[places], self._parent[places]
        while len(places) > 0 and (ups != len(shared) - 1).any():
            gains = gains - losses[ups]
            better = gains > best
            places, gains, ups = places[better], gains[better], self._parent[ups[better]]
        return places, gains

    def _top(self, node: int, gone: int) -> int:
        """The root above a node, once the node ``gone`` has dissolved."""
        for up in self._forest.ancestors(node):
            if up != gone:
                node = up
        return node

    def _cached_loss(self, root: Blocks, joining: Blocks) -> int:
        return self._worth.cached(root) - self._worth.cached(root & joining)

    def _set_tokens(self, node: int) -> None:
        self._tokens[self._place[node]] = self._forest.tokens[node]

    def _set_parent(self, node: int) -> None:
        self._parent[self._place[node]] = self._place.get(self._forest.parent[node], len(self._parent) - 1)

    def _leave(self, node: int) -> tuple[int, dict[int, Blocks]]:
        """What is saved by a node's being where it is, and the blocks of those above that would have more without."""
        forest, worth = self._forest, self._worth
        parent = forest.parent[node]
        if parent == NONE:
            return worth.cached(forest.blocks[node]), {}
        kept = forest.tokens[parent]
        grown: dict[int, Blocks] = {}
        below, blocks = parent, forest.blocks[forest.left[parent] + forest.right[parent] - node]
        top, top_blocks = parent, blocks
        for up in forest.ancestors(parent):
            blocks = blocks & forest.blocks[forest.left[up] + forest.right[up] - below]
            if len(blocks) == len(forest.blocks[up]):
                break
            kept -= forest.weigh(blocks) - forest.tokens[up]
            grown[up] = blocks
            below = top = up
            top_blocks = blocks
        if not worth.plain and forest.parent[top] == NONE:
            kept += worth.cached(forest.blocks[top]) - worth.cached(top_blocks)
        return kept, grown

    def _move(self, node: int, target: int, grown: dict[int, Blocks]) -> None:
        forest = self._forest
        parent = forest.parent[node]
        if parent != NONE:
            self._members.remove(self._place[parent], forest.blocks[parent])
            sibling = forest.detach(node)
            self._set_tokens(parent)
            self._set_parent(sibling)
            for up, blocks in grown.items():
                self._become(up, blocks)
        self._set_parent(node)
        if target == NONE:
            return
        joined = forest.join(target, node)
        if joined not in self._place:
            self._place[joined] = len(self._node_at)
            self._node_at.append(joined)
        self._members.add(self._place[joined], forest.blocks[joined])
        self._set_tokens(joined)
        for changed in (joined, target, node):
            self._set_parent(changed)
        for up in forest.ancestors(joined):
            blocks = forest.blocks[up] & forest.blocks[node]
            if len(blocks) == len(forest.blocks[up]):
                break
            self._become(up, blocks)

    def _become(self, node: int, blocks: Blocks) -> None:
        forest = self._forest
        old, forest.blocks[node] = forest.blocks[node], blocks
        forest.tokens[node] = forest.weigh(blocks)
        if node in self._place:
            self._members.remove(self._place[node], old - blocks)
            self._members.add(self._place[node], blocks - old)
            self._set_tokens(node)
