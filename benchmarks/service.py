"""The service beside the published peer's server, under load, in one run on one machine.

    python benchmarks/service.py [--quick]

Each server is a process of its own, as the load is. Rounds are alternated; what is written is the median over the
rounds, and the smallest and the largest. Writes its section of benchmarks/README.md (not with --quick). Takes about
eight minutes where nothing else runs. Needs, for the peer, a package index.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from statistics import median

import msgspec

sys.path.insert(0, str(Path(__file__).resolve().parent))

import peer
from peer_service import peer_server, taught_server
from report import provenance, table, write_section
from service_load import Job, Outcome
from service_runs import Load, OurServer, cpu_seconds, our_server
from service_traffic import KNOWN, SIZE, Traffic, ours

RATE = 200
CONNECTIONS = 16
OPEN_CONNECTIONS = 64  # so that no request waits for one
PLANNED = 5_000
PEER_KNOWN = 1_500  # a few hundred more, and it fails; one batch of 10,000 would take it more than half an hour
PLAN_BEGINS = 0.5  # seconds


@dataclass(frozen=True)
class Length:
    """How long everything takes.

    Args:
        rounds: of everything.
        open: seconds of a load at a fixed rate.
        closed: seconds of a load that is as fast as the answers.
        hang: seconds for the peer to be taught one by one.
    """

    rounds: int
    open: float
    closed: float
    hang: float


class Found:
    """All figures of all rounds, by name."""

    def __init__(self) -> None:
        self.values: dict[str, list[float]] = defaultdict(list)

    def add(self, name: str, outcome: Outcome) -> None:
        """The figures of one load."""
        took = sorted(outcome.took) or [float("nan")]
        values = self.values
        values[f"{name} requests"].append(len(outcome.took))
        values[f"{name} failed"].append(outcome.failed)
        values[f"{name} p50"].append(_quantile(took, 0.5))
        values[f"{name} p99"].append(_quantile(took, 0.99))
        values[f"{name} answered p50"].append(median(outcome.answered or [float("nan")]))
        values[f"{name} max"].append(took[-1])
        values[f"{name} rps"].append(len(outcome.took) / outcome.seconds if outcome.seconds > 0 else 0.0)
        values[f"{name} request bytes"].append(outcome.request_bytes)
        values[f"{name} answer bytes"].append(outcome.answer_bytes)

    def of(self, name: str) -> float:
        """The median."""
        return median(self.values[name])

    def spread(self, name: str, digits: int = 2) -> str:
        """The median, and between what it lies."""
        values = self.values[name] or [float("nan")]
        return f"{median(values):,.{digits}f} ({min(values):,.{digits}f}-{max(values):,.{digits}f})"

    def total(self, name: str) -> str:
        """The sum."""
        return f"{sum(self.values[name]):,.0f}"


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a minute and a half; only shows its tables")
    options = parser.parse_args()
    length = Length(1, 3.0, 1.5, 5.0) if options.quick else Length(5, 6.0, 3.0, 30.0)
    started, before = time.perf_counter(), os.getloadavg()[0]
    traffic = Traffic()
    planned = [ours(context, "throughput") for context in islice(Traffic().new(99), PLANNED)]
    plan = msgspec.json.encode({"requests": planned})
    found = Found()
    for number in range(length.rounds):
        sides: list[Callable[[], None]] = [
            lambda number=number: our_round(found, traffic, plan, length, number),  # type: ignore[misc]
            lambda number=number: peer_round(found, traffic, length, number),  # type: ignore[misc]
        ]
        for side in sides if number % 2 == 0 else reversed(sides):
            side()
        print(f"round {number + 1} of {length.rounds}: {time.perf_counter() - started:.0f} s", flush=True)
    stopped = teach(traffic, length.hang)
    text = section(found, traffic, length, stopped, before)
    print(text)
    if not options.quick:
        write_section("service", text)


def our_round(found: Found, traffic: Traffic, plan: bytes, length: Length, number: int) -> None:
    """Everything that is asked of our server, once; each time from 10,000 contexts."""
    with our_server(traffic) as server:
        fixed = Job(server.port, "health", length.open, RATE, OPEN_CONNECTIONS, 1_000 + number, server.key)
        closed = Job(server.port, "align", length.closed, 0, 1, 2_000 + number, server.key)
        found.add("health", Load(fixed).outcome())
        found.add("align", Load(msgspec.structs.replace(fixed, kind="align")).outcome())
        found.add("throughput", Load(msgspec.structs.replace(fixed, kind="throughput")).outcome())
        found.add("planning", _planning(found, server, plan, msgspec.structs.replace(fixed, kind="align")))
        found.add("one", Load(closed).outcome())
        found.add("remote", Load(msgspec.structs.replace(closed, kind="remote", seed=3_000 + number)).outcome())
        full = msgspec.structs.replace(closed, connections=CONNECTIONS, seed=4_000 + number)
        _with_cpu(found, "full", server.pid, full)
        _with_cpu(found, "health full", server.pid, msgspec.structs.replace(full, kind="health"))
    with our_server(traffic, "--snapshot-seconds", "1") as server:
        saving = Job(server.port, "align", length.open, RATE, OPEN_CONNECTIONS, 5_000 + number, server.key)
        found.add("saving", Load(saving).outcome())


def peer_round(found: Found, traffic: Traffic, length: Length, number: int) -> None:
    """The same of the peer's, from the contexts that it can be given."""
    with taught_server(_ids(traffic, 0, PEER_KNOWN)) as (server, seconds, hung):
        found.values["peer load"].append(seconds)
        found.values["peer hung"].append(hung)
        one = Job(server.port, "peer", length.closed, 0, 1, 2_000 + number, requests=50)
        found.add("peer one", Load(one).outcome())
        full = msgspec.structs.replace(one, connections=CONNECTIONS, seed=4_000 + number, requests=0)
        _with_cpu(found, "peer full", server.pid, full)
    with peer_server("--stateless") as server:
        full = Job(server.port, "peer", length.closed, 0, CONNECTIONS, 4_000 + number)
        _with_cpu(found, "peer stateless", server.pid, full)


def teach(traffic: Traffic, patience: float) -> str:
    """How far the peer gets when it is given the known contexts, after the first batch, one by one."""
    with taught_server(_ids(traffic, 0, PEER_KNOWN)) as (server, _, _):
        at, began = PEER_KNOWN, time.perf_counter()
        while at < KNOWN and time.perf_counter() - began < patience:
            try:
                server.reorder(_ids(traffic, at, at + 1), patience=10.0)
            except (OSError, RuntimeError) as error:
                return f"it took {at:,} and then failed ({type(error).__name__}: {error})"
            at += 1
        return f"it had taken {at:,} when {patience:.0f} seconds were over"


def section(found: Found, traffic: Traffic, length: Length, stopped: str, load: float) -> str:
    """What stands in the README."""
    versions = provenance(("uvicorn", "uvloop", "httptools", "httpcore"))
    traffic_text = (
        f"Contexts of {SIZE} blocks {traffic.source}; {KNOWN:,} of them known, each request a new one: one of them "
        "with three blocks of another. Load, server and plan share the machine. Our server asks for a key and keeps "
        f"snapshots. Rounds: {length.rounds}; each figure is their median (smallest-largest)."
    )
    open_text = (
        "Arrivals by chance (exponential gaps), whether or not the earlier ones are answered; time from when a request "
        "was due. `/healthz` is what load, machine and HTTP cost by themselves. *plans*: batches of "
        f"{PLANNED:,} contexts, one after the other all the time, sent and fetched whole; the "
        f"{len(found.values['plan seconds'])} that were done took {found.spread('plan seconds', 1)} s each. "
        "*snapshots*: one each second."
    )
    parts = [
        "## The service",
        f"From {versions} Peer: contextpilot {peer.VERSION}, its server. Load average before: {load:.1f}.",
        traffic_text,
        _bars(found),
        f"### At {RATE} requests a second",
        open_text,
        _open(found),
        "### One after another",
        "As fast as the answers come.",
        _closed(found),
        _about_peer(found, stopped),
    ]
    return "\n\n".join(parts)


def _bars(found: Found) -> str:
    times = found.of("full rps") / found.of("peer full rps")
    bars: Sequence[tuple[str, float, str, bool]] = [
        (f"align at {RATE} requests a second, p50, ms", found.of("align p50"), "<= 2.5", found.of("align p50") <= 2.5),
        (f"align at {RATE} requests a second, p99, ms", found.of("align p99"), "<= 10", found.of("align p99") <= 10),
        ("the same while plans run, p99, ms", found.of("planning p99"), "<= 25", found.of("planning p99") <= 25),
        (f"requests a second, {CONNECTIONS} connections, times the peer's", times, ">= 5", times >= 5),
    ]
    rows = [[what, asked, f"{value:.2f}", "yes" if good else "no"] for what, value, asked, good in bars]
    return table(["median of the rounds", "asked", "found", "reached"], rows)


def _open(found: Found) -> str:
    kinds = {
        "health": "`/healthz`",
        "align": "align",
        "throughput": 'align, order "throughput"',
        "planning": "align while plans run",
        "saving": "align while snapshots are written",
    }
    rows = [
        [label, found.total(f"{kind} requests"), found.total(f"{kind} failed"),
         *(found.spread(f"{kind} {figure}") for figure in ("p50", "p99", "max"))]
        for kind, label in kinds.items()
    ]  # fmt: skip
    return table(["what", "requests", "failed", "p50, ms", "p99, ms", "longest, ms"], rows)


def _closed(found: Found) -> str:
    kinds = {
        "one": "align, 1 connection",
        "remote": "`RemoteIndex.align`, 1 thread",
        "full": f"align, {CONNECTIONS} connections",
        "health full": f"`/healthz`, {CONNECTIONS} connections",
        "peer one": "peer, 1 connection",
        "peer full": f"peer, {CONNECTIONS} connections",
        "peer stateless": f"peer, stateless, {CONNECTIONS} connections",
    }
    rows = []
    for kind, label in kinds.items():
        sizes = [found.of(f"{kind} {side} bytes") for side in ("request", "answer")]
        cpu = found.spread(f"{kind} cpu") if f"{kind} cpu" in found.values else ""
        rows.append(
            [label, found.spread(f"{kind} rps", 0), found.total(f"{kind} failed"), found.spread(f"{kind} p50"),
             found.spread(f"{kind} p99"), cpu, " / ".join(f"{size:.0f}" for size in sizes) if sizes[0] else ""]
        )  # fmt: skip
    headings = ["what", "requests a second", "failed", "p50, ms", "p99, ms", "server's CPU, ms a request"]
    return table([*headings, "bytes asked / answered"], rows)


def _about_peer(found: Found, stopped: str) -> str:
    return (
        "The peer's `/reorder` on its live index, with the same ids, logging errors only. It begins with "
        f"{PEER_KNOWN:,} contexts, not {KNOWN:,}, and knows one more with each request: a batch of 1,000, which takes "
        f"it time by the square of their number, and batches of 100, {found.spread('peer load', 1)} s in all "
        f"({found.total('peer hung')} more servers hung at that, and were started anew). Given one by one after these, "
        f"{stopped}. Its cost grows with what it knows, so fewer contexts are in its favour. *stateless* remembers "
        "nothing: the floor of its HTTP."
    )


def _planning(found: Found, server: OurServer, plan: bytes, job: Job) -> Outcome:
    """A load, and plans for as long as it goes on."""
    load = Load(job)
    time.sleep(PLAN_BEGINS)
    while load.under_way():
        seconds = server.plan(plan, load.under_way)
        if seconds is not None:
            found.values["plan seconds"].append(seconds)
    return load.outcome()


def _with_cpu(found: Found, name: str, pid: int, job: Job) -> None:
    load = Load(job)
    before = cpu_seconds(pid)
    outcome = load.outcome()
    found.add(name, outcome)
    found.values[f"{name} cpu"].append(1e3 * (cpu_seconds(pid) - before) / max(1, len(outcome.took)))


def _ids(traffic: Traffic, start: int, end: int) -> list[list[str]]:
    return [[str(block.key) for block in context] for context in traffic.known[start:end]]


def _quantile(ordered: Sequence[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


if __name__ == "__main__":
    main()
