"""How long the service takes from its start to ready with a snapshot of 50,000 contexts.

    python benchmarks/service_start.py [--contexts 50000] [--starts 7]

Writes its table into benchmarks/README.md.

The snapshot is written by the service's own code; a start is a new process, from its creation until /readyz says 200.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import random
import resource
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from report import provenance, table, write_section

from contextpilot_rag.remote import wire
from contextpilot_rag.service.auth import OpenGate
from contextpilot_rag.service.core import Service
from contextpilot_rag.service.settings import ServiceSettings
from contextpilot_rag.service.snapshot import Changes, Snapshots

CONTEXTS = 50_000
BLOCKS = 15
CORPUS = 100_000  # different blocks
POLL_SECONDS = 0.002
PATIENCE_SECONDS = 60.0


@dataclass(frozen=True)
class Started:
    """What was measured.

    Args:
        shape: how the contexts are related.
        contexts: how many were aligned before the snapshot.
        tree_blocks: entries of the index, as far as they are not shared.
        megabytes: of the snapshot.
        saving_seconds: what writing it took.
        seconds: of each start, until it was ready.
        processor_seconds: of each, what it computed meanwhile: a machine that does other things, too, matters less.
        empty_seconds: of each start without a snapshot, in turn with the others.
    """

    shape: str
    contexts: int
    tree_blocks: int
    megabytes: float
    saving_seconds: float
    seconds: tuple[float, ...]
    processor_seconds: tuple[float, ...]
    empty_seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        """Of the starts."""
        return statistics.median(self.seconds)


def measure(shape: str = "unrelated", contexts: int = CONTEXTS, starts: int = 7) -> Started:
    """Write a snapshot, and start with it and without one, in turn.

    Args:
        shape: "unrelated": contexts share nothing but single blocks, so that the tree is as large as it can be;
            "topics": as a retriever finds them, most blocks of one topic.
        contexts: how many.
        starts: of each kind.
    """
    with tempfile.TemporaryDirectory() as name:
        full, empty = Path(name) / "full", Path(name) / "empty"
        service, seconds = asyncio.run(_write(full, shape, contexts))
        with_it, computed, without = [], [], []
        for _ in range(starts):
            before = _children_seconds()
            with_it.append(start_seconds(full))
            computed.append(_children_seconds() - before)
            without.append(start_seconds(empty))
        size = (full / "snapshot").stat().st_size / 1e6
        blocks = service.tenant("").stats().tree_blocks
        return Started(shape, contexts, blocks, size, seconds, tuple(with_it), tuple(computed), tuple(without))


async def _write(folder: Path, shape: str, contexts: int) -> tuple[Service, float]:
    changes = Changes()
    service = Service(ServiceSettings(), watchers=[changes])
    tenant, numbers = service.tenant(""), random.Random(0)
    for number in range(contexts):
        ids = _unrelated(numbers) if shape == "unrelated" else _topic(numbers)
        blocks = [wire.BlockIn(hash=f"{block:064x}", tokens=200 + block % 100) for block in ids]
        turn = wire.TurnIn(f"conversation-{number}") if number % 10 == 0 else None
        tenant.align(wire.AlignIn(blocks, wire.NamespaceIn(model="m", corpus="c"), conversation=turn))
    snapshots = Snapshots(service, OpenGate(), changes, folder, 3_600.0)
    await snapshots.start()
    began = time.perf_counter()
    if not await snapshots.save():
        raise RuntimeError("the snapshot could not be written")
    seconds = time.perf_counter() - began
    await snapshots.stop()
    return service, seconds


def _unrelated(numbers: random.Random) -> list[int]:
    return numbers.sample(range(CORPUS), BLOCKS)


def _topic(numbers: random.Random) -> list[int]:
    topic = min(int(numbers.paretovariate(0.5)), 4_999)
    found = [topic * 16 + numbers.randrange(16) for _ in range(12)] + numbers.sample(range(CORPUS), 8)
    return list(dict.fromkeys(found))[:BLOCKS]


def start_seconds(state: Path) -> float:
    """From the creation of a process to its first answer that it is ready."""
    port = _free_port()
    command = [sys.executable, "-m", "contextpilot_rag", "serve", "--port", str(port), "--state", str(state)]
    began = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            while not _ready(port):
                if process.poll() is not None or time.perf_counter() - began > PATIENCE_SECONDS:
                    raise RuntimeError("the service did not start")
                time.sleep(POLL_SECONDS)
            return time.perf_counter() - began
        finally:
            process.kill()


def _children_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _ready(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_SECONDS)
    with suppress(OSError, http.client.HTTPException):
        connection.request("GET", "/readyz")
        ready = connection.getresponse().status == 200
        connection.close()
        return ready
    connection.close()
    return False


def main() -> None:
    """Measure and show."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--contexts", type=int, default=CONTEXTS)
    parser.add_argument("--starts", type=int, default=7)
    options = parser.parse_args()
    rows = []
    for shape in ("topics", "unrelated"):
        found = measure(shape, options.contexts, options.starts)
        rows.append(
            [
                shape,
                f"{found.contexts:,}",
                f"{found.megabytes:.1f}",
                f"{found.saving_seconds:.2f}",
                f"{found.median:.2f} ({min(found.seconds):.2f}-{max(found.seconds):.2f})",
                f"{statistics.median(found.processor_seconds):.2f}",
                f"{statistics.median(found.empty_seconds):.2f}",
            ]
        )
        print(rows[-1], flush=True)
    headings = [
        "contexts",
        "number",
        "snapshot, MB",
        "writing it, s",
        "start to ready, s",
        "of CPU, s",
        "without it, s",
    ]
    write_section(
        "service start",
        f"## The service's start\n\nFrom {provenance(('uvicorn', 'uvloop'))}\n\n"
        "From a new process to 200 from `/readyz`, with a snapshot of contexts of 15 blocks: such as share topics, and "
        "such as share nothing. Asked: 2 s. Median "
        f"(smallest-largest) of {options.starts} starts.\n\n{table(headings, rows)}",
    )


if __name__ == "__main__":
    main()
