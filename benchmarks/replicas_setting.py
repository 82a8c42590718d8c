"""What the parts of the benchmark of replicas stand on: a real log server, and replicas as processes."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import IO, Any, TypeVar, cast

import msgspec

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from replicas_jobs import Began, Begin, Digest, Digested, Go, Job, Prepare, Prepared, Settle, Settled, Worked

from tests.replicas.log_server import LogServer

REPLICAS = 3
CORES = 2
LEAD_SECONDS = 0.3  # from when all know of it until the first moment
_NODE = Path(__file__).with_name("replicas_node.py")
_PATIENCE = 30.0
_LIFE = 7_200.0  # seconds after which a log server is killed, whatever happens
T = TypeVar("T")


class Node:
    """A replica in a process of its own.

    Args:
        begin: what it is to be.

    Attributes:
        seconds: from the start of the process until all that the log has was read.
        began: what it said of that.
    """

    def __init__(self, begin: Begin) -> None:
        self._said = tempfile.TemporaryFile()  # noqa: SIM115  # closed with the node
        started = time.perf_counter()
        self._process = subprocess.Popen(
            [sys.executable, str(_NODE)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._said
        )
        self._to, self._from = cast("IO[bytes]", self._process.stdin), cast("IO[bytes]", self._process.stdout)
        try:
            self._send(begin)
            self.began = self.hear(Began)
        except BaseException:
            self.close()
            raise
        self.seconds = time.perf_counter() - started

    @property
    def pid(self) -> int:
        """Of its process."""
        return self._process.pid

    def tell(self, job: Job) -> None:
        """Have it do something; `hear` has to follow."""
        self._send(job)

    def hear(self, kind: type[T]) -> T:
        """The answer.

        Raises:
            RuntimeError: it has ended.
        """
        line = self._from.readline()
        if not line:
            self._process.wait(_PATIENCE)
            self._said.seek(0)
            raise RuntimeError(f"a replica ended: {self._said.read().decode(errors='replace')[-2000:]}")
        return msgspec.json.decode(line, type=kind)

    def ask(self, job: Job, kind: type[T]) -> T:
        """Have it do something, and wait."""
        self.tell(job)
        return self.hear(kind)

    def close(self) -> None:
        """End it."""
        try:
            self._to.close()
            self._process.wait(_PATIENCE)
        except (BrokenPipeError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()
        finally:
            self._from.close()
            self._said.close()

    def _send(self, message: Begin | Job) -> None:
        self._to.write(msgspec.json.encode(message) + b"\n")
        self._to.flush()


@contextmanager
def log_server() -> Iterator[LogServer]:
    """A log server of this run's own, empty."""
    with tempfile.TemporaryDirectory() as folder, LogServer(Path(folder), life=_LIFE) as server:
        yield server


@contextmanager
def nodes(begins: Sequence[Begin]) -> Iterator[list[Node]]:
    """As many replicas."""
    with ExitStack() as stack:
        opened = []
        for begin in begins:
            opened.append(Node(begin))
            stack.callback(opened[-1].close)
        yield opened


def work(nodes: Sequence[Node], jobs: Sequence[Prepare]) -> list[Worked]:
    """Let each do its job, all from the same moment on."""
    begin_work(nodes, jobs)
    return [node.hear(Worked) for node in nodes]


def begin_work(nodes: Sequence[Node], jobs: Sequence[Prepare]) -> float:
    """The same without waiting for what comes of it; the first moment."""
    for node, job in zip(nodes, jobs, strict=True):
        node.tell(job)
    for node in nodes:
        node.hear(Prepared)
    begin = time.perf_counter() + LEAD_SECONDS
    for node in nodes:
        node.tell(Go(begin))
    return begin


def settle(nodes: Sequence[Node], seconds: float = 20.0) -> list[Settled]:
    """Wait until nothing is on its way. Twice: what the first waited for may have made the others tell something."""
    for node in nodes:
        node.ask(Settle(seconds), Settled)
    return [node.ask(Settle(seconds), Settled) for node in nodes]


def disturbed(statuses: Sequence[Settled]) -> int:
    """How many replicas were without their log, or have lost anything."""
    return sum(not one.settled or one.dropped + one.rejected + one.outages > 0 for one in statuses)


def equal(nodes: Sequence[Node], pool: str) -> bool:
    """Whether all know the very same, and anything at all."""
    found = [node.ask(Digest(pool), Digested) for node in nodes]
    return len({one.digest for one in found}) == 1 and found[0].bytes > 0


def server_pid(server: LogServer) -> int:
    """Of the server's process."""
    if server.process is None:
        raise RuntimeError("the log server does not run")
    return server.process.pid


def bound() -> int:
    """Keep this process, and all that it starts, to two processors where the system allows it; how many they have."""
    if not hasattr(os, "sched_setaffinity"):
        return os.cpu_count() or 1
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CORES])
    return len(os.sched_getaffinity(0))


def server_version(server: LogServer) -> str:
    """What the log server is."""
    found = told(server)
    name = "valkey_version" if "valkey_version" in found else "redis_version"
    return f"{name.partition('_')[0].capitalize()} {found[name]}"


def told(server: LogServer) -> Mapping[str, Any]:
    """What the server says of itself."""
    return cast("Mapping[str, Any]", server.client().info())


def quantile(values: Sequence[float], share: float) -> float:
    """Of values in any order; nan of none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else float("nan")


def spread(values: Sequence[float], digits: int = 3) -> str:
    """The median, and between what all lie."""
    if not values:
        return ""
    return f"{median(values):,.{digits}f} ({min(values):,.{digits}f}-{max(values):,.{digits}f})"
