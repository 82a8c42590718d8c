"""A service in a thread of this process, or as a process of its own; on 127.0.0.1 with a free port."""

from __future__ import annotations

import http.client
import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from contextpilot_rag.service.hub import Hub
from contextpilot_rag.service.life import Life, assemble
from contextpilot_rag.service.process import run as run_on_loop
from contextpilot_rag.service.server import Server
from contextpilot_rag.service.settings import ServiceSettings

SECONDS = 30.0  # whatever is awaited here has happened by then, or never will
ROOT = Path(__file__).parents[2]


@dataclass
class Reply:
    """An answer: status, headers with names in lower case, body."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Running:
    """A service that runs."""

    address: str

    @property
    def port(self) -> int:
        port = urlsplit(self.address).port
        assert port is not None
        return port

    def ask(self, method: str, path: str, body: Any = None, key: str | None = None, **headers: str) -> Reply:
        """One request on a connection of its own; a body that is no bytes is sent as JSON."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=SECONDS)
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if key is not None:
            sent["Authorization"] = f"Bearer {key}"
        if body is not None:
            sent.setdefault("Content-Type", "application/json")
            body = body if isinstance(body, bytes) else json.dumps(body).encode()
        try:
            connection.request(method, path, body, sent)
            reply = connection.getresponse()
            return Reply(reply.status, {name.lower(): value for name, value in reply.getheaders()}, reply.read())
        finally:
            connection.close()


@dataclass
class Served(Running):
    """A service in a thread: its hub is at hand, to be looked at once `ask` has returned."""

    hub: Hub
    server: Server
    stop: Callable[[], None]


@contextmanager
def serving(settings: ServiceSettings | None = None, life: Life | None = None, **given: Any) -> Iterator[Served]:
    """A service in a thread, until the block ends.

    Args:
        settings: or as keywords; the port is a free one unless given.
        life: the service's parts, instead of those that the settings ask for.
        given: settings.
    """
    if settings is None:
        settings = ServiceSettings(**{"port": 0, **given})
    life = assemble(settings) if life is None else life
    server = Server(life)
    ready = threading.Event()
    failed: list[BaseException] = []

    def run() -> None:
        try:
            run_on_loop(server, ready.set)
        except BaseException as error:  # noqa: BLE001  raised in `stop`
            failed.append(error)
        finally:
            ready.set()

    thread = threading.Thread(target=run, name="service")
    thread.start()

    def stop() -> None:
        server.stop()
        thread.join(SECONDS)
        assert not thread.is_alive(), "the service did not end"
        if failed:
            raise failed[0]

    ready.wait(SECONDS)
    if failed:
        stop()
    try:
        yield Served(server.address, life.hub, server, stop)
    finally:
        stop()


@dataclass
class Process(Running):
    """A service as a process of its own."""

    popen: subprocess.Popen[bytes]
    log: Path

    def stop(self, signal_number: int | None = None) -> int:
        """End it by a signal (SIGTERM if none is given), and wait; its exit status."""
        if self.popen.poll() is None:
            if signal_number is None:
                self.popen.terminate()
            else:
                self.popen.send_signal(signal_number)
        return self.popen.wait(SECONDS)


@contextmanager
def process(folder: Path, *arguments: str, **environment: str) -> Iterator[Process]:
    """``contextpilot-rag serve`` as a child process, ready; killed when the block ends, if it still runs.

    Args:
        folder: for its log.
        arguments: of the command, after ``serve --port 0`` (a port among them wins).
        environment: variables besides those of this process.
    """
    log = folder / f"serve-{time.monotonic_ns()}.log"
    with log.open("wb") as errors:
        popen = start(arguments, environment, errors)
        try:
            told_in_log = "json" in {*arguments, environment.get("CONTEXTPILOT_SERVE_LOG_FORMAT")}
            yield Process(_address(popen, log, in_log=told_in_log), popen, log)
        finally:
            if popen.poll() is None:
                popen.kill()
            popen.wait(SECONDS)
            assert popen.stdout is not None
            popen.stdout.close()


def start(arguments: Sequence[str], environment: dict[str, str], errors: Any) -> subprocess.Popen[bytes]:
    """The process alone, not waited for."""
    command = [sys.executable, "-m", "contextpilot_rag", "serve", "--port", "0", *arguments]
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("CONTEXTPILOT_")}
    return subprocess.Popen(
        command,
        cwd=ROOT,
        env={**inherited, **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=errors,
    )


def _address(popen: subprocess.Popen[bytes], log: Path, *, in_log: bool) -> str:
    """What it says when it is ready."""
    timer = threading.Timer(SECONDS, popen.kill)
    timer.start()
    try:
        for line in _new_lines(popen, log) if in_log else popen.stdout or ():
            found = re.search(rb"ready on (https?://\S+:\d+)", line)
            if found:
                return found[1].decode()
    finally:
        timer.cancel()
    raise AssertionError(f"the service did not start: {log.read_text()}")


def _new_lines(popen: subprocess.Popen[bytes], log: Path) -> Iterator[bytes]:
    """The whole lines of a log, as they come, until the process ends."""
    with log.open("rb") as file:
        line = b""
        while popen.poll() is None:
            line += file.readline()
            if line.endswith(b"\n"):
                yield line
                line = b""
            else:
                time.sleep(0.01)
