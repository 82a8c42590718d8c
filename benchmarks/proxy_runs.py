"""The proxy, its upstreams and a load as child processes."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import resource
import select
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any, cast

import msgspec
from proxy_load import Job, Outcome

_ROOT = Path(__file__).resolve().parent.parent
_PATIENCE = 60.0  # seconds for whatever is awaited here
PROXY = (sys.executable, "-m", "contextpilot_rag", "proxy")


class Process:
    """A server as a child process.

    Args:
        port: on 127.0.0.1.
        pid: of it.
    """

    def __init__(self, port: int, pid: int) -> None:
        self.port = port
        self.pid = pid

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.port}"

    def ask(self, path: str, body: bytes | None = None, headers: dict[str, str] | None = None) -> tuple[int, bytes]:
        """One request: the status, and the body of the answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=_PATIENCE)
        try:
            given = {"authorization": "Bearer bench", "content-type": "application/json", **(headers or {})}
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # refused before all of it was sent
                connection.request("GET" if body is None else "POST", path, body, given)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def json(self, path: str, body: object = None) -> Any:  # noqa: ANN401  JSON
        """The same, of JSON.

        Raises:
            RuntimeError: it is refused.
        """
        status, content = self.ask(path, None if body is None else json.dumps(body, ensure_ascii=False).encode())
        if status != 200:
            raise RuntimeError(f"{path}: {status} {content[:300]!r}")
        return json.loads(content)

    @property
    def cpu_seconds(self) -> float:
        """Processor time so far; nan where /proc is not there."""
        stat = Path(f"/proc/{self.pid}/stat")
        if not stat.exists():
            return float("nan")
        fields = stat.read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    @property
    def megabytes(self) -> float:
        """Of memory that it has now; nan where /proc is not there."""
        statm = Path(f"/proc/{self.pid}/statm")
        if not statm.exists():
            return float("nan")
        return int(statm.read_text().split()[1]) * resource.getpagesize() / 2**20


@contextlib.contextmanager
def upstream(kind: str) -> Iterator[Process]:
    """One of proxy_upstream.py: "fake" or "fixed"."""
    with _child([sys.executable, str(Path(__file__).with_name("proxy_upstream.py")), kind]) as process:
        yield process


@contextlib.contextmanager
def proxy(to: str, *arguments: str) -> Iterator[Process]:
    """The proxy, ready, as users run it.

    Args:
        to: the upstream's address.
        arguments: of its command.
    """
    with _child([*PROXY, "--upstream", to, "--port", "0", *arguments]) as process:
        yield process


def load(job: Job) -> Outcome:
    """Send what a job says, from a process of its own.

    Raises:
        RuntimeError: it fails.
    """
    command = [sys.executable, str(Path(__file__).with_name("proxy_load.py"))]
    done = subprocess.run(command, input=msgspec.json.encode(job), stdout=subprocess.PIPE, check=False)
    if done.returncode:
        raise RuntimeError("the load failed")
    return msgspec.json.decode(done.stdout.splitlines()[-1], type=Outcome)


@contextlib.contextmanager
def _child(command: Sequence[str]) -> Iterator[Process]:
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(command, cwd=_ROOT, stdout=subprocess.PIPE, stderr=log)
        out = cast("IO[bytes]", process.stdout)
        try:
            ready, _, _ = select.select([out], [], [], _PATIENCE)
            line = out.readline() if ready else b""
            port = re.search(rb"127\.0\.0\.1:(\d+)", line) or re.match(rb"(\d+)\s*$", line)
            if port is None:
                log.seek(0)
                raise RuntimeError(f"{' '.join(command[1:4])} does not start: {log.read()[-800:].decode()}")
            yield Process(int(port[1]), process.pid)
        finally:
            process.terminate()
            try:
                process.wait(_PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            out.close()
