"""Part "size": what records and snapshots take on the log's server, and on the way to it and from it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

from replicas_jobs import Begin, Prepare, Settled, Worked
from replicas_setting import REPLICAS, begin_work, log_server, nodes, settle, told, work
from replicas_start import NEVER, POOL, written_snapshot
from report import table

from tests.replicas.log_server import LogServer

RATES = (
    (1_000, 1, False),
    (1_000, 1, True),
    (1_000, 50, False),
    (30, 1, False),
)  # records a second, namespaces, reports
SNAPSHOTS = (10_000, 50_000)


@dataclass(frozen=True)
class Sizes:
    """What was measured.

    Args:
        rate: records a second, of all replicas.
        spaces: namespaces.
        reports: each second record is a report of usage.
        records: told in all.
        entries: that they stand in.
        data: bytes of all entries.
        memory: bytes that the logs' keys take on the server, as it says.
        grown: bytes that the whole server has grown by.
        sent: bytes a second to the server, all replicas together.
        received: bytes a second from it, likewise.
    """

    rate: int
    spaces: int
    reports: bool
    records: int
    entries: int
    data: int
    memory: int
    grown: int
    sent: float
    received: float


def size(seconds: float = 15.0, snapshots: tuple[int, ...] = SNAPSHOTS) -> str:
    """All of it, as it stands in the README."""
    found = [_sizes(rate, spaces, reports, seconds) for rate, spaces, reports in RATES]
    return "\n\n".join([*_shown(found, seconds), *_snapshots(snapshots)])


def _sizes(rate: int, spaces: int, reports: bool, seconds: float) -> Sizes:
    requests = rate / REPLICAS / (2 if reports else 1)
    with log_server() as server, nodes([Begin(server.url, {POOL: None}, pace=NEVER)] * REPLICAS) as opened:
        jobs = [
            Prepare(POOL, round(requests * seconds), requests, seed=200 + number, spaces=spaces, reports=reports)
            for number in range(REPLICAS)
        ]
        start = told(server)
        begin = begin_work(opened, jobs)
        for node in opened:
            node.hear(Worked)
        statuses = settle(opened)
        took, end = time.perf_counter() - begin, told(server)
        records = _records(statuses, sum(job.requests for job in jobs) * (2 if reports else 1))
        keys = list(server.client().scan_iter("*:log"))
        entries = [fields for key in keys for _, fields in server.client().xrange(key)]
        return Sizes(
            rate,
            spaces,
            reports,
            records,
            len(entries),
            sum(len(value) for fields in entries for name_value in fields.items() for value in name_value),
            sum(server.client().memory_usage(key, samples=0) or 0 for key in keys),
            end["used_memory"] - start["used_memory"],
            (end["total_net_input_bytes"] - start["total_net_input_bytes"]) / took,
            (end["total_net_output_bytes"] - start["total_net_output_bytes"]) / took,
        )


def _records(statuses: list[Settled], asked: int) -> int:
    """How many were told.

    Raises:
        RuntimeError: some got lost.
    """
    if any(status.applied != asked or not status.settled for status in statuses):
        raise RuntimeError(f"a replica has lost something of {asked:,}: {statuses}")
    return asked


def _snapshots(sizes: tuple[int, ...]) -> Iterator[str]:
    rows, known = [], 0
    with log_server() as server, nodes([Begin(server.url, {POOL: None}, pace=NEVER)]) as (writer,):
        for contexts in sizes:
            work([writer], [Prepare(POOL, contexts - known, seed=contexts)])
            known = contexts
            written = written_snapshot(server, [writer])
            rows.append([f"{contexts:,}", f"{written / 1e6:.2f}", f"{written / contexts:.0f}", _memory(server)])
    yield "Snapshots: of one namespace, of contexts of 15 blocks that share much with each other."
    yield table(["contexts", "bytes, millions", "a context", "memory on the server, MB"], rows)


def _memory(server: LogServer) -> str:
    client = server.client()
    return f"{sum(client.memory_usage(key, samples=0) or 0 for key in client.scan_iter('*:snap')) / 2**20:.2f}"


def _shown(found: list[Sizes], seconds: float) -> Iterator[str]:
    yield (
        f"Records: requests of 15 blocks whose keys are short texts, or with a report of the usage of each, by "
        f"{REPLICAS} replicas for {seconds:.0f} s. What comes within a few milliseconds stands in one entry. *bytes*: "
        "of the entries' fields. *memory*: of the logs' keys, as the server says; *all*: what the whole server has "
        "grown by, the bell and connections' buffers included. *sent*, *received*: by one replica, which gets the "
        "records of all; counted by the server."
    )
    rows = [
        [
            f"{one.rate:,}",
            str(one.spaces),
            "requests and reports" if one.reports else "requests",
            f"{one.records:,}",
            f"{one.records / one.entries:.1f}",
            f"{one.data / one.records:.0f}",
            f"{one.memory / one.records / 1.024:.0f}",
            f"{one.grown / one.records / 1.024:.0f}",
            f"{one.sent / REPLICAS / 1e3:.0f}",
            f"{one.received / REPLICAS / 1e3:.0f}",
        ]
        for one in found
    ]
    headings = ["records a second", "namespaces", "which", "records", "in an entry", "bytes a record"]
    headings += ["memory, KiB for 1,000", "all, KiB for 1,000", "sent, kB a second", "received, kB a second"]
    yield table(headings, rows)
