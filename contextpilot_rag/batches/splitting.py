"""Top-down: contexts that share heavy blocks stay together, until groups are small enough for one planner.

A group that is too large is split by its heaviest blocks: each context goes to the part of the heaviest one that it
holds, the rest to a part of its own. Parts stand in the order of their blocks, so neighbours share what lies above.
The idea of putting first what weighs most, and going on within, is that of group recursion (Liu et al., MLSys 2025).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from .contexts import Contexts, Hashes, Ints, within
from .summary import Summary

DEPTH = 24  # levels of splits; what is still too large below is cut as it comes


@dataclass(frozen=True, slots=True)
class Split:
    """How a part is split: a child for each of some blocks, numbered from ``first``, then one for the rest.

    Args:
        blocks: hashes, heaviest first.
        first: the number of the first child.
    """

    blocks: Hashes
    first: int


class SplitTree:
    """The parts of a batch as a tree; part 0 is all of it.

    >>> tree = SplitTree()
    >>> tree.split(0, np.array([7, 9], np.uint64)).first
    1
    >>> tree.leaves(), tree.above(2)
    ([1, 2, 3], [9])
    """

    def __init__(self) -> None:
        self._parent = [-1]
        self._by = [-1]  # the block that made a part; -1: it is the rest
        self._depth = [0]
        self._splits: dict[int, Split] = {}

    def __len__(self) -> int:
        return len(self._parent)

    def split(self, part: int, blocks: Hashes) -> Split:
        """Split a part by these blocks."""
        made = self._splits[part] = Split(blocks, len(self))
        self._by += [*blocks.tolist(), -1]
        self._parent += [part] * (len(blocks) + 1)
        self._depth += [self._depth[part] + 1] * (len(blocks) + 1)
        return made

    def above(self, part: int) -> list[int]:
        """The blocks that all contexts of a part hold, as far as the tree knows."""
        found = []
        while part >= 0:
            if self._by[part] >= 0:
                found.append(self._by[part])
            part = self._parent[part]
        return found

    def may_split(self, part: int) -> bool:
        """Whether it is not too deep down."""
        return self._depth[part] < DEPTH

    def leaves(self) -> list[int]:
        """The parts that were not split, depth first."""
        found, stack = [], [0]
        while stack:
            part = stack.pop()
            made = self._splits.get(part)
            if made is None:
                found.append(part)
            else:
                stack += range(made.first + len(made.blocks), made.first - 1, -1)
        return found


def descend(contexts: Contexts, parts: Ints, splits: Mapping[int, Split]) -> Ints:
    """The parts that contexts are in, one level further down where they were split.

    Args:
        contexts: some.
        parts: for each the part that it is in.
        splits: of parts.
    """
    found: Ints = parts.copy()
    for part, rows in _by_part(parts, splits):
        split = splits[part]
        place = np.argsort(split.blocks, kind="stable")
        known = split.blocks[place]
        lengths = contexts.lengths[rows]
        hashes = contexts.hashes[contexts.blocks[within(contexts.ends[rows], lengths)]]
        at = np.minimum(np.searchsorted(known, hashes), len(known) - 1)
        hit = known[at] == hashes
        child = np.full(len(rows), len(known), np.int64)
        np.minimum.at(child, np.repeat(np.arange(len(rows)), lengths)[hit], place[at[hit]])
        found[rows] = split.first + child
    return found


def survey(contexts: Contexts, parts: Ints, above: Mapping[int, Sequence[int]], size: int) -> dict[int, Summary]:
    """Summaries of parts that are to be split.

    Args:
        contexts: some of theirs, and others.
        parts: for each the part that it is in.
        above: for each part to be split, the blocks that all its contexts hold; they would not split it.
        size: counters of a summary.
    """
    found = {}
    for part, rows in _by_part(parts, above):
        numbers = contexts.blocks[within(contexts.ends[rows], contexts.lengths[rows])]
        times = np.bincount(numbers, minlength=len(contexts.keys))
        times[np.isin(contexts.hashes, np.array(above[part], np.uint64))] = 0
        held = np.flatnonzero(times)
        tokens = contexts.tokens[held]
        found[part] = Summary.of(contexts.hashes[held], tokens * times[held], tokens, size)
    return found


def merge_surveys(surveys: Sequence[Mapping[int, Summary]], size: int) -> dict[int, Summary]:
    """Surveys of several lots of contexts as one."""
    parts = sorted({part for one in surveys for part in one})
    return {part: Summary.merged([one[part] for one in surveys if part in one], size) for part in parts}


def _by_part(parts: Ints, wanted: Mapping[int, object]) -> list[tuple[int, Ints]]:
    """The rows of each wanted part."""
    rows = np.flatnonzero(np.isin(parts, np.fromiter(wanted, np.int64, len(wanted))))
    rows = rows[np.argsort(parts[rows], kind="stable")]
    starts = np.flatnonzero(np.diff(parts[rows], prepend=-1))
    return [(int(parts[run[0]]), run) for run in np.split(rows, starts[1:]) if len(run)]
