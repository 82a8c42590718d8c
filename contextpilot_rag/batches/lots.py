"""A batch as its lots, which stay with the workers."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..index.watch import Report
from .reading import Reading, read_lot
from .workers import Workers


@dataclass(slots=True)
class Lots:
    """References, one for each lot.

    Args:
        contexts: `Contexts`.
        rows: what the caller gave for each of them.
        counts: how many there are; numbers, no references.
    """

    contexts: list[Any] = field(default_factory=list)
    rows: list[Any] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.contexts)


def read_lots(
    workers: Workers, given: Iterable[object], lengths: Mapping[Any, int] | None, how: Reading, report: Report
) -> Lots:
    """Have all lots read, a few at a time, so that an iterator is never far ahead of the workers.

    Args:
        workers: who reads.
        given: lists of contexts, or references to tables.
        lengths: tokens of each block, for rows that do not tell.
        how: see there.
        report: is told how many were read.

    Raises:
        InputError: something that is no context.
    """
    known = workers.put(lengths)
    lots = Lots()
    begun: deque[Any] = deque()
    first = 0
    for lot in given:
        where = "" if isinstance(lot, list) else f"block {len(lots)} of the data set: "
        contexts, rows, count = workers.submit(read_lot, lot, (where, first), known, how, returns=3)
        first += len(lot) if isinstance(lot, list) else 0
        lots.contexts.append(contexts)
        lots.rows.append(rows)
        begun.append(count)
        if len(begun) > 2 * workers.lanes:
            lots.counts.append(workers.get(begun.popleft()))
            report("reading", sum(lots.counts), sum(lots.counts))
    lots.counts += [workers.get(count) for count in begun]
    report("reading", sum(lots.counts), sum(lots.counts))
    return lots
