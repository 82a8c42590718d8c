"""The service as one of three replicas, under the load of the service's benchmark, beside a service of its own."""

from __future__ import annotations

import copy
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack

import msgspec
from replicas_setting import REPLICAS, log_server
from report import table
from service import OPEN_CONNECTIONS, RATE, Found
from service_load import Job
from service_runs import Load, OurServer, cpu_seconds, our_server
from service_traffic import Traffic, ours

from contextpilot_rag.remote.wire import PredictOut

OTHER_RATE = 100
ASKED = {"p50": 2.5, "p99": 10.0}  # ms, as of one service
_SECRET = "CONTEXTPILOT_SERVE_SALT_SECRET"  # noqa: S105
_MORE_SECONDS = 8.0  # that the others' load goes on, so that it does from the measured one's beginning to its end
_PATIENCE = 60.0
_SAMPLE = 50
_KINDS = {
    "one": "one service",
    "beside": "one service, two more on the machine that share nothing with it",
    "replica": "one of three replicas",
    "others": "the other two replicas",
}


class Served:
    """Measures, and shows.

    Args:
        rounds: of everything.
        seconds: of each load.
    """

    def __init__(self, rounds: int, seconds: float) -> None:
        self._rounds, self._seconds = rounds, seconds
        self._traffic = Traffic()
        self._nothing = copy.copy(self._traffic)
        self._nothing.known = []
        self._found = Found()
        self._disagree = 0

    def measure(self) -> Iterator[str]:
        """All of it, as it stands in the README."""
        os.environ[_SECRET] = "a secret of the benchmark"
        started = time.perf_counter()
        for number in range(self._rounds):
            sides: list[Callable[[int], None]] = [self._one, self._beside, self._replicas]
            for place in range(len(sides)):
                sides[(number + place) % len(sides)](1_000 * number)
            took = time.perf_counter() - started
            print(f"services, round {number + 1} of {self._rounds}: {took:.0f} s", flush=True)
        return self._shown()

    def _one(self, seed: int) -> None:
        with our_server(self._traffic) as server:
            self._loaded("one", server, (), seed)

    def _beside(self, seed: int) -> None:
        with ExitStack() as stack:
            servers = [stack.enter_context(our_server(self._traffic)) for _ in range(REPLICAS)]
            self._loaded("beside", servers[0], servers[1:], seed)

    def _replicas(self, seed: int) -> None:
        with log_server() as log, ExitStack() as stack:
            knows = [self._nothing] * (REPLICAS - 1) + [self._traffic]  # the last is told all, the others hear of it
            servers = [stack.enter_context(our_server(known, "--replicate", log.url)) for known in knows]
            if not self._agree(servers):
                raise RuntimeError("the replicas do not learn what one of them is told")
            self._loaded("replica", servers[0], servers[1:], seed)
            self._disagree += not self._agree(servers)

    def _loaded(self, name: str, server: OurServer, others: Sequence[OurServer], seed: int) -> None:
        """A load on a service, and half of it on each of the others meanwhile."""
        job = Job(server.port, "align", self._seconds, RATE, OPEN_CONNECTIONS, seed + 1, server.key)
        longer = self._seconds + _MORE_SECONDS
        loads = [
            Load(Job(other.port, "align", longer, OTHER_RATE, OPEN_CONNECTIONS, seed + 2 + number, other.key))
            for number, other in enumerate(others)
        ]
        load = Load(job)
        before = cpu_seconds(server.pid)
        outcome = load.outcome()
        self._found.values[f"{name} cpu"].append(1e3 * (cpu_seconds(server.pid) - before) / max(1, len(outcome.took)))
        over = not all(other.under_way() for other in loads)
        self._found.add(name, outcome)
        for other in loads:
            more = other.outcome()
            if name == "replica":
                self._found.add("others", more)
        if over:
            raise RuntimeError("the load of the others was over too early")

    def _agree(self, servers: Sequence[OurServer]) -> bool:
        """Whether all predict the same of the known contexts that were told last, or do so after a while."""
        bodies = [msgspec.json.encode(ours(context)) for context in self._traffic.known[-_SAMPLE:]]
        began = time.perf_counter()
        while time.perf_counter() - began < _PATIENCE:
            found = [[_predicted(server, body) for body in bodies] for server in servers]
            if any(found[0]) and all(one == found[0] for one in found):
                return True
            time.sleep(0.1)
        return False

    def _shown(self) -> Iterator[str]:
        found = self._found
        yield (
            f"**The service**, with the load of its own benchmark ({RATE} requests a second on a service that knows "
            f"{len(self._traffic.known):,} contexts; time from when a request was due): by itself; beside two more "
            f"services that share nothing with it, each with {OTHER_RATE} requests a second; and as one of {REPLICAS} "
            f"replicas (`serve --replicate`), the others of which get as much as those. Loads, services and log "
            f"server share the machine. Rounds: {self._rounds}; each figure is their median (smallest-largest). After "
            f"the load, all replicas predict the same in {self._rounds - self._disagree} of them."
        )
        rows: list[list[str]] = []
        for figure, most in ASKED.items():
            value = found.of(f"replica {figure}")
            what = f"align at one of three replicas, {figure}, ms"
            rows.append([what, f"<= {most:g}", f"{value:.2f}", "yes" if value <= most else "no"])
        for other in ("one", "beside"):
            ratio = found.of("replica p99") / found.of(f"{other} p99")
            rows.append([f"its p99, times that of {_KINDS[other]}", "", f"{ratio:.2f}", ""])
        yield table(["median of the rounds", "asked", "found", "reached"], rows)
        rows = [
            [
                label,
                found.total(f"{kind} requests"),
                found.total(f"{kind} failed"),
                *(found.spread(f"{kind} {figure}") for figure in ("p50", "p99", "max")),
                found.spread(f"{kind} cpu") if f"{kind} cpu" in found.values else "",
            ]
            for kind, label in _KINDS.items()
        ]
        headings = ["what", "requests", "failed", "p50, ms", "p99, ms", "longest, ms", "its CPU, ms a request"]
        yield table(headings, rows)


def _predicted(server: OurServer, body: bytes) -> int:
    return msgspec.json.decode(server.ask("POST", "/v1/predict", body), type=PredictOut).predicted_cached_tokens
