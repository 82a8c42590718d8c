"""Part "outage": what requests see while the log's server is stopped, killed and started again."""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
from replicas_hits import referee
from replicas_jobs import Begin, Prepare, Settled, Worked
from replicas_setting import REPLICAS, begin_work, equal, log_server, nodes, quantile, settle
from report import table
from service_traffic import Blocks, Traffic

from contextpilot_rag.index.local import LocalIndex
from contextpilot_rag.types import Request
from tests.replicas.log_server import LogServer

RATE = 300  # requests a second, of all replicas
POOL = "pilot"


@dataclass(frozen=True)
class Decided:
    """A request that was aligned.

    Args:
        at: when, in seconds from the first moment.
        node: where.
        number: of the context.
        order: chosen.
        took: microseconds.
        joined: whether that replica had the log.
    """

    at: float
    node: int
    number: int
    order: list[int]
    took: float
    joined: bool


@dataclass(frozen=True)
class Phase:
    """A time in which the server is in one state.

    Args:
        name: what it is.
        start: seconds from the first moment.
        end: likewise.
        away: the log is.
    """

    name: str
    start: float
    end: float
    away: bool = False


class Outage:
    """Measures, and shows.

    Args:
        calm: seconds before, between and after.
        stopped: seconds of SIGSTOP.
        dead: seconds between SIGKILL and a new start, of an empty server.
    """

    def __init__(self, calm: float = 6.0, stopped: float = 5.0, dead: float = 3.0) -> None:
        self._calm, self._stopped, self._dead = calm, stopped, dead

    def measure(self) -> str:
        """All of it, as it stands in the README."""
        traffic = Traffic()
        count = min(len(traffic.known), round(RATE * (3 * self._calm + self._stopped + self._dead)))
        where = [random.Random(number).randrange(REPLICAS) for number in range(count)]
        with tempfile.TemporaryDirectory() as folder, log_server() as server:
            path = Path(folder) / "contexts.json"
            listed = [[(block.key, block.tokens) for block in context] for context in traffic.known[:count]]
            path.write_bytes(msgspec.json.encode(listed))
            jobs = []
            for node in range(REPLICAS):
                mine = [number for number, at in enumerate(where) if at == node]
                jobs.append(
                    Prepare(POOL, len(mine), RATE / REPLICAS, contexts=str(path), numbers=mine, seed=node, orders=True)
                )
            with nodes([Begin(server.url, {POOL: None})] * REPLICAS) as opened:
                begin = begin_work(opened, jobs)
                phases = self._played(server, begin)
                worked = [node.hear(Worked) for node in opened]
                statuses, same = settle(opened), equal(opened, POOL)
        decided = sorted(_decided(jobs, worked, begin), key=lambda one: one.at)
        return "\n\n".join(self._shown(traffic.known, decided, phases, statuses, same))

    def _played(self, server: LogServer, begin: float) -> list[Phase]:
        """What happens, and when it did."""
        at = [0.0]

        def until(seconds: float) -> None:
            time.sleep(max(0.0, begin + at[-1] + seconds - time.perf_counter()))
            at.append(time.perf_counter() - begin)

        until(self._calm)
        server.pause()
        until(self._stopped)
        server.resume()
        until(self._calm)
        server.kill()
        until(self._dead)
        server.start()
        until(0.0)
        names = ("before", f"SIGSTOP for {self._stopped:.0f} s", "after SIGCONT", "kill -9", "starting")
        phases = [Phase(name, at[n], at[n + 1], n in {1, 3, 4}) for n, name in enumerate(names)]
        return [*phases, Phase("started again, empty", at[-1], float("inf"))]

    def _shown(
        self,
        contexts: Sequence[Blocks],
        decided: Sequence[Decided],
        phases: Sequence[Phase],
        statuses: Sequence[Settled],
        same: bool,
    ) -> Iterator[str]:
        hits = list(zip(_hits(contexts, decided), _hits_of_one(contexts, decided), strict=True))
        yield (
            f"{REPLICAS} replicas get {RATE} requests a second together, contexts of recorded traces spread at random, "
            "in front of one engine without a limit. Meanwhile the log's server is stopped (it keeps its connections, "
            "and answers nothing), goes on, is killed, and starts again empty. *one index*: the hit ratio, in the same "
            "time, of the same requests through one index that sees all. *joined again*: seconds until the last of the "
            "replicas had the log again, as it says."
        )
        rows = []
        for phase in phases:
            some = [number for number, one in enumerate(decided) if phase.start <= one.at < phase.end]
            if not some:
                continue
            took = [decided[number].took for number in some]
            sent = sum(block.tokens for number in some for block in contexts[decided[number].number])
            ours, theirs = (sum(hits[number][side] for number in some) / sent for side in (0, 1))
            again = "" if phase.away or phase is phases[0] else f"{_joined(decided, phase):.2f}"
            rows.append(
                [phase.name, f"{len(some):,}", f"{quantile(took, 0.5):.0f}", f"{quantile(took, 0.99):.0f}",
                 f"{max(took):.0f}", f"{sum(decided[number].joined for number in some) / len(some):.0%}", again,
                 f"{ours:.3f}", f"{theirs:.3f}", f"{ours / theirs:.1%}"]
            )  # fmt: skip
        headings = ["the log's server", "requests", "align p50, us", "p99, us", "longest, us", "joined"]
        headings += ["joined again, s", "hit ratio", "one index", "of it"]
        yield table(headings, rows)
        counts = {name: sum(getattr(one, name) for one in statuses) for name in ("outages", "dropped", "rejected")}
        said = ", ".join(f"{name} {count:,}" for name, count in counts.items())
        yield (
            f"In the end {'all replicas are equal' if same else 'the replicas are NOT equal'} (digests of all that "
            f"they know); of all together: {said}, namespaces founded anew {sum(one.founded for one in statuses):,}."
        )


def _decided(jobs: Sequence[Prepare], worked: Sequence[Worked], begin: float) -> Iterator[Decided]:
    for node, (job, one) in enumerate(zip(jobs, worked, strict=True)):
        for number, at, order, took, joined in zip(
            job.numbers, one.decided, one.orders, one.took, one.joined, strict=True
        ):
            yield Decided(at - begin, node, number, order, took, joined)


def _hits(contexts: Sequence[Blocks], decided: Sequence[Decided]) -> Iterator[int]:
    """Tokens of each request that the engine has, in the orders that the replicas chose."""
    cache = _engine(contexts)
    for one in decided:
        context = contexts[one.number]
        yield cache([str(context[rank].key) for rank in one.order])


def _hits_of_one(contexts: Sequence[Blocks], decided: Sequence[Decided]) -> Iterator[int]:
    """The same in the orders of one index that sees all."""
    cache, index = _engine(contexts), LocalIndex()
    for one in decided:
        context = contexts[one.number]
        order = index.align(Request(tuple(context))).order
        yield cache([str(context[rank].key) for rank in order])


def _engine(contexts: Sequence[Blocks]):  # noqa: ANN202
    tokens = {str(block.key): block.tokens for context in contexts for block in context}
    return referee().PrefixCache(tokens).serve


def _joined(decided: Sequence[Decided], phase: Phase) -> float:
    """Seconds from a phase's start until the last replica had the log for good."""
    alone = [one.at for one in decided if phase.start <= one.at < phase.end and not one.joined]
    return max(alone) - phase.start if alone else 0.0
