"""Our server as a child process that knows 10,000 contexts, and loads that are put on servers."""

from __future__ import annotations

import contextlib
import http.client
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, cast

import msgspec
from service_load import Job, Outcome
from service_traffic import Traffic, ours

_ROOT = Path(__file__).resolve().parent.parent
_PATIENCE = 60.0  # seconds for whatever is awaited here
_BATCH = 250
_LOOK_SECONDS = 0.05  # how often it is asked whether a plan is done


class OurServer:
    """Our server, with keys and snapshots as it is deployed.

    Args:
        port: on 127.0.0.1.
        key: API key.
        pid: of its process.
    """

    def __init__(self, port: int, key: str, pid: int) -> None:
        self.port = port
        self.key = key
        self.pid = pid

    def ask(self, method: str, path: str, body: bytes | None = None) -> bytes:
        """One request.

        Raises:
            RuntimeError: it is refused.
        """
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=_PATIENCE)
        try:
            headers = {"authorization": f"Bearer {self.key}", "content-type": "application/json"}
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            content = answer.read()
        finally:
            connection.close()
        if answer.status >= 300:
            raise RuntimeError(f"{method} {path}: {answer.status} {content[:300]!r}")
        return content

    def learn(self, traffic: Traffic) -> None:
        """Let it know the contexts that are to be known."""
        for start in range(0, len(traffic.known), _BATCH):
            requests = [ours(context) for context in traffic.known[start : start + _BATCH]]
            self.ask("POST", "/v1/align/batch", msgspec.json.encode({"requests": requests}))

    def plan(self, body: bytes, wanted: Callable[[], bool]) -> float | None:
        """Have a batch planned, wait, fetch the result and discard it.

        Args:
            body: the batch.
            wanted: the plan is cancelled once it is not any more.

        Returns:
            The seconds; None: it was cancelled.
        """
        started = time.perf_counter()
        job = msgspec.json.decode(self.ask("POST", "/v1/plan", body))["id"]
        while (state := msgspec.json.decode(self.ask("GET", f"/v1/plan/{job}"))["status"]) in {"queued", "running"}:
            if not wanted():
                self.ask("DELETE", f"/v1/plan/{job}")
                return None
            time.sleep(_LOOK_SECONDS)
        if state != "done":
            raise RuntimeError(f"the plan is {state}")
        self.ask("GET", f"/v1/plan/{job}/result")
        self.ask("DELETE", f"/v1/plan/{job}")
        return time.perf_counter() - started


@contextlib.contextmanager
def our_server(traffic: Traffic, *arguments: str) -> Iterator[OurServer]:
    """Our server, ready, with the known contexts.

    Args:
        traffic: what it knows.
        arguments: of ``serve``.

    Raises:
        RuntimeError: it does not start.
    """
    with tempfile.TemporaryDirectory() as folder, (Path(folder) / "log").open("w+") as log:
        command = [sys.executable, "-m", "contextpilot_rag"]
        keys = Path(folder) / "keys.json"
        added = [*command, "keys", "add", "--tenant", "bench", "--file", str(keys)]
        key = subprocess.run(added, cwd=_ROOT, check=True, capture_output=True, text=True).stdout.split()[-1]
        serve = [*command, "serve", "--port", "0", "--keys", str(keys), "--state", str(Path(folder) / "state")]
        process = subprocess.Popen([*serve, *arguments], cwd=_ROOT, stdout=subprocess.PIPE, stderr=log)
        late = threading.Timer(_PATIENCE, process.kill)
        late.start()
        try:
            found = re.search(rb":(\d+)\s*$", process.stdout.readline() if process.stdout else b"")
            if found is None:
                log.seek(0)
                raise RuntimeError(f"the service does not start: {log.read()[-500:]}")
            late.cancel()
            server = OurServer(int(found[1]), key, process.pid)
            server.learn(traffic)
            yield server
        finally:
            late.cancel()
            process.terminate()
            try:
                process.wait(_PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            if process.stdout is not None:
                process.stdout.close()


class Load:
    """A load that has begun.

    Args:
        job: what it is.
    """

    def __init__(self, job: Job) -> None:
        command = [sys.executable, str(Path(__file__).with_name("service_load.py"))]
        with tempfile.TemporaryFile() as given:
            given.write(msgspec.json.encode(job))
            given.seek(0)
            self._process = subprocess.Popen(command, stdin=given, stdout=subprocess.PIPE)
        self._lines = cast("IO[bytes]", self._process.stdout)
        if self._lines.readline() != b"begins\n":
            raise RuntimeError("the load does not begin")

    def under_way(self) -> bool:
        """Whether it still is sent."""
        return self._process.poll() is None

    def outcome(self) -> Outcome:
        """What came of it, once it has ended.

        Raises:
            RuntimeError: nothing.
        """
        line = self._lines.read()
        self._lines.close()
        if self._process.wait():
            raise RuntimeError("the load failed")
        return msgspec.json.decode(line, type=Outcome)


def cpu_seconds(pid: int) -> float:
    """Processor time of a process so far; nan where /proc is not there."""
    stat = Path(f"/proc/{pid}/stat")
    if not stat.exists():
        return float("nan")
    fields = stat.read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
