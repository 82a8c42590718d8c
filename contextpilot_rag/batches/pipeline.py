"""From lots of contexts to a plan in shards, whoever does the work."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import InputError
from ..index.watch import Report
from .cutting import SLACK, GroupWork, Piece, cut
from .dividing import divide
from .lots import read_lots
from .planning import PlannedGroup, Totals, plan_group
from .reading import Reading
from .scattering import WIDE, Slice, gathered, scattered
from .sharded import Shard, ShardedPlan
from .workers import Workers

GROUP = 32_768  # contexts that one planner call takes
COUNTERS = 16_384  # of a summary, 24 bytes each


@dataclass(frozen=True, slots=True)
class Sizes:
    """How large things may be.

    Args:
        group: contexts that one planner call takes.
        counters: of the summaries of heavy blocks.
        slack: how far from equal work a cut may be, as a share of a shard's work.
        wide: how many slices a lot is cut into at most.
    """

    group: int = GROUP
    counters: int = COUNTERS
    slack: float = SLACK
    wide: int = WIDE


def plan_in_shards(
    workers: Workers,
    lots: Iterable[object],
    shards: int,
    *,
    lengths: Mapping[Any, int] | None = None,
    how: Reading | None = None,
    sizes: Sizes | None = None,
    report: Report | None = None,
) -> ShardedPlan:
    """Plan a batch.

    Args:
        workers: who does the work.
        lots: lists of contexts, or references to tables.
        shards: how many engines there are.
        lengths: tokens of each block, for rows that do not tell.
        how: how rows become requests.
        sizes: how large things may be.
        report: is told about progress.

    Raises:
        InputError: something that is no context.
    """
    sizes, report = sizes or Sizes(), report or (lambda *_: None)
    batch = read_lots(workers, lots, lengths, how or Reading(), report)
    if not sum(batch.counts):
        raise InputError("there is no context to plan")
    division = divide(workers, batch, sizes.group, sizes.counters, report)
    begun = [workers.submit(_planned, *slices, returns=2) for slices in scattered(workers, batch, division, sizes.wide)]
    groups = [planned for planned, _ in begun]
    totals: list[Totals] = []
    for _, total in begun:
        totals.append(workers.get(total))
        report("planning", sum(total.requests for total in totals), sum(batch.counts))
    each = _Cutter(workers, groups, totals).shards(shards, sizes.slack)
    return ShardedPlan(
        each,
        sum(
            totals,
            Totals(cached=sum(shard.predicted_cached_tokens for shard in each) - sum(one.cached for one in totals)),
        ),
        len(groups),
        max(total.requests for total in totals),
        division.levels,
        division.uncertain,
    )


class _Cutter:
    """Planned groups, cut into shards."""

    def __init__(self, workers: Workers, groups: list[Any], totals: list[Totals]) -> None:
        self._workers = workers
        self._groups = groups
        self._totals = totals
        self._seen: dict[int, GroupWork] = {}

    def shards(self, count: int, slack: float) -> tuple[Shard, ...]:
        sizes = [total.requests for total in self._totals]
        work = [total.tokens - total.cached for total in self._totals]
        pieces = cut(sizes, work, count, self._work, slack)
        return tuple(self._shard(number, tuple(each)) for number, each in enumerate(pieces))

    def _shard(self, number: int, pieces: tuple[Piece, ...]) -> Shard:
        requests = tokens = cached = 0
        for piece in pieces:
            total = self._totals[piece.group]
            requests += piece.stop - piece.start
            if piece.stop - piece.start == total.requests:
                tokens, cached = tokens + total.tokens, cached + total.cached
            else:  # its first request finds nothing any more
                inside = self._work(piece.group)
                tokens += int(inside.tokens[piece.start : piece.stop].sum())
                cached += int(inside.cached[piece.start + 1 : piece.stop].sum())
        return Shard(number, requests, tokens, cached, pieces, self._groups, self._workers)

    def _work(self, group: int) -> GroupWork:
        """The work within a group; only those are looked into in which a cut may be."""
        if group not in self._seen:
            self._seen[group] = self._workers.get(self._workers.submit(_work_of, self._groups[group]))
        return self._seen[group]


def _planned(*slices: Slice) -> tuple[PlannedGroup, Totals]:
    _, contexts, rows = gathered(slices)
    planned = plan_group(contexts, rows)
    return planned, planned.totals


def _work_of(planned: PlannedGroup) -> GroupWork:
    return GroupWork(planned.tokens, planned.cached)
