"""Failing open: what broke is counted and said once, and the request goes out all the same."""

from __future__ import annotations

import logging
import threading

from .errors import ContextPilotError, IndexFailed

logger = logging.getLogger("contextpilot_rag")


class Failures:
    """The failures of one pilot. Thread-safe.

    Args:
        raises: they are raised, too.
    """

    def __init__(self, *, raises: bool) -> None:
        self._raises = raises
        self._lock = threading.Lock()
        self.count = 0

    def note(self, error: Exception) -> None:
        """Count a failure; the first is logged."""
        with self._lock:
            self.count += 1
            first = self.count == 1
        if first and not self._raises:
            logger.warning(
                "failed open: %s; requests go out all the same (said once, pilot.failures counts on)",
                error,
                exc_info=error,
            )

    def fail(self, error: Exception) -> None:
        """Count a failure of the index.

        Raises:
            IndexFailed: because of it, if failures are raised.
        """
        self.note(error)
        if self._raises:
            raise IndexFailed(f"the context index failed: {error}") from error

    def fail_with(self, error: Exception) -> None:
        """Count a failure of something that is built on the pilot.

        Raises:
            ContextPilotError: the error as it is, or `IndexFailed` because of it, if failures are raised.
        """
        if not self._raises or not isinstance(error, ContextPilotError):
            self.fail(error)
            return
        if not isinstance(error, IndexFailed):  # that one was counted where it was raised
            self.note(error)
        raise error
