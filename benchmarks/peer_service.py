"""The published peer's HTTP server (PyPI ``contextpilot``), in its own environment and with its own defaults."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence

import peer

# What its server needs besides its ordering, at the versions that its package asks for at least.
NEEDS = ("fastapi", "uvicorn[standard]", "aiohttp")
_PATIENCE = 40.0  # seconds for starting, and for a request
_ATTEMPTS = 4
_FIRST = 1_000  # contexts of the first batch, which takes it time by the square of their number
_FURTHER = 100


class PeerServer:
    """A server of the peer's that runs.

    Args:
        port: on 127.0.0.1.
        pid: of its process.
    """

    def __init__(self, port: int, pid: int) -> None:
        self.port = port
        self.pid = pid

    def reorder(self, contexts: Sequence[Sequence[str]], patience: float = _PATIENCE) -> float:
        """Give it contexts to order, and to know from then on; how many seconds it takes.

        Raises:
            OSError: it does not answer in time.
            RuntimeError: it fails.
        """
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=patience)
        try:
            started = time.perf_counter()
            body = json.dumps({"contexts": contexts})
            connection.request("POST", "/reorder", body, {"content-type": "application/json"})
            answer = connection.getresponse()
            text = answer.read()
            if answer.status != 200:
                raise RuntimeError(f"the peer's server answered {answer.status}: {text[:200]!r}")
            return time.perf_counter() - started
        finally:
            connection.close()


@contextlib.contextmanager
def peer_server(*arguments: str) -> Iterator[PeerServer]:
    """The peer's server as a child process, ready. It writes no log: that is its fastest.

    Args:
        arguments: of its command line.

    Raises:
        RuntimeError: it does not start.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [_environment(), "-m", "contextpilot.server.http_server", "--host", "127.0.0.1", "--port", str(port)]
    process = subprocess.Popen(
        [*command, "--log-level", "error", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        _await(process, port)
        yield PeerServer(port, process.pid)
    finally:
        _end(process)


@contextlib.contextmanager
def taught_server(contexts: Sequence[Sequence[str]]) -> Iterator[tuple[PeerServer, float, int]]:
    """The peer's server, once it has taken contexts: a first large batch and small ones; anew where it hangs at that.

    Yields:
        It, the seconds that the batches took, and how many others hung.

    Raises:
        RuntimeError: it hangs each time.
    """
    for hung in range(_ATTEMPTS):
        with peer_server() as server:
            try:
                seconds = server.reorder(contexts[:_FIRST])
                for start in range(_FIRST, len(contexts), _FURTHER):
                    seconds += server.reorder(contexts[start : start + _FURTHER])
            except OSError:
                continue
            yield server, seconds, hung
            return
    raise RuntimeError("the peer's server hangs")


def _environment() -> str:
    """The peer's Python, with what its server needs; installed on first use."""
    python = peer.environment()
    ready = peer.ENVIRONMENT / ".ready-service"
    if not ready.exists():
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, *NEEDS], check=True)
        ready.touch()
    return str(python)


def _await(process: subprocess.Popen[bytes], port: int) -> None:
    end = time.monotonic() + _PATIENCE
    while process.poll() is None and time.monotonic() < end:
        with contextlib.suppress(OSError):
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_PATIENCE)
            connection.request("GET", "/")
            connection.getresponse().read()
            connection.close()
            return
        time.sleep(0.1)
    raise RuntimeError("the peer's server does not start")


def _end(process: subprocess.Popen[bytes]) -> None:
    """It and the workers it has forked, which do not end by themselves when it hangs."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
