"""Part "start": how long a replica that joins late takes until it knows what the others know."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from replicas_jobs import Begin, Prepare, Settle, Settled
from replicas_setting import Node, equal, log_server, nodes, settle, spread, work
from report import table

from contextpilot_rag.replicas.stream import rank
from tests.replicas.log_server import LogServer

CONTEXTS = 50_000
TAIL = 10_000
TAIL_RATE = 1_000
POOL = "pilot"
NEVER = {"compact_entries": 10**9, "compact_seconds": 1e9}
"""The pace of one that writes no snapshots."""
_SOON = {"compact_seconds": 0.5}
_PATIENCE = 120.0


@dataclass(frozen=True)
class Joined:
    """What was measured.

    Args:
        contexts: in the snapshot.
        snapshot: its bytes.
        records: after it.
        entries: that they stand in.
        process: seconds of each start, from the process's creation.
        replica: seconds of each, from the replica's.
        equal: each knew the very same as one that has been there all the time.
    """

    contexts: int
    snapshot: int
    records: int
    entries: int
    process: Sequence[float]
    replica: Sequence[float]
    equal: bool


def start(contexts: int = CONTEXTS, tail: int = TAIL, starts: int = 5) -> str:
    """All of it, as it stands in the README."""
    found = [_of_nothing(starts)]
    with log_server() as server, nodes([Begin(server.url, {POOL: None}, pace=NEVER)]) as (writer,):
        work([writer], [Prepare(POOL, contexts, seed=1)])
        snapshot = written_snapshot(server, [writer])
        found.append(_starts(server, writer, contexts, snapshot, starts))
        work([writer], [Prepare(POOL, tail, TAIL_RATE, seed=2)])
        settle([writer])
        found.append(_starts(server, writer, contexts, snapshot, starts))
    return "\n\n".join(_shown(found, starts))


def written_snapshot(server: LogServer, writers: Sequence[Node]) -> int:
    """Have a snapshot of all that is in the log written, if need be by a replica that joins for that; its bytes.

    It is written while others tell something, so a few more requests are aligned meanwhile.

    Raises:
        RuntimeError: none is written.
    """
    settle(writers, _PATIENCE)
    client = server.client()
    (log,) = client.scan_iter("*:log")
    last = client.xrevrange(log, count=1)[0][0]
    snapshot = log.removesuffix(b":log") + b":snap"
    ends = time.perf_counter() + _PATIENCE
    with nodes([Begin(server.url, {POOL: None}, pace=_SOON)]):
        while time.perf_counter() < ends:
            standing = client.hget(snapshot, "p")
            if standing is not None and rank(standing.decode()) >= rank(last.decode()):
                settle(writers)
                return client.hstrlen(snapshot, "d")
            work(writers[:1], [Prepare(POOL, 1, seed=0)])
            time.sleep(0.5)
    raise RuntimeError("no snapshot is written")


def _starts(server: LogServer, writer: Node, contexts: int, snapshot: int, starts: int) -> Joined:
    process, replica, same, records = [], [], True, 0
    for _ in range(starts):
        with nodes([Begin(server.url, {POOL: None})]) as (joiner,):
            if not joiner.began.ready:
                raise RuntimeError("a replica that joins does not get ready")
            process.append(joiner.seconds)
            replica.append(joiner.began.seconds)
            same = same and equal([writer, joiner], POOL)
            records = joiner.ask(Settle(), Settled).applied
    return Joined(contexts, snapshot, records, _entries_after_snapshot(server), process, replica, same)


def _entries_after_snapshot(server: LogServer) -> int:
    client = server.client()
    return sum(
        len(client.xrange(key.removesuffix(b":snap") + b":log", b"(" + client.hget(key, "p")))
        for key in client.scan_iter("*:snap")
    )


def _of_nothing(starts: int) -> Joined:
    """With an empty log: what a process costs by itself."""
    process, replica = [], []
    with log_server() as server:
        for _ in range(starts):
            with nodes([Begin(server.url, {POOL: None})]) as (joiner,):
                process.append(joiner.seconds)
                replica.append(joiner.began.seconds)
    return Joined(0, 0, 0, 0, process, replica, equal=True)


def _shown(found: Sequence[Joined], starts: int) -> Iterator[str]:
    yield (
        "A replica joins: a snapshot of contexts of 15 blocks, and the records that came after it, at "
        f"{TAIL_RATE:,} a second. *process*: from the creation of its process until all was read; *replica*: from when "
        f"the replica is made, all imported. Median (smallest-largest) of {starts} starts. *equal*: it knows the very "
        "same as one that was there all the time."
    )
    rows = [
        [
            f"{one.contexts:,}",
            f"{one.snapshot / 1e6:.2f}",
            f"{one.records:,}",
            f"{one.entries:,}",
            spread(one.process, 2),
            spread(one.replica, 2),
            "yes" if one.equal else "no",
        ]
        for one in found
    ]
    yield table(
        ["contexts", "snapshot, MB", "records after it", "in entries", "process, s", "replica, s", "equal"], rows
    )
