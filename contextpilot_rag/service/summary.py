"""Summary: the last hour's figures, added up for the status page."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from .hour import MINUTES, Minute
from .tally import Tally

Space = tuple[str, tuple[str, str, str] | None]  # the API key's tenant; tenant, model and corpus, or None: all others


@dataclass(slots=True)
class Summary:
    """The last hour.

    Args:
        total: of all.
        minutes: each minute's total, oldest first, up to the one under way.
        spaces: by tenant and namespace, those with the most tokens first.
        engines: by tenant and engine, likewise.
        errors: what was rejected, by kind of problem.
    """

    total: Tally = field(default_factory=Tally)
    minutes: list[Tally] = field(default_factory=lambda: [Tally() for _ in range(MINUTES)])
    spaces: dict[Space, Tally] = field(default_factory=dict)
    engines: dict[tuple[str, str | None], Tally] = field(default_factory=dict)
    errors: Counter[str] = field(default_factory=Counter)

    @classmethod
    async def of(cls, minutes: Sequence[Minute]) -> Summary:
        """Add up minutes; the last one is under way. Between two of them others have their turn."""
        summary = cls()
        for minute in minutes:
            summary._add(minute, MINUTES - 1 - (minutes[-1].number - minute.number))
            await asyncio.sleep(0)
        for tally in summary.minutes:
            summary.total.add(tally)
        summary.spaces = dict(sorted(summary.spaces.items(), key=_busiest))
        summary.engines = dict(sorted(summary.engines.items(), key=_busiest))
        return summary

    def _add(self, minute: Minute, place: int) -> None:
        for row, tally in minute.rows.items():
            self.minutes[place].add(tally)
            self.spaces.setdefault((row.tenant, row.namespace), Tally()).add(tally)
            if row.namespace is not None:
                self.engines.setdefault((row.tenant, row.engine), Tally()).add(tally)
        self.errors.update(minute.errors)


def _busiest(item: tuple[object, Tally]) -> int:
    return -item[1].block_tokens
