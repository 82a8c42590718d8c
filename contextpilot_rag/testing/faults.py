"""The failures that a FakeEngine is told to have."""

from __future__ import annotations

import threading

from ..errors import EngineRefused, EngineUnreachable, SettingsError


class Faults:
    """So many requests to fail, and those that did. Thread-safe."""

    def __init__(self) -> None:
        self.failures = 0
        """Requests that failed."""
        self._left = 0
        self._status: int | None = None
        self._lock = threading.Lock()

    def fail_next(self, times: int, status: int | None) -> None:
        """As `FakeEngine.fail_next`."""
        if type(times) is not int or times < 0:
            raise SettingsError(f"times must be an int, 0 or more, not {times!r}")
        if status is not None and (type(status) is not int or not 400 <= status <= 599):
            raise SettingsError(f"status must be an int from 400 to 599, or None, not {status!r}")
        with self._lock:
            self._left, self._status = times, status

    def fail_if_told(self) -> None:
        """Count a request, which perhaps fails.

        Raises:
            EngineRefused: it fails with a status.
            EngineUnreachable: it fails without.
        """
        with self._lock:
            if not self._left:
                return
            self._left -= 1
            self.failures += 1
            status = self._status
        if status is None:
            raise EngineUnreachable("FakeEngine: the connection was closed without an answer, as fail_next asked for")
        raise EngineRefused(f"FakeEngine: status {status}, as fail_next asked for", status)
