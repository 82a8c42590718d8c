"""The best forest of a handful of sets, by looking at all of them.

Dynamic programming over subsets: the best tree over some leaves splits them in two and saves what all of them share;
the best forest is one tree or splits in two. All splits of all subsets are 3 ** n steps.
"""

from __future__ import annotations

from functools import reduce

from .forest import SetForest
from .merge import Worth

MOST_LEAVES = 8
_NEVER = float("-inf")


def best_forest(forest: SetForest, worth: Worth) -> None:
    """Join the leaves of a forest so that nothing else would save more.

    Args:
        forest: up to about `MOST_LEAVES` leaves, none joined yet; is changed.
        worth: what counts.

    >>> from contextpilot_rag.index.forest import SetForest
    >>> forest = SetForest([frozenset("ab"), frozenset("bc"), frozenset("ca")], {"a": 3, "b": 2, "c": 1})
    >>> best_forest(forest, Worth(0, []))
    >>> forest.saved()
    3
    """
    everything = (1 << forest.leaves) - 1
    tree = [0.0] * (everything + 1)  # saved by the best single tree over a subset of the leaves
    wood = [0.0] * (everything + 1)  # saved by the best forest
    tree_split, wood_split = [0] * (everything + 1), [0] * (everything + 1)  # the best half; 0: none
    for subset in range(1, everything + 1):
        shared = reduce(frozenset.__and__, (forest.blocks[leaf] for leaf in _leaves(subset)))
        lowest = subset & -subset
        if subset != lowest:
            tree[subset] = wood[subset] = _NEVER
            half = subset
            while half := (half - 1) & subset:
                if not half & lowest:
                    continue  # the other half of a split that is looked at anyway
                rest = subset ^ half
                if tree[half] + tree[rest] > tree[subset]:
                    tree[subset], tree_split[subset] = tree[half] + tree[rest], half
                if wood[half] + wood[rest] > wood[subset]:
                    wood[subset], wood_split[subset] = wood[half] + wood[rest], half
            gain = forest.weigh(shared)
            touched = sum(worth.prompt_tokens[leaf] for leaf in _leaves(subset)) if worth.min_gain else 0
            tree[subset] = tree[subset] + gain if worth.enough(gain, touched) else _NEVER
        alone = tree[subset] + worth.cached(shared)
        if subset == lowest or alone > wood[subset]:
            wood[subset], wood_split[subset] = alone, 0

    def build(subset: int) -> int:
        half = tree_split[subset]
        return forest.join(build(half), build(subset ^ half)) if half else subset.bit_length() - 1

    stack = [everything] if everything else []
    while stack:
        subset = stack.pop()
        half = wood_split[subset]
        if half:
            stack += (half, subset ^ half)
        else:
            build(subset)


def _leaves(subset: int) -> list[int]:
    return [leaf for leaf in range(subset.bit_length()) if subset >> leaf & 1]
