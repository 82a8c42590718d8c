"""Lookup: the numbers of a host's name, found in a thread, because the system's own look-up cannot be hurried."""

from __future__ import annotations

import ipaddress
import socket
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

FRESH_SECONDS = 30.0

Found = Sequence[tuple[int, Any]]  # family and socket address, as getaddrinfo gives them


class Lookup:
    """One host's addresses. Thread-safe; what was found serves until a later look-up found something else.

    Args:
        host: name or number.
        port: of TCP.
        find: as `socket.getaddrinfo`.
    """

    def __init__(self, host: str, port: int, find: Callable[..., Sequence[Any]] = socket.getaddrinfo) -> None:
        self._host = host
        self._port = port
        self._find = find
        self._lock = threading.Lock()
        self._known: Found | None = _numeric(host, port)
        self._old_at = float("inf") if self._known else 0.0
        self._looking: Future[Found] | None = None

    def addresses(self) -> Found | Future[Found]:
        """Them, or where nothing is known yet, a promise of them; it ends with an OSError where there are none."""
        if time.monotonic() < self._old_at and self._known:
            return self._known
        with self._lock:
            looking = self._looking
            if looking is None:
                looking = self._looking = Future()
                looking.set_running_or_notify_cancel()  # who gives up waiting must not end it for the others
                thread = threading.Thread(target=self._look, args=(looking,), name="contextpilot-lookup", daemon=True)
                try:
                    thread.start()
                except RuntimeError as error:  # no more threads at present: the next call tries again
                    self._looking = None
                    looking.set_exception(OSError(str(error)))
        return self._known or looking

    def _look(self, looking: Future[Found]) -> None:
        try:
            found = self._find(self._host, self._port, type=socket.SOCK_STREAM)
            addresses: Found = [(family, address) for family, _, _, _, address in found]
        except Exception as error:  # noqa: BLE001  it is raised where somebody waits for it
            with self._lock:
                self._looking = None
                self._old_at = time.monotonic() + 1.0 if self._known else 0.0
            looking.set_exception(error if isinstance(error, OSError) else OSError(str(error)))
            return
        with self._lock:
            self._looking = None
            self._known = addresses
            self._old_at = time.monotonic() + FRESH_SECONDS
        looking.set_result(addresses)


def _numeric(host: str, port: int) -> Found | None:
    try:
        version = ipaddress.ip_address(host).version
    except ValueError:
        return None
    return [(socket.AF_INET, (host, port))] if version == 4 else [(socket.AF_INET6, (host, port, 0, 0))]
