"""Replicas as processes under load, a real server, and real faults: all is answered, and in the end by all alike."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from .link import Link
from .log_server import LogServer
from .namespaces import Namespaced, namespaces_permitted
from .process import BLOCKS, NAMESPACES

PROCESS = "tests.replicas.process"
ROOT = Path(__file__).parents[2]
PATIENCE = 15.0  # two seconds are promised, of a machine that has time for it
OUTAGE = 10.0
REQUESTS = [
    (which, random.Random(number).sample(range(BLOCKS), 8))
    for number in range(50)
    for which in [number % len(NAMESPACES)]
]


class Process:
    """One replica: asked by `ask`, killed in the end."""

    def __init__(self, url: str, seed: int, within: Namespaced | None = None) -> None:
        command = [sys.executable, "-m", PROCESS, url, str(seed)]
        if within is not None:
            command = within.command(command)
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT, text=True, bufsize=1
        )

    def wait_until_ready(self) -> None:
        assert self._read() == "ready"

    def ask(self, do: str, **more: Any) -> Any:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": do, **more}) + "\n")
        self._process.stdin.flush()
        return self._read()

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()

    def _read(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the replica has ended"
        return json.loads(line)


class World:
    """A server and replicas, each with its own way to it."""

    def __init__(self, stack: ExitStack, server: LogServer) -> None:
        self._stack = stack
        self.server = server
        self.links: list[Link] = []
        self.processes: list[Process] = []
        self.took: list[float] = []  # seconds from when a fault ended until all answered alike
        self._mended = time.monotonic()
        self._asking = stack.enter_context(ThreadPoolExecutor(8))

    def start(self, number: int) -> None:
        """So many replicas more, under load."""
        for _ in range(number):
            link = self._stack.enter_context(Link(self.server.port))
            self.links.append(link)
            self.add(Process(link.url, len(self.links)))

    def add(self, process: Process) -> None:
        self._stack.callback(process.close)
        self.processes.append(process)

    def begin(self) -> None:
        self._all(Process.wait_until_ready)
        self.load(on=True)

    def load(self, *, on: bool) -> None:
        self._all(lambda process: process.ask("load", on=on))

    def status(self) -> list[dict[str, Any]]:
        return self._all(lambda process: process.ask("status"))

    def answered(self) -> list[int]:
        return [status["answered"] for status in self.status()]

    def until(self, true: Any, seconds: float = PATIENCE) -> None:
        ends = time.monotonic() + seconds
        while not true(self.status()):
            assert time.monotonic() < ends, self.status()
            time.sleep(0.05)

    def goes_on(self, seconds: float) -> None:
        """For so long every replica that is not stopped answers, no matter what."""
        before = self.answered()
        time.sleep(seconds)
        # About ninety a second, on a machine with nothing else to do; one a second, if each waited for the log.
        self.until(lambda found: all(now["answered"] - was > 30 for was, now in zip(before, found, strict=True)), 10.0)

    def mended(self) -> None:
        """The fault has ended: all are to join again, and go on under load meanwhile."""
        self._mended = time.monotonic()
        self.until(lambda found: all(one["joined"] for one in found))

    def healed(self) -> None:
        """Soon all answer alike, and nothing was ever wrong."""
        self.load(on=False)
        ends = time.monotonic() + PATIENCE
        while True:
            asked = time.monotonic()
            predictions = self._all(lambda process: process.ask("predict", requests=REQUESTS))
            found = self.status()
            alike = all(one == predictions[0] for one in predictions) and len({one["digest"] for one in found}) == 1
            if alike and all(one["joined"] and not one["pending"] for one in found):
                break
            assert time.monotonic() < ends, found
            time.sleep(0.02)
        self.took.append(asked - self._mended)
        assert any(predictions[0])
        for one in found:
            assert not one["wrong"], one
            assert not one["rejected"]
            assert one["slowest"] < 2.0  # none has waited for the log, whose time-out is one second
        self.load(on=True)

    def _all(self, ask: Any) -> list[Any]:
        return list(self._asking.map(ask, self.processes))


@contextmanager
def world(folder: Path, number: int = 3, **options: Any) -> Iterator[World]:
    with ExitStack() as stack:
        made = World(stack, stack.enter_context(LogServer(folder, **options)))
        made.start(number)
        made.begin()
        made.until(lambda found: all(one["joined"] and one["answered"] > 20 for one in found))
        yield made


def test_replicas_are_killed_and_others_join_late_under_load(tmp_path):
    with world(tmp_path) as made:
        made.healed()
        gone = made.processes.pop(0)
        gone.send(signal.SIGKILL)
        made.goes_on(0.5)
        late = Process(made.links[0].url, 9)
        made.add(late)
        late.wait_until_ready()
        late.ask("load", on=True)
        made.goes_on(0.5)
        made.healed()
        made.processes[0].ask("forget", namespace=0)
        made.healed()
        known = made.processes[1].ask("status")
        assert known["founded"] == 0


@pytest.mark.parametrize("persistent", [True, False])
def test_the_server_is_killed_and_started_again(tmp_path, persistent):
    """With what it had on its disk, or empty."""
    with world(tmp_path, persistent=persistent) as made:
        made.server.kill()
        made.goes_on(1.5)
        assert not any(one["joined"] for one in made.status())
        made.server.start()
        made.mended()
        made.healed()
        if not persistent:
            assert any(one["founded"] for one in made.status())


def test_the_server_is_paused_for_ten_seconds(tmp_path):
    with world(tmp_path) as made:
        made.server.pause()
        try:
            made.goes_on(OUTAGE)
            assert not any(one["joined"] for one in made.status())
        finally:
            made.server.resume()
        made.mended()
        made.healed()


def test_a_replica_is_paused_and_another_is_cut_off_for_ten_seconds(tmp_path):
    """By taking its cable where that is permitted; else by a relay that passes nothing on."""
    with ExitStack() as stack:
        apart = stack.enter_context(Namespaced()) if namespaces_permitted() else None
        hosts = ("127.0.0.1",) if apart is None else ("127.0.0.1", apart.host)
        made = stack.enter_context(world(tmp_path, 3, hosts=hosts))
        if apart is None:
            made.start(1)
        else:
            made.add(Process(f"redis://{apart.host}:{made.server.port}/0", 7, apart))
        made.processes[-1].wait_until_ready()
        made.processes[-1].ask("load", on=True)
        made.until(lambda found: all(one["joined"] and one["answered"] > 20 for one in found))
        paused = made.processes.pop(0)
        paused.send(signal.SIGSTOP)
        made.links[-1].cut() if apart is None else apart.down()
        made.goes_on(OUTAGE)
        assert [one["joined"] for one in made.status()] == [True, True, False]
        paused.send(signal.SIGCONT)
        made.links[-1].heal() if apart is None else apart.up()
        made.processes.insert(0, paused)
        made.mended()
        made.healed()


def test_half_open_connections_and_a_full_server(tmp_path):
    with world(tmp_path) as made:
        made.links[0].half("requests")  # what it tells is taken, and it never learns of it
        made.links[1].half("answers")
        made.goes_on(2.5)
        assert [one["joined"] for one in made.status()] == [False, False, True]
        for link in made.links:
            link.heal()
        made.mended()
        made.healed()
        with made.server.client() as client:
            client.config_set("maxmemory", 1)
            made.goes_on(1.0)
            made.until(lambda found: not any(one["joined"] for one in found))
            client.config_set("maxmemory", 0)
        made.mended()
        made.healed()
        for link in made.links:
            link.drop()  # all at once
        made.goes_on(0.5)
        made.healed()
