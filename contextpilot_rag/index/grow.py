"""From leaves to the best forest that is found in time: exactly, bottom-up, or in pieces first."""

from __future__ import annotations

import numpy as np

from .exact import MOST_LEAVES, best_forest
from .forest import SetForest
from .merge import Worth, merge
from .refine import refine
from .split import by_direction, by_popularity
from .watch import Watch

PIECE = 4_096  # trees that are merged in one table, which takes 4 bytes for each pair
_LEFT = 0.6  # share of a piece's trees that is left when pieces are drawn anew
_PROGRESS = 0.97  # a division that leaves more of the trees was idle
_NOISE = 0.05  # how far weights are bent for another attempt, as a share
_SCALE = 64  # bent weights are whole numbers, too


def grow(forest: SetForest, worth: Worth, watch: Watch, piece: int = PIECE) -> bool:
    """Join the leaves of a forest so that as many tokens as possible are saved.

    Args:
        forest: leaves that are not joined yet; is changed.
        worth: what counts.
        watch: says when to stop.
        piece: more trees than this are not compared each with each.

    Returns:
        Whether there was time for all of it.
    """
    if forest.leaves <= MOST_LEAVES:
        best_forest(forest, worth)
        return True
    watch.begin("merging", forest.leaves - 1)
    _merge(forest, worth, watch, piece)
    if not worth.min_gain:  # else a join that was worth it need not be after a move
        watch.begin("refining", 2 * forest.leaves)
        _refine(forest, worth, watch, piece)
    return not watch.was_late


class Attempts:
    """More of the same, from slightly other starts: merge under bent weights, refine under the true ones.

    Args:
        forest: the best one so far.
        worth: what counts.
        piece: as for `grow`.
    """

    def __init__(self, forest: SetForest, worth: Worth, piece: int = PIECE) -> None:
        self.best = forest
        self.useful = MOST_LEAVES < forest.leaves <= piece and not worth.min_gain
        self._worth = worth
        self._number = 0
        self._numbers = np.random.default_rng(0)

    def once(self, watch: Watch) -> None:
        """Try to find a forest that saves more; the first time, by refining the one that there is to the end."""
        best, worth = self.best, self._worth
        watch.begin(f"attempt {self._number}", 3 * best.leaves)
        if self._number == 0:
            refine(best, best.standing(), worth, 0, watch.late)
        else:
            bent = np.exp(_NOISE * self._numbers.standard_normal(len(best.weights))) * np.asarray(best.weights) * _SCALE
            other = SetForest(best.blocks[: best.leaves], np.maximum(1, np.round(bent)).astype(int).tolist())
            merge(other, range(other.leaves), Worth(0, worth.prompt_tokens), late=watch.late)
            other.reweigh(best.weights)
            refine(other, other.standing(), worth, 0, watch.late)
            if _saved(other, worth) > _saved(best, worth):
                self.best = other
        self._number += 1


def _merge(forest: SetForest, worth: Worth, watch: Watch, piece: int) -> None:
    divisions = (by_direction, by_popularity)
    number = idle = 0
    while len(roots := [root for root in forest.roots() if forest.blocks[root]]) > piece and idle < len(divisions):
        pieces = divisions[number % 2]([forest.blocks[root] for root in roots], forest.weights, piece)
        for positions in pieces:
            merge(forest, [roots[at] for at in positions], worth, round(_LEFT * len(positions)), watch.late)
            if watch.was_late:
                return
        number += 1
        idle = 0 if len(forest.roots()) < _PROGRESS * len(roots) else idle + 1
    if len(roots) <= piece:
        merge(forest, roots, worth, late=watch.late)


def _refine(forest: SetForest, worth: Worth, watch: Watch, piece: int) -> None:
    if forest.leaves <= piece:
        refine(forest, forest.standing(), worth, late=watch.late)
    elif worth.plain:
        for nodes in _subtrees(forest, piece):
            refine(forest, nodes, worth, late=watch.late)
            if watch.was_late:
                return


def _subtrees(forest: SetForest, size: int) -> list[list[int]]:
    """The largest subtrees of at most ``size`` leaves, as lists of their nodes."""
    found, stack = [], forest.roots()
    counts = forest.leaf_counts()
    while stack:
        node = stack.pop()
        if counts[node] > size:
            stack += (forest.left[node], forest.right[node])
        elif counts[node] > 2:
            found.append(forest.nodes_below(node))
    return found


def _saved(forest: SetForest, worth: Worth) -> int:
    return forest.saved() + sum(worth.cached(forest.blocks[root]) for root in forest.roots())
