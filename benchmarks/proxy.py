"""The proxy beside no proxy, in one run on one machine: what it adds, what it holds, what it saves.

    python benchmarks/proxy.py [--part latency|streams|large|agents|hits] [--quick]

The proxy runs as users run it, by its command; the load and, where time is measured, the upstream are processes of
their own. Writes its sections of benchmarks/README.md (not with --quick). All parts take about eight minutes where
nothing else runs. Needs, for the last two, the recorded traces (../shared/traces).
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from proxy_latency import Latency
from proxy_savings import agents, hits
from proxy_streams import large, streams
from proxy_traffic import Texts
from report import provenance, write_section

PACKAGES = ("uvicorn", "uvloop", "httptools", "httpcore", "msgspec")


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts: dict[str, tuple[Callable[[], str], Callable[[], str]]] = {
        "latency": (lambda: Latency().measure(3, 6.0), lambda: Latency().measure(1, 2.0)),
        "streams": (lambda: streams(30.0), lambda: streams(3.0, 100)),
        "large": (large, large),
        "agents": (agents, lambda: agents(5)),
        "hits": (lambda: hits(500), lambda: hits(40)),
    }
    parser.add_argument("--part", choices=tuple(parts), help="only this one (default: all)")
    parser.add_argument("--quick", action="store_true", help="less of everything; only shows its tables")
    options = parser.parse_args()
    for name, (whole, quick) in parts.items():
        if options.part not in {None, name}:
            continue
        load, started = os.getloadavg()[0], time.perf_counter()
        found = (quick if options.quick else whole)()
        seconds = time.perf_counter() - started
        text = f"From {provenance(PACKAGES)} Load average before: {load:.1f}. It took {seconds:.0f} s.\n\n"
        if name == "latency":
            text = f"## The proxy\n\nTexts {Texts().source}. {text}"
        text += found
        print(text, end="\n\n", flush=True)
        if not options.quick:
            write_section(f"proxy {name}", text)


if __name__ == "__main__":
    main()
