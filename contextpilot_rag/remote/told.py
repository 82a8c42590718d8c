"""Told: what is known of a connection besides its bytes."""

from __future__ import annotations

from ..errors import IndexFailed


class Told:
    """Counts what comes in as it comes, so that an answer cannot be endless in what is no part of its body."""

    def __init__(self) -> None:
        self.answered = False  # whether anything came since the last request began
        self.unread = False  # whether an answer had come when it was closed, and nothing of it was read
        self.used: float | None = None  # when it was last of use; None: it is new
        self._room = self._most = 0

    def expect(self, most: int) -> None:
        """A request begins, and so many bytes may come back."""
        self.answered = False
        self._room = self._most = most

    def came(self, data: bytes) -> bytes:
        """Count what came in.

        Raises:
            IndexFailed: it is too much.
        """
        self.answered = self.answered or bool(data)
        self._room -= len(data)
        if self._room < 0:
            raise IndexFailed(f"its answer is longer than {self._most:,} bytes, head and all")
        return data
