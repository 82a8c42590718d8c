"""Told: what users should know, logged once each."""

from __future__ import annotations

import logging
import threading
from collections.abc import Hashable, Iterable

logger = logging.getLogger(__package__)

_MANY = 1_000  # keys of metadata may be anything: what is remembered of them has an end


class Told:
    """Remembers what was said, so that it is said once. Thread-safe; it stays silent after a thousand things."""

    def __init__(self) -> None:
        self._said: set[Hashable] = set()
        self._lock = threading.Lock()

    def first(self, what: Hashable) -> bool:
        """Whether this is new."""
        with self._lock:
            new = what not in self._said and len(self._said) < _MANY
            if new:
                self._said.add(what)
        return new

    def warn(self, message: str, *values: object) -> None:
        """Log a warning, each message once."""
        if self.first(message):
            logger.warning(message, *values)

    def forget(self) -> None:
        """Everything may be said again."""
        with self._lock:
            self._said.clear()


TOLD = Told()
"""For what is said once in a process, as an engine may be made for each request."""


def tell_hidden(keys: Iterable[str], *, expected: bool) -> None:
    """Say which metadata the model is no longer shown; each key once.

    Args:
        keys: of the metadata.
        expected: the user has named them; else it is a warning.
    """
    new = [key for key in sorted(keys) if TOLD.first(("hidden", key))]
    if new:
        logger.log(
            logging.INFO if expected else logging.WARNING,
            "the model is not shown the metadata %s, which changes with every question, machine or ingestion; "
            "hidden_metadata says what is hidden (None: nothing)",
            ", ".join(map(repr, new)),
        )
