"""Streams that wait, and bodies that are large: what the proxy holds, and that it never forwards a half."""

from __future__ import annotations

import hashlib
import random
import select
import socket
import time
from statistics import median

from proxy_load import Job
from proxy_runs import Process, load, proxy, upstream
from proxy_traffic import http
from report import table

STREAMS = 1_000
LARGE = 20 * 10**6
_ENDED = b"data: [DONE]"


def streams(seconds: float, count: int = STREAMS) -> str:
    """Streams that say nothing for a while, and requests beside them.

    Args:
        seconds: that they say nothing.
        count: of streams.
    """
    request = http(b'{"model": "hold", "stream": true, "messages": [{"role": "user", "content": "Wait."}]}')
    with upstream("fixed") as behind, proxy(behind.url) as server:
        alone = load(Job(server.port, "documents", 5.0, 20, seed=1))
        empty = server.megabytes
        lines = [_connection(server) for _ in range(count)]
        for line in lines:
            line.sendall(request)
        begun = sum(b"It is" in _read(line, b"It is", 60.0) for line in lines)
        full = server.megabytes
        since = time.perf_counter()
        beside = load(Job(server.port, "documents", 5.0, 20, seed=2))
        time.sleep(max(0.0, seconds - (time.perf_counter() - since)))
        waiting = len(select.select(lines, [], [], 0)[0])  # whoever has anything to say now was cut off
        behind.ask("/release")
        whole = sum(_ENDED in _read(line, b"0\r\n\r\n", 30.0) for line in lines)
        for line in lines:
            line.close()
    rows = [
        ["streams that began", f"{begun:,} of {count:,}"],
        [f"cut off within {seconds:.0f} s of silence", f"{waiting:,}"],
        ["whole at the end", f"{whole:,}"],
        ["memory of the proxy without them, with them, MB", f"{empty:.0f}, {full:.0f}"],
        ["of which each, kB", f"{(full - empty) * 1024 / count:.0f}"],
        ["20 requests a second beside them, p50, ms (without them)",
         f"{median(beside.took):.2f} ({median(alone.took):.2f})"],
        ["of these failed", beside.failed],
    ]  # fmt: skip
    return f"### {count:,} streams that say nothing\n\n" + table(["", "found"], rows)


def large() -> str:
    """A body of 20 MB: whole, refused, or given up by its client."""
    body = b'{"model": "fixed", "messages": [{"role": "user", "content": "' + _noise(LARGE) + b'"}]}'
    digest = hashlib.sha256(body).hexdigest()
    rows = []
    with upstream("fixed") as behind:
        with proxy(behind.url, "--tenant-by", "nobody") as server:  # else a tenant's salt is added to it
            before, since = server.megabytes, time.perf_counter()
            status, _ = server.ask("/v1/chat/completions", body)
            took = time.perf_counter() - since
            seen = behind.json("/seen")
            same = "the same bytes" if seen["digest"] == digest and seen["whole"] == 1 else "OTHER BYTES"
            rows.append(["forwarded", f"{status}, the upstream has {same}"])
            rows.append(["seconds; memory grew by, MB", f"{took:.2f}; {server.megabytes - before:.0f}"])
            _half(server, body)
            seen = _settled(behind)
            half = f"{seen['begun'] - 1} begun, {seen['whole'] - 1} whole"
            rows.append(["given up by its client after a half: at the upstream", half])
        with proxy(behind.url, "--max-body", "1000000") as server:
            status, content = server.ask("/v1/chat/completions", body)
            more = behind.json("/seen")["begun"] - seen["begun"]
            said = "an OpenAI error" if b'"error"' in content else "NO ERROR"
            rows.append(["with `--max-body 1000000`", f"{status}, {said}; {more} begun at the upstream"])
    return f"### A body of {len(body) / 1e6:.0f} MB\n\n" + table(["", "found"], rows)


def _half(server: Process, body: bytes) -> None:
    whole = http(body)
    with _connection(server) as line:
        line.sendall(whole[: len(whole) // 2])
        time.sleep(0.2)


def _settled(behind: Process) -> dict[str, int]:
    """What the upstream has seen, once that has not changed for a while."""
    last, seen = {}, behind.json("/seen")
    while seen != last:
        time.sleep(0.5)
        last, seen = seen, behind.json("/seen")
    found: dict[str, int] = seen
    return found


def _noise(size: int) -> bytes:
    letters = b"abcdefghijklmnopqrstuvwxyz      "
    return random.Random(0).randbytes(size).translate(bytes(letters[number % 32] for number in range(256)))


def _connection(server: Process) -> socket.socket:
    line = socket.create_connection(("127.0.0.1", server.port), timeout=60)
    line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return line


def _read(line: socket.socket, until: bytes, seconds: float) -> bytes:
    """What comes, until it has what is awaited, or ends, or nothing comes any more."""
    found = b""
    line.settimeout(seconds)
    try:
        while until not in found and (data := line.recv(1 << 16)):
            found += data
    except OSError:
        pass
    return found
