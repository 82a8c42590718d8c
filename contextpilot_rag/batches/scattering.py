"""The contexts of all lots, brought together by groups."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from .contexts import Contexts, Ints
from .dividing import Division
from .grouping import Grouping
from .lots import Lots
from .payload import Payload, joined, taken
from .workers import Workers

WIDE = 256  # what a lot is scattered to at once; more groups are reached in two steps

Slice = tuple[Ints, Contexts, Payload]
"""Some contexts, each with its group."""


def scattered(workers: Workers, lots: Lots, division: Division, wide: int = WIDE) -> list[list[Any]]:
    """For each group, references to the slices that together are its contexts, in the order they came.

    Args:
        workers: who does it.
        lots: the batch.
        division: which group each context goes to.
        wide: how many slices a lot is cut into at most.
    """
    count = division.grouping.count
    span = -(-count // wide)  # groups that are scattered together at first
    runs = [range(start, min(start + span, count)) for start in range(0, count, span)] if count else []
    grouping = workers.put(division.grouping)
    starts = np.array([run.start for run in runs[1:]], np.int64)
    each = zip(lots.contexts, lots.rows, division.parts, division.earlier, strict=True)
    cut = [
        _listed(workers.submit(_scatter, contexts, rows, parts, grouping, earlier, starts, returns=len(runs)))
        for contexts, rows, parts, earlier in each
    ]
    slices = [[lot[number] for lot in cut] for number in range(len(runs))]
    if span == 1:
        return slices
    found = []
    for run, together in zip(runs, slices, strict=True):
        inner = np.arange(run.start + 1, run.stop)
        parted = _listed(workers.submit(_gather_and_scatter, inner, *together, returns=len(run)))
        found += [[one] for one in parted]
    return found


def gathered(slices: tuple[Slice, ...]) -> Slice:
    """Slices as one."""
    kept = [one for one in slices if len(one[0])] or list(slices[:1])
    return (
        np.concatenate([groups for groups, _, _ in kept]),
        Contexts.concatenated([contexts for _, contexts, _ in kept]),
        joined([rows for _, _, rows in kept]),
    )


def _scatter(
    contexts: Contexts, rows: Payload, parts: Ints, grouping: Grouping, earlier: Mapping[int, int], starts: Ints
) -> Slice | list[Slice]:
    return _by_starts(grouping.of(parts, earlier), contexts, rows, starts)


def _gather_and_scatter(starts: Ints, *slices: Slice) -> Slice | list[Slice]:
    return _by_starts(*gathered(slices), starts)


def _by_starts(groups: Ints, contexts: Contexts, rows: Payload, starts: Ints) -> Slice | list[Slice]:
    """Slices of runs of groups, each of which begins at one of these; the only one itself, as tasks return it."""
    order = np.argsort(groups, kind="stable")
    runs = np.split(order, np.searchsorted(groups[order], starts))
    found = [(groups[run], contexts.select(run), taken(rows, run)) for run in runs]
    return found if len(found) > 1 else found[0]


def _listed(references: Any) -> list[Any]:  # noqa: ANN401
    return references if isinstance(references, list) else [references]
