"""Replicas: a log that goes away."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.docs.standins import Stage
from tests.replicas.log_server import LogServer


@contextmanager
def stage(folder: Path) -> Iterator[Stage]:
    """A log that the page can stop."""
    with LogServer(folder) as server:
        yield Stage({"stop_the_log": server.kill}, {"redis://log.example:6379": server.url})
