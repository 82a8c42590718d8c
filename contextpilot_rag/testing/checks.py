"""The settings of a FakeEngine, checked."""

from __future__ import annotations

import math
import sys
from typing import TypeGuard, get_args

from ..errors import SettingsError
from .wire import Dialect, EventOptions


def check(rate: object, delay: object, most: object, dialect: object, events: object) -> None:
    """See whether a FakeEngine can be made with these.

    Args:
        rate: its ``prefill_tokens_per_second``.
        delay: its ``delay_seconds``.
        most: its ``max_requests``.
        dialect: of what it publishes.
        events: whether it publishes, and how.

    Raises:
        SettingsError: one of them cannot be.

    >>> check(None, 0.5, 10, "vllm", True)
    """
    if rate is not None and not (_number(rate) and rate > 0):
        raise SettingsError(f"prefill_tokens_per_second must be above 0, not {rate!r}")
    if not (_number(delay) and delay >= 0):
        raise SettingsError(f"delay_seconds must be 0 or more, not {delay!r}")
    if type(most) is not int or not 0 <= most <= sys.maxsize:
        raise SettingsError(f"max_requests must be an int, 0 or more, not {most!r}")
    if dialect not in get_args(Dialect):
        raise SettingsError(f"dialect must be one of {', '.join(get_args(Dialect))}, not {dialect!r}")
    if not isinstance(events, bool | EventOptions):
        raise SettingsError(f"events must be True, False or EventOptions, not {events!r}")


def _number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and math.isfinite(value)
