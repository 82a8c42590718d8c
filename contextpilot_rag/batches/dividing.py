"""A batch divided into groups: level by level, the lots stay where they are, and only summaries are put together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..index.watch import Report
from .contexts import Contexts, Ints
from .grouping import Grouping, grouped
from .lots import Lots
from .splitting import Split, SplitTree, descend, merge_surveys, survey
from .summary import Summary
from .workers import Workers

_FAN = 16  # surveys that are merged at a time
_WAYS, _LEAST = 64, 256  # parts of a split for each group that there will be, and at least: all parts are known here


@dataclass(frozen=True, slots=True)
class Division:
    """Which group each context goes to.

    Args:
        parts: for each lot a reference to the parts that its contexts are in.
        grouping: from parts to groups.
        earlier: for each lot, of parts that are too large, how many contexts earlier lots have.
        levels: how often the batch was split.
        uncertain: how far weights may be off by which it was split, at most, as a share of what was weighed.
    """

    parts: list[Any]
    grouping: Grouping
    earlier: list[dict[int, int]]
    levels: int
    uncertain: float


def divide(workers: Workers, lots: Lots, group: int, counters: int, report: Report) -> Division:
    """Split a batch until its parts are small enough.

    Args:
        workers: who does it.
        lots: the batch.
        group: contexts of a group at most.
        counters: of each summary.
        report: is told about levels.
    """
    tree = SplitTree()
    sizes: Counter[int] = Counter({0: sum(lots.counts)})
    parts = [workers.submit(_all_in_one, count) for count in lots.counts]
    too_large = [0] if sizes[0] > group else []
    levels, uncertain = 0, 0.0
    while too_large:
        report("splitting", levels, levels + 1)
        above = workers.put({part: tree.above(part) for part in too_large})
        surveys = [
            workers.submit(survey, contexts, part, above, counters)
            for contexts, part in zip(lots.contexts, parts, strict=True)
        ]
        splits: dict[int, Split] = {}
        for part, summary in _merged(workers, surveys, counters).items():
            uncertain = max(uncertain, summary.lost / max(1, summary.total))
            most = max(_LEAST, _WAYS * -(-sizes[part] // group))
            heaviest = summary.heaviest(sizes[part])[:most]
            if len(heaviest):
                splits[part] = tree.split(part, heaviest)
        if not splits:
            break
        levels += 1
        made = workers.put(splits)
        moved = [
            workers.submit(_moved, contexts, part, made, returns=2)
            for contexts, part in zip(lots.contexts, parts, strict=True)
        ]
        parts = [part for part, _ in moved]
        found: Counter[int] = Counter()
        for _, counts in moved:
            found.update(workers.get(counts))
        for part in splits:
            del sizes[part]
        sizes.update(found)
        too_large = [part for part in sorted(found) if found[part] > group and tree.may_split(part)]
    report("splitting", levels, levels)
    grouping = grouped(tree.leaves(), sizes, group)
    return Division(parts, grouping, _earlier(workers, parts, sizes, group), levels, uncertain)


def _all_in_one(contexts: int) -> Ints:
    return np.zeros(contexts, np.int64)


def _moved(contexts: Contexts, parts: Ints, splits: Mapping[int, Split]) -> tuple[Ints, dict[int, int]]:
    """One level down; and how many contexts the new parts have."""
    found = descend(contexts, parts, splits)
    return found, _counts(found[np.isin(parts, list(splits))])


def _counts(parts: Ints) -> dict[int, int]:
    each, counts = np.unique(parts, return_counts=True)
    return dict(zip(each.tolist(), counts.tolist(), strict=True))


def _counts_of(parts: Ints, wanted: Sequence[int]) -> dict[int, int]:
    return _counts(parts[np.isin(parts, wanted)])


def _merge(counters: int, *surveys: Mapping[int, Summary]) -> dict[int, Summary]:
    return merge_surveys(surveys, counters)


def _merged(workers: Workers, surveys: list[Any], counters: int) -> dict[int, Summary]:
    """All surveys as one, merged as a tree, so that nobody holds all of them."""
    while len(surveys) > 1:
        runs = [surveys[start : start + _FAN] for start in range(0, len(surveys), _FAN)]
        surveys = [workers.submit(_merge, counters, *run) for run in runs]
    merged: dict[int, Summary] = workers.get(surveys[0])
    return merged


def _earlier(workers: Workers, parts: Sequence[Any], sizes: Mapping[int, int], group: int) -> list[dict[int, int]]:
    """For each lot, of parts that stayed too large, how many contexts the lots before it have."""
    wanted = [part for part, count in sizes.items() if count > group]
    if not wanted:
        return [{} for _ in parts]
    before: Counter[int] = Counter(dict.fromkeys(wanted, 0))
    found = []
    for counts in [workers.submit(_counts_of, part, wanted) for part in parts]:
        found.append(dict(before))
        before.update(workers.get(counts))
    return found
