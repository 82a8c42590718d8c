"""Batches on Ray: quality in shards, how time and memory grow, and a worker that is killed.

    python benchmarks/batches.py                       # all of it, and the section of benchmarks/README.md
    python benchmarks/batches.py --part curve --keep FOLDER --sizes 10000 100000 1000000
    python benchmarks/batches.py --keep FOLDER         # goes on from what was measured into the folder

Each size is planned by a process of its own with a Ray of its own: one machine, two workers. Memory is the sum over all
of its processes, Ray's own and the object store included.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from batches_model import model, write_model
from batches_quality import quality
from report import provenance, table, write_section

SIZES = (10_000, 100_000, 1_000_000)
OBJECT_STORE = 2 * 2**30
RUN = Path(__file__).with_name("batches_run.py")


def main() -> None:
    """Measure what was not measured yet, and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=("quality", "curve", "killed"), help="only this one (default: all)")
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES), help="contexts (default: %(default)s)")
    parser.add_argument("--keep", type=Path, help="a folder for what was measured; what is there is not done again")
    options = parser.parse_args()
    sys.argv = ["FOLDER" if argument == str(options.keep) else argument for argument in sys.argv]  # what is reported
    with tempfile.TemporaryDirectory() as nowhere:
        keep: Path = options.keep or Path(nowhere)
        keep.mkdir(parents=True, exist_ok=True)
        for name, heading, measure in (
            ("quality", "## Batches on Ray", lambda: quality(keep)),
            ("curve", "### How it grows on Ray", lambda: curve(options.sizes, keep)),
            ("killed", "### A worker that is killed", lambda: killed(keep)),
        ):
            if options.part in {None, name}:
                write_section(f"batches {name}", f"{heading}\n\nFrom {provenance(('ray', 'pyarrow'))}\n\n{measure()}")


def curve(sizes: Sequence[int], keep: Path) -> str:
    """Time and memory of each size."""
    found = {size: measured(keep, f"size {size}", str(size), str(size // 5)) for size in sizes}
    rows = [
        [f"{size:,}", f"{size // 5:,}", one["groups"], f"{one['hit_ratio']:.4f}", f"{one['seconds']:.0f}",
         f"{one['read']:.1f}", f"{one['split']:.1f}", f"{one['planned']:.0f}", f"{one['emitted']:.1f}",
         f"{one['worker_seconds']:.0f}", f"{1e3 * one['seconds'] / size:.2f}", f"{one['gigabytes']:.2f}",
         f"{one['imbalance']:.1%}"]
        for size, one in found.items()
    ]  # fmt: skip
    headings = ["contexts", "blocks", "groups", "hit ratio", "seconds", "of these reading", "splitting", "planning",
                "emitting", "CPU seconds", "ms a context", "peak memory, GiB", "imbalance"]  # fmt: skip
    ends = (found[min(sizes)], found[max(sizes)])
    growth = (
        math.log(ends[1]["seconds"] / ends[0]["seconds"]) / math.log(max(sizes) / min(sizes)) if len(sizes) > 1 else 1
    )
    last = found[max(sizes)]
    write_model(model(last, max(sizes)))
    return (
        "Contexts of 15 blocks, three of four of them of the context's topic (`benchmarks/batches_trace.py`), "
        "`throughput`, four shards, two workers on one machine. *Emitting* is reading all rows of all shards in the "
        "driver, and is not in the seconds; memory is the largest sum of the resident memory of all processes, which "
        f"counts what they share several times.\n\n{table(headings, rows)}\n\nThe time grows with an exponent of "
        f"{growth:.2f}. "
        f"A context takes {last['bytes']:.0f} bytes in the shuffle (its blocks {last['block_bytes']:.0f}, its row "
        f"{last['bytes'] - last['block_bytes']:.0f}); the driver took {last['handing_seconds']:.1f} s of CPU time, "
        f"without making the batch, all other processes {last['worker_seconds']:.0f} s."
    )


def killed(keep: Path) -> str:
    """The same batch twice, once with workers killed while they plan."""
    whole, less = (measured(keep, name, "100000", "20000", *more) for name, more in
                   (("size 100000", ()), ("killed 100000", ("--kill", "3"))))  # fmt: skip
    same = "the same plan" if whole["digest"] == less["digest"] else "ANOTHER PLAN"
    return (
        f"100,000 contexts, three workers killed (SIGKILL) while each planned a group: {same}, in "
        f"{less['seconds']:.0f} s instead of {whole['seconds']:.0f} s."
    )


def measured(keep: Path, name: str, *arguments: str) -> dict[str, Any]:
    """What a run in a process of its own measured, or had measured before."""
    path = keep / f"{name.replace(' ', '-')}.json"
    if not path.exists():
        environment = {**os.environ, "RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "disabled"}
        command = [sys.executable, str(RUN), *arguments, "--object-store", str(OBJECT_STORE)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=environment)
        # Ray may say something, too, if a worker died.
        path.write_text(next(line for line in done.stdout.splitlines() if line.startswith("{")))
    found: dict[str, Any] = json.loads(path.read_text())
    return found


if __name__ == "__main__":
    main()
