"""How to follow engines: the sessions follow one engine, the Python is how one asks several."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.docs.standins import Stage


@contextmanager
def stage(folder: Path) -> Iterator[Stage]:
    """Names of their own for both."""
    yield Stage(apart=True)
