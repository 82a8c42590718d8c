"""A batch as its lots, which stay with the workers."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..errors import InputError
from ..index.watch import Report
from .contexts import Contexts
from .payload import Payload, Table
from .reading import Reading, Where, read_lot
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
        contexts, rows, count = workers.submit(_read, lot, (where, first), known, how, returns=3)
        first += len(lot) if isinstance(lot, list) else 0
        lots.contexts.append(contexts)
        lots.rows.append(rows)
        begun.append(count)
        if len(begun) > 2 * workers.lanes:
            lots.counts.append(_counted(workers.get(begun.popleft())))
            report("reading", sum(lots.counts), sum(lots.counts))
    lots.counts += [_counted(workers.get(count)) for count in begun]
    report("reading", sum(lots.counts), sum(lots.counts))
    return lots


def _read(
    lot: Sequence[object] | Table, where: Where, lengths: Mapping[Any, int] | None, how: Reading
) -> tuple[Contexts | None, Payload | None, int | InputError]:
    """As `read_lot`, but the caller's error is a result: Ray shows each result of a task that fails, with its trace."""
    try:
        return read_lot(lot, where, lengths, how)
    except InputError as error:
        return None, None, error.with_traceback(None)


def _counted(count: int | InputError) -> int:
    if isinstance(count, InputError):
        raise count
    return count
