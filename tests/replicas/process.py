"""A replica as a process under steady load, for tests: it is asked by lines of JSON on its standard input.

`process.py URL SEED`. It answers each question with a line of JSON, and ends with its input.
"""

from __future__ import annotations

import hashlib
import json
import logging
import random
import sys
import threading
import time
from typing import Any

from contextpilot_rag.replicas.process import ProcessReplica
from contextpilot_rag.replicas.redis_log import open_log
from contextpilot_rag.replicas.replicated import ReplicatedIndex
from contextpilot_rag.replicas.space import Names, Space
from contextpilot_rag.types import BlockRef, Namespace, Request, Usage

SECRET = "tests' own"
NAMESPACES = tuple(Namespace("t", "m", f"corpus{number}") for number in range(3))
REST_SECONDS = 0.01  # between two requests
BLOCKS = 40  # of a namespace; those of others have other keys


def block(namespace: int, number: int) -> BlockRef:
    return BlockRef(f"{namespace}/{number}", 50 + number)


class Load:
    """Requests, one after the other, and what was wrong about their answers."""

    def __init__(self, index: ReplicatedIndex, seed: int) -> None:
        self._index = index
        self._random = random.Random(seed)
        self._going = threading.Event()
        self._idle = threading.Event()
        self._idle.set()
        self.answered = 0
        self.wrong: list[str] = []
        self.slowest = 0.0
        threading.Thread(target=self._run, daemon=True).start()

    def go(self) -> None:
        self._idle.clear()
        self._going.set()

    def pause(self) -> None:
        self._going.clear()
        self._idle.wait(30)

    def _run(self) -> None:
        while True:
            if not self._going.is_set():
                self._idle.set()
                self._going.wait()
            try:
                self._one()
            except Exception as error:  # noqa: BLE001  # whatever it was, it is told
                self.wrong.append(repr(error))
            time.sleep(REST_SECONDS)

    def _one(self) -> None:
        which = self._random.randrange(len(NAMESPACES))
        numbers = self._random.sample(range(BLOCKS), 8)
        request = Request(tuple(block(which, number) for number in numbers), NAMESPACES[which])
        started = time.monotonic()
        alignment = self._index.align(request)
        self.slowest = max(self.slowest, time.monotonic() - started)
        self.answered += 1
        if sorted(alignment.order) != list(range(8)) or alignment.request != request:
            self.wrong.append(f"no permutation: {alignment.order}")
        other = (which + 1) % len(NAMESPACES)
        strange = tuple(block(other, number) for number in numbers)
        if self._index.predict(Request(strange, NAMESPACES[which])):
            self.wrong.append("what was sent in another namespace is known here")
        if self._random.random() < 0.3:
            cached = self._random.choice([0, alignment.predicted_cached_tokens + 20])
            self._index.observe(alignment, Usage(request.tokens + 60, cached, 20))


def answer(question: dict[str, Any], replica: ProcessReplica, index: ReplicatedIndex, load: Load) -> Any:
    what = question["do"]
    if what == "load":
        if question["on"]:
            load.go()
        else:
            load.pause()
        return True
    if what == "forget":
        index.forget(NAMESPACES[question["namespace"]])
        return True
    if what == "predict":
        return [
            index.predict(Request(tuple(block(which, number) for number in numbers), NAMESPACES[which]))
            for which, numbers in question["requests"]
        ]
    pools = replica._pools
    digest = hashlib.blake2b(digest_size=8)
    for namespace in NAMESPACES:
        for part in pools.dump(Space("pilot", namespace)):
            digest.update(part)
    status = replica.status
    return {
        "answered": load.answered,
        "wrong": load.wrong[:3],
        "slowest": load.slowest,
        "digest": digest.hexdigest(),
        "joined": status.joined,
        "why": status.why,
        "pending": status.pending,
        "outages": status.outages,
        "reloads": dict(status.reloads),
        "founded": status.founded,
        "rejected": dict(status.rejected),
    }


def main() -> None:
    logging.disable(logging.CRITICAL)
    url, seed = sys.argv[1], int(sys.argv[2])
    replica = ProcessReplica(lambda: open_log(url), Names(SECRET))
    index = ReplicatedIndex(replica, "pilot", 4_000)
    replica.ready(5)
    load = Load(index, seed)
    print(json.dumps("ready"), flush=True)  # noqa: T201
    for line in sys.stdin:
        question = json.loads(line)
        print(json.dumps(answer(question, replica, index, load)), flush=True)  # noqa: T201
        if question["do"] == "stop":
            break
    replica.close()


if __name__ == "__main__":
    main()
