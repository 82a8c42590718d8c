"""Bottom-up merging: again and again join the two trees that save most.

Joining two trees saves the tokens that their blocks have in common. A joined tree has fewer blocks than either part, so
no gain ever grows: gains from the past are upper bounds, and an entry of the table of gains is corrected only when it
seems to hold the best pair. That, and halving the table as it empties, makes a few thousand trees a matter of a second.

This is agglomerative clustering with lazily corrected nearest neighbours. That plain shared tokens are a good score is
measured, not proved; `exact` finds the optimum of a handful.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from .forest import Blocks, SetForest
from .members import Members

_GONE = -1.0
_WORTH_HALVING = 200  # trees; below, making a smaller table costs more than it saves


class Worth:
    """What a join saves beyond its shared tokens, and whether that is enough.

    Args:
        min_gain: a join has to save at least this share of the tokens of all requests below it. 0: any gain is enough.
        prompt_tokens: for each leaf, the tokens of all requests that ask for it.
        cached: tokens of a set of blocks that are cached before anything is sent. Each tree saves those of its root,
            so joining two trees loses some. None: nothing is cached.
    """

    __slots__ = ("_cached", "_known", "min_gain", "prompt_tokens")

    def __init__(
        self, min_gain: float, prompt_tokens: Sequence[int], cached: Callable[[Blocks], int] | None = None
    ) -> None:
        self.min_gain = min_gain
        self.prompt_tokens = prompt_tokens
        self._cached = cached
        self._known: dict[Blocks, int] = {}

    @property
    def plain(self) -> bool:
        """Whether shared tokens are all that counts."""
        return self.min_gain == 0 and self._cached is None

    def cached(self, blocks: Blocks) -> int:
        """Tokens of a root that are cached before anything is sent."""
        if self._cached is None or not blocks:
            return 0
        known = self._known.get(blocks)
        if known is None:
            known = self._known[blocks] = self._cached(blocks)
        return known

    def enough(self, gain: float, prompt_tokens: float) -> bool:
        """Whether a gain is worth touching requests of so many tokens."""
        # A hair less than the product, which may be a hair above the exact one: 0.07 * 100 > 7.
        return gain > 0 and gain >= self.min_gain * prompt_tokens * (1 - 1e-9)


def merge(
    forest: SetForest, roots: Iterable[int], worth: Worth, until: int = 1, late: Callable[[], bool] = lambda: False
) -> None:
    """Join roots of a forest, best pair first, while that is worth it.

    Args:
        forest: is changed.
        roots: those that may be joined.
        worth: what counts.
        until: stop when so many are left.
        late: asked before each join; True stops.
    """
    trees = [root for root in roots if forest.blocks[root]]
    if len(trees) <= until:
        return
    table = _Table(forest, trees, worth)
    while table.join_down_to(max(until, table.size // 2 if table.size > _WORTH_HALVING else 0), late):
        if table.left <= until:
            return
        table.tidy()


def _prompt_tokens_below(forest: SetForest, worth: Worth) -> list[int]:
    """Tokens of all requests below each node; only needed where a join may touch too many."""
    if worth.min_gain == 0:
        return []
    below = [*worth.prompt_tokens, *([0] * (len(forest) - forest.leaves))]
    for node in forest.children_first():
        below[node] = below[forest.left[node]] + below[forest.right[node]]
    return below


class _Table:
    """Gains of all pairs among some trees. Place i holds ``trees[i]``, or nothing (-1) once that was joined away."""

    def __init__(self, forest: SetForest, trees: list[int], worth: Worth) -> None:
        size = len(trees)
        self.trees = trees
        self._forest = forest
        self._worth = worth
        below = self._below = _prompt_tokens_below(forest, worth)
        sets = [forest.blocks[tree] for tree in trees]
        self._members = Members(size, sets, forest.weights)
        self._gains = self._members.table(sets)
        self._cached = np.array([worth.cached(forest.blocks[tree]) for tree in trees], np.float32)
        self._touched = np.array([below[tree] for tree in trees] if below else [], np.float64)
        self._clock = 0
        self.left = size
        self._made = [0] * size  # when the tree in each place was joined; a row is right about older trees only
        self._exact: dict[tuple[int, int], float] = {}  # gains of pairs of trees where something is cached
        for place in range(size):
            self._discount(place)
        self._best_place = self._gains.argmax(1)
        self._best = self._gains[np.arange(size), self._best_place]

    @property
    def size(self) -> int:
        """Places."""
        return len(self.trees)

    def join_down_to(self, goal: int, late: Callable[[], bool]) -> bool:
        """Join pairs, best first. Returns False if it stopped before: no pair is worth it, or it is late."""
        while self.left > goal:
            place = int(self._best.argmax())
            gain = self._best[place]
            if gain <= 0 or late():
                return False
            if self._correct(place, gain):
                self._join(place, int(self._best_place[place]))
        return True

    def tidy(self) -> None:
        """Close the gaps that joined trees left."""
        kept = [place for place, tree in enumerate(self.trees) if tree >= 0]
        self.trees = [self.trees[place] for place in kept]
        self._made = [self._made[place] for place in kept]
        self._members.keep(kept)
        self._cached = self._cached[kept]
        self._touched = self._touched[kept] if self._below else self._touched
        self._gains = self._gains[np.ix_(kept, kept)]
        self._best_place = self._gains.argmax(1)
        self._best = self._gains[np.arange(len(kept)), self._best_place]

    def _fill(self, place: int) -> None:
        """Upper bounds of what the tree in this place gains with every other."""
        self._members.overlaps(self._forest.blocks[self.trees[place]], self._gains[place])
        self._discount(place)

    def _discount(self, place: int) -> None:
        """From shared tokens to upper bounds of gains."""
        row, worth = self._gains[place], self._worth
        if not worth.plain:
            # What is cached for both is cached for what they share, at most: the larger of the two is lost.
            row -= np.maximum(self._cached, self._cached[place])
            if worth.min_gain:
                row[row < worth.min_gain * (self._touched + self._touched[place]) * (1 - 1e-6)] = _GONE
        row[place] = _GONE

    def _correct(self, place: int, gain: float) -> bool:
        """Make the best entry of a row right. Returns whether it still is what it was."""
        row, made = self._gains[place], self._made
        other = int(self._best_place[place])
        while row[other] > 0:
            if self.trees[other] < 0:
                row[other] = _GONE
            elif made[other] > made[place] and self._gains[other, place] < row[other]:
                row[other] = self._gains[other, place]
            elif not self._worth.plain and (exact := self._gain(place, other)) < row[other]:
                row[other] = exact
            else:
                break
            other = int(row.argmax())
        self._best_place[place] = other
        self._best[place] = row[other]
        return bool(row[other] == gain)

    def _gain(self, place: int, other: int) -> float:
        """What joining two trees is worth; -1 if it is not enough."""
        one, two = self.trees[place], self.trees[other]
        pair = (one, two) if one < two else (two, one)
        known = self._exact.get(pair)
        if known is None:
            forest, worth = self._forest, self._worth
            shared = forest.blocks[one] & forest.blocks[two]
            known = float(forest.weigh(shared) + worth.cached(shared))
            known -= worth.cached(forest.blocks[one]) + worth.cached(forest.blocks[two])
            if self._below and not worth.enough(known, self._below[one] + self._below[two]):
                known = _GONE
            # As the table can hold it: compared with what was rounded up, it would never be reached.
            known = self._exact[pair] = float(np.float32(known))
        return known

    def _join(self, place: int, other: int) -> None:
        forest, members = self._forest, self._members
        one, two = self.trees[place], self.trees[other]
        tree = forest.join(one, two)
        shared = forest.blocks[tree]
        members.remove(place, forest.blocks[one] - shared)
        members.remove(other, forest.blocks[two])
        self.trees[place], self.trees[other] = tree, -1
        self._clock += 1
        self.left -= 1
        self._made[place] = self._clock
        self._best[other] = _GONE
        if self._below:
            if tree == len(self._below):
                self._below.append(0)
            self._below[tree] = self._below[one] + self._below[two]
            self._touched[place] = self._below[tree]
        if self._cached.size:
            self._cached[place] = self._worth.cached(shared)
        self._fill(place)
        row = self._gains[place]
        self._best_place[place] = best = int(row.argmax())
        self._best[place] = row[best]
