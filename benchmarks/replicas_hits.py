"""Part "hits": what three replicas with requests spread at random save, beside one index that sees all of them."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import logging
import random
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from pathlib import Path
from statistics import median
from types import ModuleType

import msgspec
from replicas_jobs import Align, Aligned, Begin, Prepare
from replicas_node import Member
from replicas_setting import REPLICAS, Node, disturbed, log_server, nodes, settle, spread, work
from report import table
from service_traffic import TRACES

from contextpilot_rag.replay import replay
from contextpilot_rag.trace import TraceRequest, read_tokens, read_trace
from contextpilot_rag.types import OrderBudget, Request
from tests.ports import free_port

REFEREE = TRACES.parent / "eval" / "hit_ratio.py"
NAMES = (
    "multihoprag_stubs/trace_bm25_top15.jsonl",
    "multihoprag_stubs/trace_minilm_top15.jsonl",
    "tatqa/trace_bm25_top15.jsonl.gz",
    "tatqa/trace_minilm_top15.jsonl.gz",
)
ORDERS = ("balanced", "throughput")
PAUSES = {0.0: 1, 0.002: 1, 0.005: 2, 0.020: 8}  # seconds between two requests: how many such streams go on at once
ASKED = 0.95
_PROMPTS = 4
_CACHES = {False: "unlimited", True: f"{_PROMPTS} prompts"}

Schedule = Sequence[tuple[TraceRequest, Sequence[int]]]


@dataclass(frozen=True)
class Case:
    """What one stream of requests is.

    Args:
        order: budget.
        limited: the cache holds four of the longest prompts, or a tenth of all blocks if that is more.
        seed: of which request goes where.
    """

    order: str
    limited: bool
    seed: int = 0

    @property
    def pool(self) -> str:
        """A name of its own."""
        return f"{self.order}-{'limited' if self.limited else 'unlimited'}-{self.seed}"

    def spread(self, count: int) -> list[int]:
        """The replica that each request goes to."""
        numbers = random.Random(self.seed)
        return [numbers.randrange(REPLICAS) for _ in range(count)]


class Recorded:
    """A recorded trace, and the referee's word on what was sent of it.

    Args:
        name: of its file.
        folder: for files that are made here.
        most: requests of it; None: all.
    """

    def __init__(self, name: str, folder: Path, most: int | None = None) -> None:
        path = TRACES / name
        tokens = read_tokens(path.parent / "block_tokens.json")
        self.name = name.replace("/trace_", " ").removesuffix(".gz").removesuffix(".jsonl")
        self.requests = read_trace(path, tokens)[:most]
        self._tokens = path.parent / "block_tokens.json"
        self._trace, self._schedule = folder / "trace.jsonl", folder / "schedule.jsonl"
        self._written(self._trace, [(request, range(len(request.blocks))) for request in self.requests])
        self.contexts = folder / "contexts.json"
        listed = [[(block.key, block.tokens) for block in request.blocks] for request in self.requests]
        self.contexts.write_bytes(msgspec.json.encode(listed))

    @cached_property
    def capacity(self) -> int:
        """The limited cache's."""
        distinct = sum({block.key: block.tokens for request in self.requests for block in request.blocks}.values())
        return int(max(distinct / 10, _PROMPTS * max(request.tokens for request in self.requests)))

    def capacity_of(self, case: Case) -> int | None:
        """The cache's, for a case."""
        return self.capacity if case.limited else None

    def judged(self, schedule: Schedule, case: Case) -> float:
        """The hit ratio, as the referee has it.

        Raises:
            RuntimeError: the schedule is none of this trace.
        """
        self._written(self._schedule, schedule)
        arguments = [str(self._trace), str(self._tokens), str(self._schedule)]
        if case.limited:
            arguments += ["--capacity", str(self.capacity)]
        with contextlib.redirect_stdout(io.StringIO()) as said:
            refused = referee().main(arguments)
        if refused:
            raise RuntimeError(f"the referee: {refused}")
        ratio: float = msgspec.json.decode(said.getvalue())["hit_ratio"]
        return ratio

    def _written(self, path: Path, schedule: Schedule) -> None:
        lines = [
            msgspec.json.encode({"qid": request.qid, "context_ids": [request.blocks[rank].key for rank in order]})
            for request, order in schedule
        ]
        path.write_bytes(b"\n".join(lines))


class Hits:
    """Measures, and shows.

    Args:
        seeds: how many ways of spreading.
        most: requests of each trace; None: all.
        pauses: between two requests, in seconds.
    """

    def __init__(self, seeds: int, most: int | None = None, pauses: Sequence[float] = tuple(PAUSES)) -> None:
        self._seeds, self._most, self._pauses = seeds, most, pauses
        self._one: dict[tuple[str, Case], float] = {}
        self._ratios: dict[tuple[str, Case, str], list[float]] = defaultdict(list)
        self._speeds: dict[str, list[float]] = defaultdict(list)
        self._disturbed = 0

    def measure(self) -> str:
        """All of it, as it stands in the README."""
        if not TRACES.exists():
            sys.exit(f"the recorded traces are not at {TRACES}")
        started = time.perf_counter()
        for name in NAMES:
            with tempfile.TemporaryDirectory() as folder:
                trace = Recorded(name, Path(folder), self._most)
                self._of_trace(trace)
                print(f"{trace.name}: {time.perf_counter() - started:.0f} s", flush=True)
        return "\n\n".join(self._shown())

    def _of_trace(self, trace: Recorded) -> None:
        cases = [Case(*one) for one in product(ORDERS, (False, True), range(self._seeds))]
        for case in cases:
            if not case.seed:
                result = replay(trace.requests, case.order, trace.capacity_of(case))
                self._one[trace.name, case] = trace.judged(result.schedule, case)
        self._alone(trace, cases)
        for pause in self._pauses:
            self._paced(trace, cases, pause)
        self._full_speed(trace, cases)

    def _alone(self, trace: Recorded, cases: Sequence[Case]) -> None:
        """Three replicas whose log is away all the time."""
        url = f"redis://127.0.0.1:{free_port()}/0"
        logging.getLogger("contextpilot_rag").setLevel(logging.ERROR)  # each would say that it is alone
        for case in cases:
            members = [Member(Begin(url, {case.pool: trace.capacity_of(case)})) for _ in range(REPLICAS)]
            budget = OrderBudget(case.order)
            schedule = [
                (request, members[at].align(case.pool, Request(request.blocks, budget=budget)).order)
                for request, at in zip(trace.requests, case.spread(len(trace.requests)), strict=True)
            ]
            for member in members:
                member.close()
            self._found(trace, case, "alone", schedule)

    def _paced(self, trace: Recorded, cases: Sequence[Case], pause: float) -> None:
        """Each request is sent when the one before was decided, and a pause is over."""
        label = _label(pause)
        with _opened(trace, cases) as opened:
            locks = [threading.Lock() for _ in opened]

            def stream(case: Case) -> tuple[Case, Schedule, float]:
                started, schedule = time.perf_counter(), []
                for request, at in zip(trace.requests, case.spread(len(trace.requests)), strict=True):
                    keys, tokens = (
                        [str(block.key) for block in request.blocks],
                        [block.tokens for block in request.blocks],
                    )
                    with locks[at]:
                        answer = opened[at].ask(Align(case.pool, case.order, keys, tokens), Aligned)
                    schedule.append((request, answer.order))
                    if pause:
                        time.sleep(pause)
                return case, schedule, len(schedule) / (time.perf_counter() - started)

            with ThreadPoolExecutor(PAUSES[pause]) as threads:
                for case, schedule, speed in threads.map(stream, cases):
                    self._found(trace, case, label, schedule)
                    self._speeds[label].append(speed)
            self._disturbed += disturbed(settle(opened))

    def _full_speed(self, trace: Recorded, cases: Sequence[Case]) -> None:
        """Three replicas that align one request after the other, all at once."""
        with _opened(trace, cases) as opened:
            for case in cases:
                where = case.spread(len(trace.requests))
                numbers = [[number for number, at in enumerate(where) if at == node] for node in range(REPLICAS)]
                jobs = [
                    Prepare(
                        case.pool, len(mine), order=case.order, contexts=str(trace.contexts), numbers=mine, orders=True
                    )
                    for mine in numbers
                ]
                decided = sorted(
                    (at, number, order)
                    for worked, mine in zip(work(opened, jobs), numbers, strict=True)
                    for at, number, order in zip(worked.decided, mine, worked.orders, strict=True)
                )
                schedule = [(trace.requests[number], order) for _, number, order in decided]
                self._found(trace, case, "at once", schedule)
                self._speeds["at once"].append(len(decided) / (decided[-1][0] - decided[0][0]))
            self._disturbed += disturbed(settle(opened))

    def _found(self, trace: Recorded, case: Case, how: str, schedule: Schedule) -> None:
        shared = Case(case.order, case.limited)
        self._ratios[trace.name, shared, how].append(trace.judged(schedule, case) / self._one[trace.name, shared])

    def _shown(self) -> Iterator[str]:
        with_log = [*map(_label, self._pauses), "at once"]
        yield (
            f"Each request goes to one of {REPLICAS} replicas, processes with a log server between them, at random; "
            "all send to one engine, whose cache is simulated by the referee, without a limit, or with one of four of "
            "the longest prompts. Hit ratios as shares of that of one index that sees all requests. "
            f"{self._seeds} ways of spreading; median (smallest-largest). *alone*: the log is away all the time. *N "
            "ms*: a request is sent when the one before it was decided and so many milliseconds are over, so that its "
            "replica may not know of the last ones yet; where the pause is long, several independent streams go on "
            "beside each other. *at once*: each replica aligns its requests one after the other, as fast as it can. "
            f"Replicas that were without the log for a moment, or lost a record: {self._disturbed}."
        )
        rows = []
        for how, limited in product(with_log, (False, True)):
            medians = [
                median(found)
                for (_, case, kind), found in self._ratios.items()
                if (kind, case.limited) == (how, limited)
            ]
            reached = "yes" if min(medians) >= ASKED else "no"
            shares = [f"{share:.1%}" for share in (ASKED, median(medians), min(medians))]
            rows.append([how, _CACHES[limited], f"{median(self._speeds[how]):,.0f}", *shares, reached])
        headings = [
            "pause",
            "cache",
            "requests a second",
            "asked",
            "of one index, median",
            "smallest",
            "reached by all",
        ]
        yield table(headings, rows)
        rows = [
            [trace, case.order, _CACHES[case.limited], f"{one:.4f}",
             *(spread(self._ratios[trace, case, how]) for how in ("alone", *with_log))]
            for (trace, case), one in self._one.items()
        ]  # fmt: skip
        yield table(["trace", "order", "cache", "one index", "alone", *with_log], rows)


@contextlib.contextmanager
def _opened(trace: Recorded, cases: Sequence[Case]) -> Iterator[list[Node]]:
    """Replicas with an index for each case, whose logs are empty."""
    with log_server() as server:
        begin = Begin(server.url, {case.pool: trace.capacity_of(case) for case in cases})
        with nodes([begin] * REPLICAS) as opened:
            yield opened


def _label(pause: float) -> str:
    return f"{1e3 * pause:.0f} ms"


def referee() -> ModuleType:
    """The independent judge of orders, as a module."""
    known = sys.modules.get("hit_ratio_referee")
    if known is None:
        spec = importlib.util.spec_from_file_location("hit_ratio_referee", REFEREE)
        if spec is None or spec.loader is None:
            raise RuntimeError(f"{REFEREE} is no module")
        known = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(known)
        sys.modules["hit_ratio_referee"] = known
    return known
