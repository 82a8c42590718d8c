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
_NOISE = 0.05  # how far weights are bent for another attempt, as a share
_SCALE = 64  # bent weights are whole numbers, too


def grow(forest: SetForest, worth: Worth, watch: Watch | None = None, piece: int = PIECE) -> SetForest:
    """Join the leaves of a forest so that as many tokens as possible are saved.

    With a time limit, all of the time is used: more attempts, and the best of them.

    Args:
        forest: leaves that are not joined yet; is changed.
        worth: what counts.
        watch: says when to stop.
        piece: more trees than this are not compared each with each.

    Returns:
        The forest, or another one over the same leaves.
    """
    watch = watch or Watch()
    if forest.leaves <= MOST_LEAVES:
        best_forest(forest, worth)
        return forest
    watch.begin("merging", forest.leaves - 1)
    _merge(forest, worth, watch, piece)
    if worth.min_gain:
        return forest  # a join that was worth it need not be after a move
    watch.begin("refining", 2 * forest.leaves)
    _refine(forest, worth, watch, piece)
    if watch.limited and forest.leaves <= piece:
        forest = _attempt_more(forest, worth, watch)
    return forest


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
        idle = 0 if len(forest.roots()) < len(roots) else idle + 1
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


def _attempt_more(best: SetForest, worth: Worth, watch: Watch) -> SetForest:
    """Until it is late: merge under slightly bent weights, refine under the true ones, keep what saves most."""
    attempt = 0
    refine(best, best.standing(), worth, 0, watch.late)
    best_saved = _saved(best, worth)
    numbers = np.random.default_rng(0)
    while not watch.was_late:
        attempt += 1
        watch.begin(f"attempt {attempt}", 3 * best.leaves)
        bent = np.exp(_NOISE * numbers.standard_normal(len(best.weights))) * np.asarray(best.weights) * _SCALE
        other = SetForest(best.blocks[: best.leaves], np.maximum(1, np.round(bent)).astype(int).tolist())
        merge(other, range(other.leaves), Worth(0, worth.prompt_tokens), late=watch.late)
        other.reweigh(best.weights)
        refine(other, other.standing(), worth, 0, watch.late)
        saved = _saved(other, worth)
        if saved > best_saved:
            best, best_saved = other, saved
    return best


def _saved(forest: SetForest, worth: Worth) -> int:
    return forest.saved() + sum(worth.cached(forest.blocks[root]) for root in forest.roots())
