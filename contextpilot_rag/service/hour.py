"""Hour: what happened in the last hour, by minute. For the status page; Prometheus remembers on its own."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from .tally import Tally

MINUTES = 60
_ROWS = 200  # of one minute; what else there is goes into one row
_ROWS_EACH = 50  # of one tenant; likewise, so that nobody's many namespaces hide the others'


class Row(NamedTuple):
    """Whose figures they are.

    Args:
        tenant: the API key's.
        namespace: without its head; None: all that found no place of their own.
        engine: as the client says.
    """

    tenant: str
    namespace: tuple[str, str, str] | None
    engine: str | None


OTHERS = Row("", None, None)  # one tenant's others have its name


@dataclass(slots=True)
class Minute:
    """One minute.

    Args:
        number: minutes of the clock.
        rows: figures.
        each: how many rows each tenant has.
        errors: how often something was rejected, by kind of problem.
    """

    number: int
    rows: dict[Row, Tally] = field(default_factory=dict)
    each: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)


class Hour:
    """The last sixty minutes, the one under way among them. Not thread-safe: the event loop owns it.

    Args:
        clock: seconds that never run backwards.

    >>> hour = Hour(lambda: 0.0)
    >>> hour.add(Row("acme", ("", "m", ""), None), Tally(requests=1))
    >>> [row.tenant for row in hour.minutes()[0].rows]
    ['acme']
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._minutes: deque[Minute] = deque()

    def add(self, row: Row, step: Tally) -> None:
        """Add figures to the minute that was under way at the last `turn`."""
        minute = self._minutes[-1] if self._minutes else self._now()
        rows = minute.rows
        tally = rows.get(row)
        if tally is None:
            if minute.each[row.tenant] >= _ROWS_EACH:
                row = Row(row.tenant, None, None)
            if row not in rows and len(rows) >= _ROWS:
                row = OTHERS
            if row not in rows:
                minute.each[row.tenant] += 1
            tally = rows.setdefault(row, Tally())
        tally.add(step)

    def turn(self) -> float:
        """Look at the clock; returns when the minute under way is over."""
        return (self._now().number + 1) * 60.0

    def rejected(self, kind: str) -> None:
        """Count something that was not answered as asked."""
        self._now().errors[kind] += 1

    @property
    def number(self) -> int:
        """The minute under way."""
        return int(self._clock() // 60)

    def minutes(self) -> list[Minute]:
        """Those in which something happened, oldest first, to be read in any thread.

        All but the one under way never change any more; of that one this is a copy.
        """
        now = self._now()
        rows = {row: Tally() for row in now.rows}
        for row, tally in now.rows.items():
            rows[row].add(tally)
        return [*list(self._minutes)[:-1], Minute(now.number, rows, errors=now.errors.copy())]

    def _now(self) -> Minute:
        number = self.number
        while self._minutes and self._minutes[0].number <= number - MINUTES:
            self._minutes.popleft()
        if not self._minutes or self._minutes[-1].number != number:
            self._minutes.append(Minute(number))
        return self._minutes[-1]
