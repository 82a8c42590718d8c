"""Waiting for what other threads and processes do: until it is so, and never for a fixed time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

SOON = 30.0
"""Seconds that no machine needs; only a test that fails waits so long."""


def until(true: Callable[[], object], what: str = "it", seconds: float = SOON) -> None:
    """Wait until something is so.

    Raises:
        AssertionError: it was not, in so many seconds.
    """
    ends = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < ends, f"{what} did not come to be in {seconds} s"
        time.sleep(0.005)


async def is_so(true: Callable[[], object], what: str = "it", seconds: float = SOON) -> None:
    """As `until`, while an event loop goes on."""
    ends = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < ends, f"{what} did not come to be in {seconds} s"
        await asyncio.sleep(0.005)
