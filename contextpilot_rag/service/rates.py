"""Rates: how many requests a second a tenant may ask. One token bucket each."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from .auth import Caller
from .problems import TooMany

_MOST = 10_000  # buckets; there are no more tenants than the file of keys has


@dataclass(slots=True)
class _Bucket:
    level: float
    at: float


class Paced(Protocol):
    """The settings that say how often a tenant may ask."""

    @property
    def rate(self) -> float:
        """Requests a second; 0: no limit."""
        ...

    @property
    def burst(self) -> int:
        """Requests at once, before the rate counts."""
        ...


class Rates:
    """A bucket for each tenant: it holds ``burst`` requests and fills at the tenant's rate.

    A batch costs as many as it has requests; one of more than ``burst`` waits for a full bucket and leaves a debt.

    Args:
        settings: rate, unless a tenant has its own, and burst.
        clock: seconds that never run backwards.

    >>> from contextpilot_rag.service.settings import ServiceSettings
    >>> rates = Rates(ServiceSettings(rate=1.0, burst=2), clock=lambda: 0.0)
    >>> rates.take(Caller("acme"), 2), rates.take(Caller("globex"))
    (None, None)
    >>> rates.take(Caller("acme"))
    Traceback (most recent call last):
    contextpilot_rag.service.problems.TooMany: over the rate of 1 request(s) a second
    """

    def __init__(self, settings: Paced, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = settings.rate
        self._burst = float(settings.burst)
        self._clock = clock
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()

    def __len__(self) -> int:
        return len(self._buckets)

    def take(self, caller: Caller, cost: int = 1, *, counted: int = 0) -> None:
        """Count requests.

        Args:
            caller: whose.
            cost: how many come at once.
            counted: how many of these were counted just before.

        Raises:
            TooMany: over the rate; nothing was counted, and it says when to come again.
        """
        rate = self._rate if caller.rate is None else caller.rate
        if rate <= 0 or cost <= counted:
            return
        now = self._clock()
        bucket = self._buckets.get(caller.tenant)
        if bucket is None:
            bucket = self._buckets[caller.tenant] = _Bucket(self._burst, now)
            if len(self._buckets) > _MOST:
                self._buckets.popitem(last=False)  # used longest ago: none has had more time to fill
        else:
            self._buckets.move_to_end(caller.tenant)
        bucket.level = min(self._burst, bucket.level + max(0.0, now - bucket.at) * rate)
        bucket.at = now
        needed = min(float(cost), self._burst) - counted
        if bucket.level < needed:
            raise TooMany(f"over the rate of {rate:g} request(s) a second", (needed - bucket.level) / rate)
        bucket.level -= cost - counted
