"""Chart: the last hour as paths of an inline SVG. Minutes without requests leave a gap: nothing is drawn between."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .tally import Shares, Tally

WIDTH, HEIGHT = 600.0, 100.0


@dataclass(frozen=True, slots=True)
class Chart:
    """Paths in a box of `WIDTH` by `HEIGHT`, 100% at its top.

    Args:
        line: the predicted share.
        area: below it.
        baseline: the share in the retriever's order.
        reported: the share that engines reported.
        bars: requests of each minute: place and height, in the box.
        most: requests of the busiest minute.
    """

    line: str
    area: str
    baseline: str
    reported: str
    bars: list[tuple[float, float]]
    most: int

    @classmethod
    def of(cls, minutes: Sequence[Tally]) -> Chart:
        """That of an hour."""
        shares = [Shares.of(tally) for tally in minutes]
        predicted = _runs([share.predicted for share in shares])
        most = max((tally.requests for tally in minutes), default=0)
        step = WIDTH / max(1, len(minutes))
        bars = [
            (round(place * step, 1), round(max(2.0, HEIGHT * tally.requests / most), 1))
            for place, tally in enumerate(minutes)
            if tally.requests
        ]
        return cls(
            line=_line(predicted),
            area=" ".join(f"{_line([run])} V{HEIGHT:g} H{run[0][0]:g} Z" for run in predicted),
            baseline=_line(_runs([share.retrieved for share in shares])),
            reported=_line(_runs([share.reported for share in shares])),
            bars=bars,
            most=most,
        )


_Point = tuple[float, float]


def _runs(shares: Sequence[float | None]) -> list[list[_Point]]:
    """The points of shares, those next to each other in one run."""
    step = WIDTH / max(1, len(shares))
    runs: list[list[_Point]] = [[]]
    for place, share in enumerate(shares):
        if share is None:
            runs.append([])
        else:
            runs[-1].append((round((place + 0.5) * step, 1), round(HEIGHT * (1 - min(share, 1.0)), 1)))
    return [
        run if len(run) > 1 else [(run[0][0] - step / 2, run[0][1]), (run[0][0] + step / 2, run[0][1])]
        for run in runs
        if run
    ]


def _line(runs: Sequence[Sequence[_Point]]) -> str:
    """A path through each run.

    >>> _line([[(0.0, 1.0), (5.0, 2.0)]])
    'M0,1 L5,2'
    """
    return " ".join("M" + " L".join(f"{x:g},{y:g}" for x, y in run) for run in runs)
