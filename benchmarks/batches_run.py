"""One batch on a Ray of its own; prints what it took as JSON. See batches.py."""

from __future__ import annotations

import argparse
import hashlib
import json
import logging
import os
import pickle
import re
import signal
import sys
import threading
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
import ray
from batches_trace import made

from contextpilot_rag.batches import plan_on_ray
from contextpilot_rag.batches.reading import LOT, Reading, read_lot

_EVERY = 0.25  # seconds between two looks at memory


def main() -> None:
    """Plan, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("requests", type=int)
    parser.add_argument("blocks", type=int)
    parser.add_argument("--object-store", type=int, default=2**31, help="bytes")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--kill", type=int, default=0, help="so many workers while they plan")
    options = parser.parse_args()
    ray.init(
        address="local", num_cpus=options.workers, object_store_memory=options.object_store, include_dashboard=False,
        log_to_driver=False, logging_level=logging.ERROR, _node_ip_address="127.0.0.1",
    )  # fmt: skip
    try:
        print(json.dumps(run(options.requests, options.blocks, options.kill)))
    finally:
        ray.shutdown()


def run(requests: int, blocks: int, kill: int) -> dict[str, Any]:
    """What planning so many contexts takes."""
    watch = _Watch()
    left = [kill]
    steps: list[tuple[str, float]] = []
    started, used = time.perf_counter(), time.process_time()

    def progress(what: str, *_: int) -> None:
        steps.append((what, time.perf_counter() - started))

    killer = threading.Thread(target=_kill, args=(left,), daemon=True)
    killer.start()
    spent = [0.0]
    plan = plan_on_ray(_timed(made(requests, blocks), spent), 4, order="throughput", progress=progress)
    seconds = time.perf_counter() - started
    driver = time.process_time() - used
    worked = sum(_used(process) for process in _family() if process != os.getpid())
    if left[0]:
        sys.exit(f"{left[0]} workers were not killed: they were not seen planning")
    read = max(at for what, at in steps if what == "reading")
    digest, began = hashlib.sha256(), time.perf_counter()
    for shard in plan.shards:
        for row in shard:
            digest.update(repr((row["qid"], row["order"])).encode())
    emitted = time.perf_counter() - began
    split = max([at for what, at in steps if what == "splitting"])
    contexts, rows, count = read_lot(list(islice(made(LOT, blocks), LOT)), ("", 0), None, Reading())
    own = len(pickle.dumps(contexts, 5)) / count
    return {
        "seconds": seconds, "read": read, "split": split - read, "planned": seconds - split, "emitted": emitted,
        "gigabytes": watch.stop() / 2**30, "handing_seconds": driver - spent[0], "worker_seconds": worked,
        "hit_ratio": plan.hit_ratio, "imbalance": plan.imbalance, "groups": plan.groups, "levels": plan.levels,
        "largest": plan.largest, "uncertain": plan.uncertain, "digest": digest.hexdigest(),
        "block_bytes": own, "bytes": own + len(pickle.dumps(rows, 5)) / count,
    }  # fmt: skip


def _timed(rows: Iterator[dict[str, Any]], spent: list[float]) -> Iterator[dict[str, Any]]:
    """The same rows; counts the CPU time that it takes to make them."""
    while True:
        before = time.thread_time()
        lot = list(islice(rows, 1_000))
        spent[0] += time.thread_time() - before
        if not lot:
            return
        yield from lot


class _Watch:
    """The largest sum of the resident memory of this process and all below it."""

    def __init__(self) -> None:
        self._most = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def stop(self) -> int:
        self._over.set()
        self._thread.join()
        return self._most

    def _look(self) -> None:
        while not self._over.wait(_EVERY):
            self._most = max(self._most, sum(_resident(process) for process in _family()))


def _family() -> list[int]:
    """This process and all below it."""
    parents = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            found = _status(int(folder.name), "PPid")
            if found is not None:
                parents[int(folder.name)] = found
    family = {os.getpid()}
    while more := {process for process, parent in parents.items() if parent in family} - family:
        family |= more
    return sorted(family)


def _resident(process: int) -> int:
    return 1024 * (_status(process, "VmRSS") or 0)


def _used(process: int) -> float:
    """Seconds of CPU time that a process took so far."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:  # it ended
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _status(process: int, name: str) -> int | None:
    try:
        text = Path(f"/proc/{process}/status").read_text()
    except OSError:  # it ended
        return None
    found = re.search(rf"^{name}:\s*(\d+)", text, re.MULTILINE)
    return int(found.group(1)) if found else None


def _kill(left: list[int]) -> None:
    """Kill workers in the middle of planning, one after another: those that are seen at it twice."""
    before: set[int] = set()
    while left[0]:
        time.sleep(1)
        now = set(_planning())
        for process in sorted(now & before)[:1]:
            os.kill(process, signal.SIGKILL)
            left[0] -= 1
        before = now


def _planning() -> list[int]:
    """Workers that plan a group right now."""
    found = []
    for process in _family():
        try:
            if Path(f"/proc/{process}/cmdline").read_bytes().startswith(b"ray::_planned"):
                found.append(process)
        except OSError:
            pass
    return found


if __name__ == "__main__":
    main()
