"""Part "appends": how many records a second three replicas and their log server stand, all on two processors."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from replicas_jobs import REPORTED_AFTER, Begin, Noted, Prepare, Seen, Worked
from replicas_setting import (
    LEAD_SECONDS,
    REPLICAS,
    begin_work,
    bound,
    equal,
    log_server,
    nodes,
    quantile,
    server_pid,
    settle,
)
from report import table
from service_runs import cpu_seconds

ASKED = 2_000
KINDS = ((1, False), (1, True), (50, False), (50, True))  # namespaces; with reports of usage
_LAG_SECONDS = 1.0  # p99, beyond which a rate is not held
_LATE_SECONDS = 0.25  # likewise
_STEP = 1.25
_MOST = 20_000
_POOL = "pilot"


@dataclass(frozen=True)
class Run:
    """What came of one rate.

    Args:
        asked: records a second.
        reached: records a second, from the first moment to the last request.
        records: told in all.
        late: seconds that requests began late, p99.
        lags: seconds from a record's being told to its being taken in by another replica.
        echoes: the same by the replica that told it.
        drained: seconds from the last record's being told until all was settled, at most.
        replica_cpu: of each, in processors.
        server_cpu: likewise.
        lost: records or entries that were dropped, rejected, or read anew.
        equal: all know the very same in the end.
    """

    asked: float
    reached: float
    records: int
    late: float
    lags: Sequence[float]
    echoes: Sequence[float]
    drained: float
    replica_cpu: Sequence[float]
    server_cpu: float
    lost: int
    equal: bool

    @property
    def held(self) -> bool:
        """Whether replicas and server kept up."""
        in_time = quantile(self.lags, 0.99) <= _LAG_SECONDS and self.late <= _LATE_SECONDS
        return in_time and not self.lost and self.equal


class Appends:
    """Measures, and shows.

    Args:
        seconds: of each rate that is asked for.
        search_seconds: of each rate that is tried beyond.
    """

    def __init__(self, seconds: float, search_seconds: float) -> None:
        self._seconds, self._search = seconds, search_seconds

    def measure(self) -> str:
        """All of it, as it stands in the README."""
        cores = bound()
        asked, highest = [], []
        for spaces, reports in KINDS:
            asked.append(run(ASKED, spaces, reports, self._seconds))
            _say(spaces, reports, asked[-1])
            highest.append(self._highest(spaces, reports))
        return "\n\n".join(_shown(cores, self._seconds, self._search, asked, highest))

    def _highest(self, spaces: int, reports: bool) -> tuple[Run | None, Run]:
        """The highest of the rates that was held, and the next, which was not."""
        rate, held = float(ASKED), None
        while True:
            found = run(rate, spaces, reports, self._search)
            _say(spaces, reports, found)
            if not found.held or rate > _MOST:
                return held, found
            held, rate = found, rate * _STEP


def run(rate: float, spaces: int, reports: bool, seconds: float) -> Run:
    """Three replicas, each at a third of a rate of records.

    Args:
        rate: of records a second, of all.
        spaces: namespaces.
        reports: each second record is a report of usage.
        seconds: how long.
    """
    requests = rate / REPLICAS / (2 if reports else 1)
    with log_server() as server, nodes([Begin(server.url, {_POOL: None}, watch=True)] * REPLICAS) as opened:
        pids = [*(node.pid for node in opened), server_pid(server)]
        jobs = [
            Prepare(_POOL, round(requests * seconds), requests, seed=100 + number, spaces=spaces, reports=reports)
            for number in range(REPLICAS)
        ]
        begin = begin_work(opened, jobs)
        before = [cpu_seconds(pid) for pid in pids]
        worked = [node.hear(Worked) for node in opened]
        statuses = settle(opened)
        used = [cpu_seconds(pid) - was for pid, was in zip(pids, before, strict=True)]
        ended = time.perf_counter()
        noted = [node.ask(Seen(), Noted) for node in opened]
        last = max(at for one in noted for _, at in one.told)
        records = sum(len(one.told) for one in noted)
        lags, echoes = _lags(noted)
        missing = REPLICAS * records - len(lags) - len(echoes)
        lost = missing + sum(one.dropped + one.rejected + one.reloads + (not one.settled) for one in statuses)
        return Run(
            asked=rate,
            reached=records / (last - begin - (REPORTED_AFTER if reports else 0.0)),
            records=records,
            late=quantile([late for one in worked for late in one.late], 0.99),
            lags=lags,
            echoes=echoes,
            drained=ended - last,
            replica_cpu=[one / (ended - begin + LEAD_SECONDS) for one in used[:-1]],
            server_cpu=used[-1] / (ended - begin + LEAD_SECONDS),
            lost=lost,
            equal=equal(opened, _POOL),
        )


def _lags(noted: Sequence[Noted]) -> tuple[list[float], list[float]]:
    """Seconds from told to taken in: by others, and by whoever told it."""
    lags, echoes = [], []
    for writer in noted:
        told = dict(writer.told)
        for reader in noted:
            found = [at - told[number] for number, at in reader.arrived.get(writer.writer, ())]
            (echoes if reader is writer else lags).extend(found)
    return lags, echoes


def _shown(
    cores: int, seconds: float, search: float, asked: Sequence[Run], highest: Sequence[tuple[Run | None, Run]]
) -> Iterator[str]:
    yield (
        f"{REPLICAS} replicas, each a process that aligns requests of 15 blocks at times that do not depend on how "
        f"long anything takes (exponential gaps), the log server and this script: all on {cores} of the machine's "
        f"{os.cpu_count()} processors, {seconds:.0f} s. A record is a request that was sent, or a report of its "
        "usage, a tenth of a second later. *lag*: from a record's being told until another replica has taken it in; "
        "*own*: until the same one has. A rate is held where no more than a hundredth of the records lags by more "
        f"than {_LAG_SECONDS:.0f} s and no more than a hundredth of the requests begins {_LATE_SECONDS} s late, no "
        "record is dropped, rejected or missing, none is read anew, and all replicas are equal in the end (digests of "
        "all that they know). CPU in processors, the requests' own alignment included."
    )
    rows = [
        [*_kind(kind), *_figures(found), "yes" if found.held else "no"]
        for kind, found in zip(KINDS, asked, strict=True)
    ]
    lags = ["lag p50, ms", "lag p99, ms", "own p50, ms", "own p99, ms"]
    headings = ["namespaces", "records", "asked, records a second", "reached", *lags]
    headings += ["CPU of a replica", "CPU of the server", "lost", "equal", "held"]
    yield table(headings, rows)
    yield (f"Beyond: from {ASKED:,} on by steps of {_STEP - 1:.0%}, {search:.0f} s each, until a rate is not held.")
    rows = [
        [*_kind(kind), "none" if held is None else f"{held.asked:,.0f}",
         "" if held is None else f"{1e3 * quantile(held.lags, 0.99):.0f}", f"{broken.asked:,.0f}",
         "held, too; not tried further" if broken.held else _why(broken)]
        for kind, (held, broken) in zip(KINDS, highest, strict=True)
    ]  # fmt: skip
    yield table(["namespaces", "records", "highest held", "lag p99, ms", "the next", "what was wrong"], rows)


def _kind(kind: tuple[int, bool]) -> list[str]:
    return [str(kind[0]), "requests and reports" if kind[1] else "requests"]


def _figures(found: Run) -> list[str]:
    times = [1e3 * quantile(of, share) for of in (found.lags, found.echoes) for share in (0.5, 0.99)]
    cpu = f"{min(found.replica_cpu):.2f}-{max(found.replica_cpu):.2f}"
    return [f"{found.asked:,.0f}", f"{found.reached:,.0f}", *(f"{one:.1f}" for one in times), cpu,
            f"{found.server_cpu:.2f}", f"{found.lost:,}", "yes" if found.equal else "no"]  # fmt: skip


def _why(found: Run) -> str:
    reasons: Sequence[tuple[bool, Callable[[], str]]] = (
        (found.late > _LATE_SECONDS, lambda: f"requests {found.late:.1f} s late"),
        (quantile(found.lags, 0.99) > _LAG_SECONDS, lambda: f"lag p99 {quantile(found.lags, 0.99):.1f} s"),
        (found.lost > 0, lambda: f"{found.lost:,} lost"),
        (not found.equal, lambda: "not equal"),
    )
    return ", ".join(say() for wrong, say in reasons if wrong)


def _say(spaces: int, reports: bool, found: Run) -> None:
    print(
        f"{spaces} namespaces{', reports' if reports else ''}: {found.asked:,.0f} asked, {found.reached:,.0f} reached, "
        f"lag p99 {1e3 * quantile(found.lags, 0.99):.0f} ms, {'held' if found.held else _why(found)}",
        flush=True,
    )
