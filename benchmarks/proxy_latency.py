"""What the proxy adds to a request: the same requests at the same times, direct and through it, by turns."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from proxy_load import Job, Outcome
from proxy_runs import Process, load, proxy, upstream
from report import table

RATE = 100
P50, P99 = 3.0, 12.0
"""What is asked, in milliseconds."""


@dataclass(frozen=True)
class Load:
    """Requests of one kind.

    Args:
        label: for the table.
        kind: as of `Job`.
        upstream: "fixed" or "fake".
        stream: they ask for streams.
    """

    label: str
    kind: str
    upstream: str = "fixed"
    stream: bool = False


LOADS = (
    Load("documents in a wrapper", "documents"),
    Load("the same, streamed", "documents", stream=True),
    Load("tools' results", "tools"),
    Load("nothing to recognise", "plain"),
    Load("documents, FakeEngine", "documents", "fake"),
    Load("the same, streamed", "documents", "fake", stream=True),
)

EXPLAINED = """\
The same {rate} requests a second, direct and through the proxy, by turns; {rounds} rounds of {seconds:.0f} s each, new
requests in each round. Time from when a request was due; added: a percentile through the proxy less the same one
direct, of the same round. Median of the rounds (smallest-largest). Upstreams: one that answers with the same bytes at
once, with arrivals by chance (exponential gaps); and the FakeEngine with no latency set, which takes about as long as
the proxy to read a request, so arrivals are even. Bodies: {size:,.0f} bytes on average. Load, proxy and
upstream share the machine."""


class Latency:
    """Figures of all rounds."""

    def __init__(self) -> None:
        self._of: dict[tuple[int, str], list[float]] = defaultdict(list)
        self._sizes: list[float] = []

    def measure(self, rounds: int, seconds: float) -> str:
        """Measure, and say it.

        Args:
            rounds: of everything.
            seconds: of each load.
        """
        with contextlib.ExitStack() as stack:
            pairs = {}
            for kind in ("fixed", "fake"):
                behind = stack.enter_context(upstream(kind))
                pairs[kind] = behind, stack.enter_context(proxy(behind.url))
            for kind, pair in pairs.items():
                for server in pair:  # nothing is imported, connected or learnt for the first time while it counts
                    load(Job(server.port, "documents", 1.0, 30, even=kind == "fake", seed=99))
            for number in range(rounds):
                for place, what in enumerate(LOADS):
                    self._round(place, what, pairs[what.upstream], Job(0, what.kind, seconds, seed=number))
        return self._section(rounds, seconds)

    def _round(self, place: int, what: Load, pair: tuple[Process, Process], job: Job) -> None:
        found: dict[str, Outcome] = {}
        sides: Sequence[tuple[str, Process]] = [("direct", pair[0]), ("proxied", pair[1])]
        for side, server in sides if job.seed % 2 == 0 else reversed(sides):
            cpu = server.cpu_seconds
            sent = Job(
                server.port, what.kind, job.seconds, RATE, even=what.upstream == "fake", stream=what.stream,
                seed=100 * place + job.seed,
            )  # fmt: skip
            found[side] = outcome = load(sent)
            self._sizes.append(outcome.request_bytes)
            self._of[place, f"{side} failed"].append(outcome.failed)
            self._of[place, f"{side} requests"].append(len(outcome.took))
            if side == "proxied":
                self._of[place, "cpu"].append(1e3 * (server.cpu_seconds - cpu) / max(1, len(outcome.took)))
        for name, share in (("p50", 0.5), ("p99", 0.99)):
            for until in ("took", "first"):
                direct, proxied = (_quantile(getattr(found[side], until), share) for side in ("direct", "proxied"))
                self._of[place, f"direct {until} {name}"].append(direct)
                self._of[place, f"added {until} {name}"].append(proxied - direct)

    def _section(self, rounds: int, seconds: float) -> str:
        size = sum(self._sizes) / len(self._sizes)
        headings = [
            *("requests", "number", "failed", "direct p50, ms", "direct p99, ms", "added p50, ms", "added p99, ms"),
            *("first streamed byte, added p50, ms", "p99, ms", "proxy's CPU, ms a request"),
        ]
        return "\n\n".join(
            [
                f"### What it adds to a request of 30 kB, {RATE} a second",
                EXPLAINED.format(rate=RATE, rounds=rounds, seconds=seconds, size=size),
                table(["the worst of the medians below", "asked", "found", "reached"], self._bars()),
                table(headings, [self._row(place) for place in range(len(LOADS))]),
            ]
        )

    def _bars(self) -> Iterator[list[str]]:
        for kind, name in (("fixed", "the same bytes at once"), ("fake", "FakeEngine")):
            places = [place for place, what in enumerate(LOADS) if what.upstream == kind]
            for figure, most in (("p50", P50), ("p99", P99)):
                worst = max(
                    median(self._of[place, f"added {until} {figure}"])
                    for place in places
                    for until in ("took", "first")
                )
                reached = "yes" if worst <= most else "no"
                yield [f"added, {figure}, ms; upstream: {name}", f"<= {most:.0f}", f"{worst:.2f}", reached]

    def _row(self, place: int) -> list[object]:
        def spread(name: str) -> str:
            values = self._of[place, name]
            return f"{median(values):.2f} ({min(values):.2f}-{max(values):.2f})"

        firsts = [spread(f"added first {figure}") if LOADS[place].stream else "" for figure in ("p50", "p99")]
        sides = ("direct", "proxied")
        return [
            LOADS[place].label,
            int(sum(self._of[place, "proxied requests"])),
            int(sum(sum(self._of[place, f"{side} failed"]) for side in sides)),
            *(spread(f"{what} took {figure}") for what in ("direct", "added") for figure in ("p50", "p99")),
            *firsts,
            spread("cpu"),
        ]


def _quantile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values) or [float("nan")]
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
