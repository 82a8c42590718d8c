"""What a conversation asks of a pilot."""

from __future__ import annotations

from typing import Protocol

from ..prompt.aligner import Aligner


class CountingAligner(Aligner, Protocol):
    """The part of a pilot that a conversation needs."""

    def count_tokens(self, text: str) -> int:
        """Tokens of a text."""
        ...

    def route(self, engine: str | None, tokens: int = 0) -> str | None:
        """Which engine a conversation goes on at, that was at this one; None: no engines are known."""
        ...
