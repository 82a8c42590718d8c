"""A whole proxy in a thread, or one as a process of its own; on 127.0.0.1 with a free port."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from contextpilot_rag.proxy.life import assemble
from contextpilot_rag.proxy.settings import ProxySettings
from contextpilot_rag.service.process import run as run_on_loop
from contextpilot_rag.service.server import Lived, Server
from contextpilot_rag.settings import Settings
from tests.service.harness import ROOT, SECONDS, Running


@dataclass
class Lives(Running):
    """A proxy in a thread, its parts at hand."""

    life: Any
    server: Server


@contextmanager
def living(life: Lived | None = None, *, chosen: Settings | None = None, **given: Any) -> Iterator[Lives]:
    """What can be served, in a thread, until the block ends.

    Args:
        life: what is served; None: a proxy.
        chosen: settings of its pilot.
        given: settings of the proxy.
    """
    if life is None:
        life = assemble(ProxySettings(**{"port": 0, **given}), chosen or Settings())
    server = Server(life)
    ready, failed = threading.Event(), []

    def run() -> None:
        try:
            run_on_loop(server, ready.set)
        except BaseException as error:  # noqa: BLE001  raised below
            failed.append(error)
        finally:
            ready.set()

    thread = threading.Thread(target=run, name="proxy")
    thread.start()
    ready.wait(SECONDS)
    try:
        if failed:
            raise failed[0]
        yield Lives(server.address, life, server)
    finally:
        server.stop()
        thread.join(SECONDS)
        assert not thread.is_alive(), "it did not end"
    if failed:
        raise failed[0]


@dataclass
class Process(Running):
    """A proxy as a process: what it has said so far, and itself."""

    lines: list[str]
    popen: subprocess.Popen[str]

    def stop(self) -> tuple[int, str]:
        """End it in order; its exit status, and what it said last."""
        self.popen.terminate()
        rest, _ = self.popen.communicate(timeout=SECONDS)
        return self.popen.returncode, rest


@contextmanager
def process(*arguments: str, lines: int = 2, **environment: str) -> Iterator[Process]:
    """``contextpilot-rag`` as a child, ready once it has said so many lines, and its address; killed at the end."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("CONTEXTPILOT_")}
    popen = subprocess.Popen(
        [sys.executable, "-m", "contextpilot_rag", *arguments],
        cwd=ROOT,
        env={**inherited, **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    timer = threading.Timer(SECONDS, popen.kill)
    timer.start()
    try:
        assert popen.stdout is not None
        said: list[str] = []
        found = None
        for line in popen.stdout:
            said.append(line)
            found = found or re.search(r"https?://127\.0\.0\.1:\d+", line)
            if found and len(said) >= lines:
                break
        timer.cancel()
        assert found, said
        yield Process(found[0], said, popen)
    finally:
        timer.cancel()
        if popen.poll() is None:
            popen.kill()
        popen.wait(SECONDS)
        if popen.stdout is not None:
            popen.stdout.close()
