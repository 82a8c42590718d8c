"""Refused keys in the log: who asks without one that is known, and not as often as somebody likes to ask."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

logger = logging.getLogger("contextpilot_rag.service")

SECONDS = 60.0
ADDRESSES = 20  # told of in that time; of all others only how many requests they were


class Refusals:
    """Logs each address once a minute, and how often it was refused after that. Never what was shown as a key.

    Args:
        clock: seconds that never run backwards.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._since = clock()
        self._told: set[str] = set()
        self._more = 0

    def add(self, address: str, *, shown: bool) -> None:
        """Somebody was refused.

        Args:
            address: of the peer; a proxy's, where there is one.
            shown: there was something in place of a key.
        """
        now = self._clock()
        if now - self._since >= SECONDS:
            if self._more:
                logger.warning("%d more requests without a key that is known, since the last such lines", self._more)
            self._since, self._more = now, 0
            self._told.clear()
        if address in self._told or len(self._told) >= ADDRESSES:
            self._more += 1
            return
        self._told.add(address)
        logger.warning("refused %s: %s", address, "a key that is not known" if shown else "no key")
