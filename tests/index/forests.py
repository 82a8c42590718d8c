"""What must hold for every forest of sets at any time, and forests to try it on."""

from __future__ import annotations

import random

from hypothesis import strategies as st

from contextpilot_rag.index.forest import NONE, SetForest

WEIGHTS = [7, 1, 40, 3, 12, 5, 100, 2, 9, 30]
sets = st.frozensets(st.integers(0, len(WEIGHTS) - 1), max_size=6)


def check_forest(forest: SetForest) -> None:
    size = len(forest)
    for values in (forest.blocks, forest.tokens, forest.parent, forest.left, forest.right):
        assert len(values) == size
    free = set(forest.free)
    assert len(free) == len(forest.free), "no node is free twice"
    below, stack = [], [node for node in range(size) if forest.parent[node] == NONE and node not in free]
    assert sorted(stack) == forest.roots()
    while stack:
        node = stack.pop()
        below.append(node)
        children = [child for child in (forest.left[node], forest.right[node]) if child != NONE]
        if node < forest.leaves:
            assert not children
        else:
            left, right = children
            assert forest.parent[left] == forest.parent[right] == node
            assert forest.blocks[node] == forest.blocks[left] & forest.blocks[right]
        assert forest.tokens[node] == sum(forest.weights[block] for block in forest.blocks[node])
        stack += children
    assert len(below) == len(set(below)), "every node stands in one tree, once"
    assert set(below) | free == set(range(size)), "every node stands in a tree or is free"
    assert not free & set(below)
    assert not any(node < forest.leaves for node in free)
    assert sorted(below) == forest.standing()
    for node in free:
        assert forest.parent[node] == forest.left[node] == forest.right[node] == NONE
        assert not forest.blocks[node]


def leaves_below(forest: SetForest, node: int) -> list[int]:
    return sorted(one for one in forest.nodes_below(node) if one < forest.leaves)


def grown_at_random(sets, weights, seed, joins=None) -> SetForest:
    """A forest of joins that nobody would choose."""
    forest, numbers = SetForest(list(sets), weights), random.Random(seed)
    while len(roots := forest.roots()) > 1 and (joins is None or joins > 0):
        forest.join(*numbers.sample(roots, 2))
        joins = None if joins is None else joins - 1
    return forest


@st.composite
def forests(draw, least=1, most=12, trees=False, leaves=sets):
    """Random forests; one tree if ``trees``."""
    leaves = draw(st.lists(leaves, min_size=least, max_size=most))
    joins = None if trees else draw(st.integers(0, most))
    return grown_at_random(leaves, WEIGHTS, draw(st.integers(0, 2**16)), joins)


def some_sets(seed: int, count: int, blocks: int, size: int) -> tuple[list[frozenset[int]], list[int]]:
    """Sets of about ``size`` blocks, some blocks much more popular than others, and the blocks' weights."""
    numbers = random.Random(seed)
    popular = [1 / (1 + number) ** 0.7 for number in range(blocks)]
    found = [frozenset(numbers.choices(range(blocks), popular, k=size)) for _ in range(count)]
    return found, [numbers.randint(20, 400) for _ in range(blocks)]
