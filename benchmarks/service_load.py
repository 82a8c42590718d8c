"""Sends a server requests and says how long each took; a process of its own, so that no server waits for it.

    echo '{"port": 8765, "kind": "align", "seconds": 5, "rate": 200}' | python benchmarks/service_load.py

Prints one line when it begins and one, the result, at its end.
"""

from __future__ import annotations

import gc
import random
import re
import select
import socket
import sys
import time
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from statistics import fmean

import msgspec

sys.path.insert(0, str(Path(__file__).resolve().parent))

from service_traffic import SIZE, Blocks, Traffic, http, ours, theirs

from contextpilot_rag.errors import IndexFailed
from contextpilot_rag.remote.index import RemoteIndex
from contextpilot_rag.types import Request

_SILENCE = 10.0  # seconds without any answer: it never comes
_MOST = 6_000  # requests a second for which bodies are made in advance
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)\r\n", re.IGNORECASE)


class Job(msgspec.Struct):
    """What to send.

    Args:
        port: of the server, on 127.0.0.1.
        kind: "health", "align", "throughput" (align with that order budget), "remote" (align, by `RemoteIndex`) or
            "peer".
        seconds: how long.
        rate: requests a second, at times that do not depend on the answers; 0: as fast as the answers come.
        connections: at most.
        seed: of contexts and times.
        key: API key.
        requests: at most so many; 0: no such limit.
    """

    port: int
    kind: str
    seconds: float
    rate: float = 0
    connections: int = 1
    seed: int = 0
    key: str = ""
    requests: int = 0


class Outcome(msgspec.Struct):
    """What came of it. Times are in milliseconds, in the order of the answers.

    Args:
        took: from when a request was due to its whole answer: waiting for a connection counts.
        answered: from when it was sent.
        failed: answers that were no success, or not an order of the blocks asked for; and requests without one.
        seconds: to the last answer.
        request_bytes: of a body, on average.
        answer_bytes: of a body, on average.
    """

    took: list[float]
    answered: list[float]
    failed: int
    seconds: float
    request_bytes: float = 0
    answer_bytes: float = 0


def main() -> None:
    """Do what standard input says."""
    job = msgspec.json.decode(sys.stdin.buffer.read(), type=Job)
    work = remote(job) if job.kind == "remote" else raw(job)
    gc.collect()
    gc.freeze()
    gc.disable()
    print("begins", flush=True)
    outcome = work()
    sys.stdout.write(msgspec.json.encode(outcome).decode() + "\n")


def raw(job: Job) -> Callable[[], Outcome]:
    """Requests made in advance, sent over plain sockets."""
    times = schedule(job)
    contexts, requests = prepared(job, len(times))

    def work() -> Outcome:
        sent, answers, seconds = exchange(job, times, requests)
        took, answered, sizes = [], [], []
        for number, due, began, ended, answer in answers:
            head, _, body = answer.partition(b"\r\n\r\n")
            if head.startswith(b"HTTP/1.1 200") and valid(job.kind, body, contexts[number % len(contexts)]):
                took.append(1e3 * (ended - due))
                answered.append(1e3 * (ended - began))
                sizes.append(len(body))
        asked = [len(request.partition(b"\r\n\r\n")[2]) for request in requests]
        return Outcome(took, answered, sent - len(took), seconds, fmean(asked), fmean(sizes or [0]))

    return work


def remote(job: Job) -> Callable[[], Outcome]:
    """`RemoteIndex.align`, from one thread, one call after another."""
    blocks = list(islice(Traffic().new(job.seed), int(_MOST * job.seconds)))
    index = RemoteIndex(f"http://127.0.0.1:{job.port}", api_key=job.key)

    def work() -> Outcome:
        took: list[float] = []
        sent, began = 0, time.perf_counter()
        while (started := time.perf_counter()) - began < job.seconds:
            request = Request(tuple(blocks[sent % len(blocks)]))
            sent += 1
            try:
                index.align(request)
            except IndexFailed:
                continue
            took.append(1e3 * (time.perf_counter() - started))
        return Outcome(took, took, sent - len(took), time.perf_counter() - began)

    return work


def schedule(job: Job) -> list[float]:
    """When each request is due, in seconds from the start. Without a rate: all at once, as many as there could be."""
    if not job.rate:
        return [0.0] * (job.requests or int(_MOST * job.seconds))
    numbers = random.Random(job.seed)
    times = [numbers.expovariate(job.rate)]
    while times[-1] < job.seconds:
        times.append(times[-1] + numbers.expovariate(job.rate))
    return times[:-1]


def prepared(job: Job, count: int) -> tuple[list[Blocks], list[bytes]]:
    """The contexts, and the requests as they go over the wire."""
    if job.kind == "health":
        return [[]], [http("GET", "/healthz")]
    contexts = list(islice(Traffic().new(job.seed), count))
    if job.kind == "peer":
        return contexts, [http("POST", "/reorder", theirs(context)) for context in contexts]
    order = "throughput" if job.kind == "throughput" else "balanced"
    return contexts, [http("POST", "/v1/align", ours(context, order), job.key) for context in contexts]


Answer = tuple[int, float, float, float, bytes]  # number of the request; when it was due, sent and answered; all of it


def exchange(job: Job, times: Sequence[float], requests: Sequence[bytes]) -> tuple[int, list[Answer], float]:
    """Send the requests, each when it is due and a connection is free.

    Returns:
        How many were sent, what was answered, and the seconds to the last answer.
    """
    idle = [_connection(job.port) for _ in range(job.connections)]
    busy: dict[socket.socket, tuple[int, float, float, bytearray]] = {}
    answers: list[Answer] = []
    clock = time.perf_counter
    begin = last = clock() + 0.01
    number = 0
    while True:
        now = clock()
        more = number < len(times) and (job.rate > 0 or now < begin + job.seconds)
        while more and idle and begin + times[number] <= now:
            line = idle.pop()
            line.sendall(requests[number % len(requests)])
            busy[line] = (number, begin + times[number] if job.rate else now, now, bytearray())
            number += 1
            more = number < len(times)
            now = clock()
        if not more and not busy:
            break
        if busy and now > max(last, begin) + _SILENCE:
            break
        wait = max(0.0, begin + times[number] - now) if more and idle else 0.5
        # select: its timeout is exact; those of epoll and of event loops are whole milliseconds.
        for line in select.select(list(busy), [], [], wait)[0]:
            data = line.recv(1 << 20)
            asked, due, sent, answer = busy[line]
            answer += data
            if data and not _complete(answer):
                continue
            del busy[line]
            last = clock()
            answers.append((asked, due, sent, last, bytes(answer)))
            if data:
                idle.append(line)
            else:
                line.close()
                idle.append(_connection(job.port))
    for line in (*idle, *busy):
        line.close()
    return number, answers, last - begin


def valid(kind: str, body: bytes, context: Blocks) -> bool:
    """Whether an answer is an order of the blocks asked for."""
    if kind == "health":
        return True
    answer = msgspec.json.decode(body)
    if kind == "peer":
        return sorted(answer["reordered_contexts"][0]) == sorted(str(block.key) for block in context)
    return sorted(answer["order"]) == list(range(SIZE))


def _complete(answer: bytearray) -> bool:
    """Whether all of an answer is there: as long as it says."""
    end = answer.find(b"\r\n\r\n")
    if end < 0:
        return False
    length = _LENGTH.search(answer, 0, end + 2)
    if length is None:
        raise ValueError(f"an answer without a length: {bytes(answer[:end])!r}")
    return len(answer) >= end + 4 + int(length[1])


def _connection(port: int) -> socket.socket:
    line = socket.create_connection(("127.0.0.1", port), timeout=30)
    line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return line


if __name__ == "__main__":
    main()
