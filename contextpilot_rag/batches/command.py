"""``contextpilot-rag plan --ray``: a trace of any length, planned on Ray, one schedule for each engine."""

from __future__ import annotations

import argparse
import json
import logging
import os
import re
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain, islice
from pathlib import Path
from typing import Any

from ..errors import InputError, MissingPackage, SettingsError
from ..index.watch import Report
from ..trace import read_tokens
from .on_ray import plan_on_ray
from .recorded import trace_rows
from .sharded import ShardedPlan

_HEARD_SECONDS = 5.0
"""For a cluster to take a connection; Ray itself would try for minutes, whatever the address."""


def run_on_ray(options: argparse.Namespace, given: dict[str, Any], report: Report | None) -> str:
    """Plan as the command's options say; returns what is printed.

    Args:
        options: of ``plan``.
        given: settings of requests.
        report: is told about progress.

    Raises:
        InputError: a file or an option that cannot be used; the message says which.
        MissingPackage: Ray is not installed.
    """
    for name in ("budget", "capacity", "ceiling"):
        if getattr(options, name) is not None and getattr(options, name) is not False:
            raise SettingsError(f"--{name} does not go with --ray")
    shards = 1 if options.shards is None else options.shards
    if shards < 1:
        raise SettingsError(f"--shards must be at least 1, not {shards}")
    lengths = None if options.tokens is None else read_tokens(options.tokens)
    rows = trace_rows(options.trace)
    first = list(islice(rows, 1))  # what cannot be read is said before Ray starts, which takes a while
    folder: Path | None = options.out
    if folder is not None:
        _make(folder, shards)
    started = time.monotonic()
    with _connected(options.ray):
        plan = plan_on_ray(chain(first, rows), shards, tokens=lengths, progress=report, order=options.order, **given)
        seconds = time.monotonic() - started
        if folder is not None:
            for shard in plan.shards:
                shard.write(folder / f"shard-{shard.number}.jsonl")
    if options.json:
        return _as_json(plan, options.order, seconds)
    lines = [plan.explain()]
    if options.tokens is None:
        lines.append("all blocks weigh the same (no --tokens)")
    written = "" if folder is None else f"; written to {folder}"
    return "\n".join([*lines, f"planned in {seconds:.1f} s{written}"])


def _make(folder: Path, shards: int) -> None:
    """A folder for so many schedules, in which none of an earlier plan would stay to be sent with them."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"with --ray, --out is a folder; cannot make {folder}: {error.strerror}") from error
    for path in sorted(folder.glob("shard-*.jsonl")):
        number = re.fullmatch(r"shard-(\d+)\.jsonl", path.name)
        if number is not None and int(number[1]) >= shards:
            raise InputError(f"--out: {folder} has {path.name}, of a plan for more shards: empty it, or name another")


def _heard(address: str) -> None:
    """Look whether anything listens at ``HOST:PORT``; other forms of an address are Ray's to judge."""
    host, _, port = address.rpartition(":")
    if not re.fullmatch(r"[\w.-]+", host) or not re.fullmatch(r"\d{1,5}", port):
        return
    try:
        socket.create_connection((host, int(port)), timeout=_HEARD_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise InputError(f"--ray {address}: no Ray cluster is reached there: {error}") from error


@contextmanager
def _connected(address: str) -> Iterator[None]:
    """Ray at this address, for as long as it is needed, if this process is not connected already."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # read when Ray is imported
    try:
        import ray
    except ModuleNotFoundError as error:
        raise MissingPackage.of(error, "--ray needs", "contextpilot-rag[ray]") from error
    if ray.is_initialized():
        yield
        return
    _heard(address)
    local: dict[str, Any] = {"include_dashboard": False} if address == "local" else {}
    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, **local)
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise InputError(f"--ray {address}: {error}") from error
    try:
        yield
    finally:
        ray.shutdown()


def _as_json(plan: ShardedPlan, order: str, seconds: float) -> str:
    shards = [
        {"requests": len(shard), "tokens": shard.tokens, "hit_ratio": round(shard.hit_ratio, 4)}
        for shard in plan.shards
    ]
    values = {
        "requests": len(plan),
        "tokens": plan.tokens,
        "order": order,
        "hit_ratio": round(plan.hit_ratio, 4),
        "hit_ratio_as_retrieved": round(plan.totals.retrieved / max(1, plan.tokens), 4),
        "changed": plan.totals.changed,
        "groups": plan.groups,
        "imbalance": round(plan.imbalance, 4),
        "shards": shards,
        "seconds": round(seconds, 3),
    }
    return json.dumps(values, indent=1)
