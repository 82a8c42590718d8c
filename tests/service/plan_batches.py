"""Batches for the tests of plans, and what is to be seen of their processes."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from contextpilot_rag import BlockRef, OrderBudget, Request
from contextpilot_rag.service.plans import Plans
from contextpilot_rag.service.tenant import Tenant
from tests.until import is_so

SECONDS = 60.0  # what has not happened by then never will
_NAMES = "abcdefghijklmnop"
CONTEXTS = ["".join(names) for names in itertools.permutations(_NAMES[:5], 3)] + [
    _NAMES[start : start + 6] for start in range(10)
]


def tokens(name: str) -> int:
    return 10 + ord(name)


def batch(**more: Any) -> dict[str, Any]:
    """Some requests that share much."""
    requests = [
        {"blocks": [{"id": name, "tokens": tokens(name)} for name in names], "key": f"{place}: {names}"}
        for place, names in enumerate(CONTEXTS)
    ]
    return {"requests": requests, **more}


def as_requests() -> list[Request]:
    """The same, as they are planned in process."""
    return [
        Request(tuple(BlockRef(name, tokens(name)) for name in names), budget=OrderBudget(), key=f"{place}: {names}")
        for place, names in enumerate(CONTEXTS)
    ]


def endless() -> dict[str, Any]:
    """A batch that is worked on for as long as it may be."""
    requests = [
        {"blocks": [{"id": name, "tokens": 100} for name in names], "budget": {"order": "throughput"}}
        for names in itertools.permutations(_NAMES[:5], 3)
    ]
    return {"requests": requests, "time_budget": 600}


def body(given: dict[str, Any]) -> bytes:
    return msgspec.json.encode(given)


def lives(pid: int) -> bool:
    """Whether a process still runs; one that has ended and is not yet buried does not."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text(encoding="ascii")
    except (FileNotFoundError, ProcessLookupError):
        return False
    return status.rpartition(")")[2].split()[0] not in {"Z", "X"}


def children(pid: int) -> list[int]:
    """The processes that a process has started, and that still run."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(fields[1]) == pid and fields[0] not in {"Z", "X"}:
            found.append(int(stat.parent.name))
    return found


def soon(true: Callable[[], bool]) -> None:
    """Wait until something is so."""
    late = time.monotonic() + SECONDS
    while not true():
        assert time.monotonic() < late, "it never was"
        time.sleep(0.02)


async def status(plans: Plans, tenant: Tenant, name: str, *wanted: str) -> None:
    """Wait until a job is in one of some states."""
    await is_so(lambda: plans.job(tenant, name).status in wanted)


async def ended(plans: Plans, tenant: Tenant, name: str) -> str:
    """Wait until a job has ended; how."""
    await status(plans, tenant, name, "done", "failed", "cancelled")
    return plans.job(tenant, name).status
