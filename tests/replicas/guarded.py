"""A process that never outlives whoever started it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType

GUARD = Path(__file__).with_name("guard.py")
SECONDS = 30  # for what takes milliseconds where nothing else is running


class Guarded:
    """A command as a process, in a session of its own, killed when this process dies or its time is over.

    Args:
        command: The program and its arguments.
        log: The file that all it says is appended to.
        life: It is killed after so many seconds, whatever happens.
        env: Its environment; that of this process if not given.
    """

    def __init__(
        self, command: Sequence[str], log: Path, *, life: float = 600.0, env: Mapping[str, str] | None = None
    ) -> None:
        guard = [sys.executable, "-I", "-S", str(GUARD), str(life), *command]
        with log.open("ab") as said:
            self._guard = subprocess.Popen(
                guard, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said, start_new_session=True, env=env
            )
        assert self._guard.stdout is not None
        with self._guard.stdout as told:
            pid = told.readline()
        if not pid:
            self.wait()
            raise RuntimeError(f"The guard of {command[0]} did not start: {log.read_text(errors='replace')[-2000:]}")
        self.pid = int(pid)

    @property
    def alive(self) -> bool:
        """Whether it still runs, or is paused."""
        return self._guard.poll() is None

    def send(self, number: signal.Signals) -> None:
        """Send it a signal, if it still runs."""
        if self.alive:
            with suppress(ProcessLookupError):  # it ended in this moment
                os.kill(self.pid, number)

    def wait(self, seconds: float = SECONDS) -> int:
        """Wait until it ends.

        Returns:
            Its status; 128 and the signal's number where a signal ended it.
        """
        status = self._guard.wait(seconds)
        assert self._guard.stdin is not None
        self._guard.stdin.close()
        return status

    def pause(self) -> None:
        """SIGSTOP: it keeps its connections, and does nothing."""
        self.send(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT: it goes on."""
        self.send(signal.SIGCONT)

    def kill(self) -> None:
        """SIGKILL, and wait; nothing if it has ended."""
        self.send(signal.SIGKILL)
        self.wait()

    def stop(self, seconds: float = SECONDS) -> int:
        """SIGTERM, and wait, even where it is paused.

        Returns:
            Its status.
        """
        self.send(signal.SIGTERM)
        self.resume()
        return self.wait(seconds)

    def __enter__(self) -> Guarded:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
