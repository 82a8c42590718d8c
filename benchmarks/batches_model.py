"""What a hundred machines would do, reckoned from what one did; written into docs/batches.md. See batches.py."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from report import table

from contextpilot_rag.batches.pipeline import GROUP
from contextpilot_rag.batches.reading import LOT
from contextpilot_rag.batches.scattering import WIDE

GUIDE = Path(__file__).resolve().parents[1] / "docs" / "batches.md"
MACHINES, CORES = 100, 16
BUSY = 0.7  # share of the time that cores work; the rest is waiting for the last task of a step, and for data
TASK = 1e-3  # seconds of the driver for each task
OBJECT = 30e-6  # seconds of the driver for each slice
LINK = 1e9  # bytes a second into each machine
TEXTS = 10_000  # bytes of a row that carries its texts


def model(found: dict[str, Any], size: int) -> str:
    """The table, and all that it assumes.

    Args:
        found: what the largest batch took.
        size: its contexts.
    """
    work = found["worker_seconds"] / size
    rows = []
    for contexts in (10**6, 10**7, 10**8, 10**9):
        lots, groups = -(-contexts // LOT), -(-contexts // GROUP)
        levels = found["levels"] + (1 if contexts > size else 0)
        tasks = lots * (3 + 2 * levels) + groups + lots // 16 * levels
        driver = tasks * TASK + lots * min(groups, WIDE) * OBJECT
        workers = contexts * work / min(MACHINES * CORES, groups) / BUSY
        shuffle = contexts * (found["bytes"] + TEXTS) / MACHINES / LINK
        rows.append(
            [f"{contexts:,}", _time(contexts * work), _time(workers), _time(driver), _time(shuffle),
             _time(workers + driver + shuffle)]
        )  # fmt: skip
    headings = ["contexts", "work, on one core", f"on {MACHINES} machines", "+ the driver", "+ the shuffle", "together"]
    return (
        f"{table(headings, rows)}\n\n"
        f"From {size:,} contexts on one machine: {1e3 * work:.2f} ms of a core for each context, {found['bytes']:.0f} "
        f"bytes of it in the shuffle. None of this was measured on a cluster. Assumed are:\n\n"
        f"- {MACHINES} machines of {CORES} cores as fast as ours, which work {BUSY:.0%} of the time, on a batch whose "
        "contexts share as these do. Planning takes the same time for each context, however many there are, since "
        "groups do not grow; each tenfold batch is split once more at most.\n"
        f"- The driver is the serial part: {1e3 * TASK:.0f} ms for each task (reading, two for each level, bringing "
        f"together, planning) and {1e6 * OBJECT:.0f} microseconds for each slice. A data set is read by the workers; "
        f"an iterator costs the driver {1e6 * found['handing_seconds'] / size:.0f} microseconds more for each context, "
        "which is the limit from some ten million on.\n"
        f"- Rows carry {TEXTS // 1000} kB of texts, each machine receives {LINK / 1e9:.0f} GB a second, and every row "
        f"moves once. Nothing is spilled: {10**8:,} such rows are {10**8 * TEXTS / MACHINES / 1e9:.0f} GB on each "
        "machine.\n"
        f"- A lot is cut into {WIDE} slices at most, groups beyond are reached in a second step. For {10**9:,} "
        f"contexts that is {-(-(10**9) // LOT) * WIDE:,} objects, more than a driver should own: make it ten batches.\n"
        f"- Below {MACHINES * CORES * GROUP:,} contexts there are fewer groups than cores, and some cores do nothing; "
        "`group` can be smaller, at the cost of quality."
    )  # fmt: skip


def write_model(text: str) -> None:
    """Put it between its marks in the guide."""
    begin, end = "<!-- model: begin -->", "<!-- model: end -->"
    guide = GUIDE.read_text(encoding="utf-8")
    found = re.sub(f"{begin}.*?{end}", lambda _: f"{begin}\n{text}\n{end}", guide, flags=re.DOTALL)
    GUIDE.write_text(found, encoding="utf-8")


def _time(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.0f} s" if seconds >= 1 else "< 1 s"
    return f"{seconds / 60:.0f} min" if seconds < 6_000 else f"{seconds / 3600:.1f} h"
