"""A log server for a test that needs no more than one, and replicas without one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from .log_server import LogServer
from .some import Some


@pytest.fixture
def log_server(tmp_path: Path) -> Iterator[LogServer]:
    """One that is empty, and for this test alone."""
    with LogServer(tmp_path) as server:
        yield server


@pytest.fixture
def some():
    """Two replicas that have joined."""
    made = Some()
    made.go()
    return made
