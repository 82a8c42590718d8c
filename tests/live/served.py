"""A real engine under test: in processes of its own, with a small random model made for it. A start takes a minute."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from abc import abstractmethod
from contextlib import suppress
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

from tests.ports import free_port

from .under_test import CAPACITY, EngineUnderTest

START_SECONDS = 300.0
LIFE_SECONDS = 3600  # a server whose tests were killed ends by itself
ROOT = Path(__file__).resolve().parents[2]


class ServedEngine(EngineUnderTest):
    """An engine that is started by a command.

    Args:
        model: a folder with a model; None: a random one is made.
        capacity: KV blocks.
        gigabytes: that the cache may take.
        dummy: the model's folder has no weights.
    """

    topic = "kv@live"
    model = "live"

    def __init__(
        self, model: Path | None = None, capacity: int = CAPACITY, gigabytes: int = 1, *, dummy: bool = False
    ) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="live-"))  # short: a socket's path has at most 107 bytes
        self.capacity, self.gigabytes = capacity, gigabytes
        self.dummy = dummy or model is None
        self._process: subprocess.Popen[bytes] | None = None
        self.port, replay = free_port(), free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.replay = f"tcp://127.0.0.1:{replay}"
        self.events = self.events_address()
        if model is None:
            model = self.folder / "model"
            script = [sys.executable, str(ROOT / "scripts" / "random_model.py"), str(model)]
            subprocess.run(script, check=True, timeout=START_SECONDS)
        self.weights = model

    @abstractmethod
    def events_address(self) -> str:
        """Where it publishes."""

    @abstractmethod
    def command(self) -> list[str]:
        """What starts it."""

    def environment(self) -> dict[str, str]:
        """What is added to the environment."""
        return {}

    def start(self) -> None:
        """Serve; returns when it answers."""
        assert self._process is None, "it runs"
        calm = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "PYTHONHASHSEED": "0"}
        with (self.folder / "log").open("wb") as log:
            self._process = subprocess.Popen(
                ["timeout", "--signal=KILL", str(LIFE_SECONDS), *self.command()],
                env={**os.environ, **calm, **self.environment()},
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # a group of its own, so that all of it can be ended
            )
        deadline = time.monotonic() + START_SECONDS
        while not self._healthy():
            ended = self._process.poll()
            if ended is not None or time.monotonic() > deadline:
                self.kill()
                what = "did not start in time" if ended is None else f"ended with {ended}"
                raise RuntimeError(f"{self.name} {what}; the end of its log:\n{self.log()}")
            time.sleep(0.25)

    def log(self, lines: int = 40) -> str:
        """The end of what it wrote."""
        text = (self.folder / "log").read_text(encoding="utf-8", errors="replace")
        return "\n".join(text.splitlines()[-lines:])

    def kill(self) -> None:
        """End all its processes at once."""
        if self._process is None:
            return
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(30)
        self._process = None
        _until_free(self.port)

    def close(self) -> None:
        """End it, and remove its files."""
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _healthy(self) -> bool:
        try:
            with urlopen(f"{self.url}/health", timeout=5) as answer:
                return bool(answer.status == 200)
        except (URLError, OSError):
            return False


def _until_free(port: int) -> None:
    """Wait until the dead processes' port can be had again."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        with socket.socket() as one:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                one.bind(("127.0.0.1", port))
            except OSError:
                time.sleep(0.1)
            else:
                return
