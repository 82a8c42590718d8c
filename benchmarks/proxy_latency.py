"""What the proxy adds to a request: the same requests at the same times, direct and through it, by turns."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Sequence
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
once, with arrivals by chance (exponential gaps); and the FakeEngine with no latency set, whose own reading takes it
most of the time between two requests, so arrivals are even. Bodies: {size:,.0f} bytes on average. Load, proxy and
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
        rows, worst = [], [0.0, 0.0]
        for place, what in enumerate(LOADS):
            of = {name: values for (at, name), values in self._of.items() if at == place}
            first = what.stream
            added = [of["added took p50"], of["added took p99"]]
            firsts = [of["added first p50"], of["added first p99"]] if first else [[], []]
            for which in (0, 1):
                worst[which] = max(
                    worst[which], *(median(values) for values in (added[which], firsts[which]) if values)
                )
            failed = int(sum(of["direct failed"]) + sum(of["proxied failed"]))
            rows.append(
                [what.label, int(sum(of["proxied requests"])), failed, _spread(of["direct took p50"]),
                 *(_spread(values) for values in (*added, *firsts)), _spread(of["cpu"])]
            )  # fmt: skip
        bars = [
            ["added, p50, ms", f"<= {P50:.0f}", f"{worst[0]:.2f}", "yes" if worst[0] <= P50 else "no"],
            ["added, p99, ms", f"<= {P99:.0f}", f"{worst[1]:.2f}", "yes" if worst[1] <= P99 else "no"],
        ]
        headings = ["requests", "number", "failed", "direct p50, ms", "added p50, ms", "added p99, ms",
                    "to the first streamed byte, added p50, ms", "p99, ms", "proxy's CPU, ms a request"]  # fmt: skip
        size = sum(self._sizes) / len(self._sizes)
        return "\n\n".join(
            [
                f"### What it adds to a request of 30 kB, {RATE} a second",
                EXPLAINED.format(rate=RATE, rounds=rounds, seconds=seconds, size=size),
                table(["the worst row's median", "asked", "found", "reached"], bars),
                table(headings, rows),
            ]
        )


def _quantile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values) or [float("nan")]
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def _spread(values: Sequence[float]) -> str:
    if not values:
        return ""
    return f"{median(values):.2f} ({min(values):.2f}-{max(values):.2f})"
