"""Sends requests at given times and says how long each took; a process of its own, so that nobody waits for it.

    echo '{"port": 8766, "kind": "documents", "seconds": 5, "rate": 100}' | python benchmarks/proxy_load.py

Prints one line when it begins and one, the result, at its end.
"""

from __future__ import annotations

import gc
import random
import select
import socket
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

import msgspec

sys.path.insert(0, str(Path(__file__).resolve().parent))

from proxy_traffic import Texts, bodies, http

_SILENCE = 10.0  # seconds without any answer: it never comes


class Job(msgspec.Struct):
    """What to send.

    Args:
        port: on 127.0.0.1.
        kind: "documents", "tools" or "plain".
        seconds: how long.
        rate: requests a second, at times that do not depend on the answers.
        even: at equal distances; else by chance (exponential gaps).
        stream: ask for streams.
        connections: at most.
        seed: of requests and times: equal ones send the same requests at the same times.
    """

    port: int
    kind: str
    seconds: float
    rate: float = 100
    even: bool = False
    stream: bool = False
    connections: int = 64
    seed: int = 0


class Outcome(msgspec.Struct):
    """What came of it. Times are in milliseconds, from when a request was due: waiting for a connection counts.

    Args:
        took: to the whole answer.
        first: to the first byte of the answer's body.
        failed: answers that were no success or not whole, and requests without one.
        request_bytes: of a body, on average.
    """

    took: list[float]
    first: list[float]
    failed: int
    request_bytes: float = 0


class Exchange:
    """A request under way.

    Args:
        due: when it was to be sent.
    """

    def __init__(self, due: float) -> None:
        self.due = due
        self.first = 0.0
        self._data = bytearray()
        self._end = -1
        self._length: int | None = None

    @property
    def good(self) -> bool:
        """Whether it is a success, as far as is known."""
        return self._data.startswith(b"HTTP/1.1 200")

    def take(self, data: bytes, now: float) -> bool:
        """Take what has come; whether that is all of it."""
        self._data += data
        if self._end < 0:
            self._end = self._data.find(b"\r\n\r\n")
            if self._end < 0:
                return False
            head = bytes(self._data[: self._end]).lower()
            length = head.partition(b"\r\ncontent-length:")[2].partition(b"\r\n")[0]
            self._length = int(length) if length else None
        if not self.first and len(self._data) > self._end + 4:
            self.first = now
        if self._length is None:
            return self._data.endswith(b"0\r\n\r\n")
        return len(self._data) >= self._end + 4 + self._length


def main() -> None:
    """Do what standard input says."""
    job = msgspec.json.decode(sys.stdin.buffer.read(), type=Job)
    times = schedule(job)
    made = bodies(job.kind, Texts(), job.seed, len(times), stream=job.stream)
    requests = [http(body) for body in made]
    lines = [_connection(job.port) for _ in range(job.connections)]
    gc.collect()
    gc.freeze()
    gc.disable()
    print("begins", flush=True)
    done, failed = exchange(job.port, lines, times, requests)
    outcome = Outcome(
        [1e3 * (ended - asked.due) for asked, ended in done],
        [1e3 * (asked.first - asked.due) for asked, _ in done],
        failed,
        fmean(map(len, made)) if made else 0.0,
    )
    sys.stdout.write(msgspec.json.encode(outcome).decode() + "\n")


def schedule(job: Job) -> list[float]:
    """When each request is due, in seconds from the start."""
    if job.even:
        return [number / job.rate for number in range(int(job.seconds * job.rate))]
    numbers = random.Random(job.seed)
    times = [numbers.expovariate(job.rate)]
    while times[-1] < job.seconds:
        times.append(times[-1] + numbers.expovariate(job.rate))
    return times[:-1]


def exchange(
    port: int, idle: list[socket.socket], times: Sequence[float], requests: Sequence[bytes]
) -> tuple[list[tuple[Exchange, float]], int]:
    """Send the requests, each when it is due and a connection is free.

    Returns:
        Those that were answered, with when that was; and how many were not.
    """
    busy: dict[socket.socket, Exchange] = {}
    done: list[tuple[Exchange, float]] = []
    clock = time.perf_counter
    begin = last = clock() + 0.01
    number = 0
    while number < len(times) or busy:
        now = clock()
        while idle and number < len(times) and begin + times[number] <= now:
            line = idle.pop()
            line.sendall(requests[number])
            busy[line] = Exchange(begin + times[number])
            number += 1
            now = clock()
        if busy and now > max(last, begin) + _SILENCE:
            break
        wait = max(0.0, begin + times[number] - now) if idle and number < len(times) else 0.5
        # select: its timeout is exact; those of epoll and of event loops are whole milliseconds.
        for line in select.select(list(busy), [], [], wait)[0]:
            data = line.recv(1 << 20)
            now = clock()
            asked = busy[line]
            if data and not asked.take(data, now):
                continue
            del busy[line]
            last = now
            if data and asked.good:
                done.append((asked, now))
            if data:
                idle.append(line)
            else:
                line.close()
                idle.append(_connection(port))
    for line in (*idle, *busy):
        line.close()
    return done, number - len(done)


def _connection(port: int) -> socket.socket:
    line = socket.create_connection(("127.0.0.1", port), timeout=30)
    line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return line


if __name__ == "__main__":
    main()
