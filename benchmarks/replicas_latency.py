"""Part "latency": what an answer takes while other replicas' records arrive, in process and from the service."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from statistics import median

from replicas_jobs import Begin, Prepare
from replicas_service import Served
from replicas_setting import REPLICAS, Node, disturbed, log_server, nodes, quantile, settle, spread, work
from report import table

KNOWN = 50_000
ARRIVING = 1_000  # records a second from the others together
RATE = 200
_KINDS = {  # what aligns, and which index of the others does, if any
    "a `LocalIndex`": ("local", ""),
    "a `LocalIndex`, the machine as busy": ("local", "elsewhere"),
    "a replica, the others silent": ("pilot", ""),
    f"a replica, {ARRIVING:,} records a second arriving": ("pilot", "pilot"),
}


class Latency:
    """Measures, and shows.

    Args:
        rounds: of everything.
        seconds: of each load.
        known: contexts before.
    """

    def __init__(self, rounds: int, seconds: float, known: int = KNOWN) -> None:
        self._rounds, self._seconds, self._known = rounds, seconds, known
        self._took: dict[str, list[list[float]]] = defaultdict(list)

    def measure(self) -> str:
        """All of it, as it stands in the README."""
        return "\n\n".join([*Served(self._rounds, self._seconds).measure(), *self._in_process()])

    def _in_process(self) -> Iterator[str]:
        started = time.perf_counter()
        with log_server() as server:
            begins = [Begin(server.url, {"pilot": None, "local": None})]
            begins += [Begin(server.url, {"pilot": None, "elsewhere": None}) for _ in range(REPLICAS - 1)]
            with nodes(begins) as opened:
                work(opened[1:2], [Prepare("pilot", self._known, seed=7)])
                work(opened[:1], [Prepare("local", self._known, seed=7)])
                settle(opened, 120.0)
                for number in range(self._rounds):
                    kinds = list(_KINDS)
                    for place in range(len(kinds)):
                        self._load(opened, kinds[(number + place) % len(kinds)], 100 * number + 10 * place)
                    took = time.perf_counter() - started
                    print(f"in process, round {number + 1} of {self._rounds}: {took:.0f} s", flush=True)
                statuses = settle(opened)
        return self._shown(disturbed(statuses))

    def _load(self, opened: list[Node], kind: str, seed: int) -> None:
        pool, others = _KINDS[kind]
        jobs = [Prepare(pool, round(RATE * self._seconds), RATE, seed=seed)]
        if others:
            each = ARRIVING / (len(opened) - 1)
            more = range(1, len(opened))
            jobs += [Prepare(others, round(each * self._seconds), each, seed=seed + number) for number in more]
        worked = work(opened[: len(jobs)], jobs)
        settle(opened)
        self._took[kind].append(worked[0].took)

    def _shown(self, troubled: int) -> Iterator[str]:
        yield (
            f"**In process**: `align`, {RATE} requests a second, in a process that knows {self._known:,} contexts, as "
            f"a `LocalIndex` and as one of {REPLICAS} replicas; the process has both all the time. *as busy*: the two "
            "other replicas tell each other as many records, of an index that this process has no part in. Time of "
            f"`align` alone. Rounds: {self._rounds}; each figure is their median (smallest-largest). Replicas "
            f"that were without the log for a moment, or lost a record: {troubled}."
        )
        base = median([quantile(took, 0.99) for took in self._took[next(iter(_KINDS))]])
        rows = []
        for kind in _KINDS:
            rounds = self._took[kind]
            found = [[quantile(took, share) for took in rounds] for share in (0.5, 0.99)]
            longest = [max(took) for took in rounds]
            calls = f"{sum(map(len, rounds)):,}"
            rows.append([kind, calls, *(spread(one, 0) for one in (*found, longest)), f"{median(found[1]) / base:.2f}"])
        yield table(["what", "calls", "p50, us", "p99, us", "longest, us", "p99, times the first"], rows)
