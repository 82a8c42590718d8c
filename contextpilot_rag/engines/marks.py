"""Marks: what a feed remembers of messages, and how it compares them. None stands for one that was not understood."""

from __future__ import annotations

from .kv import Batch, Cleared, Stored


def mark(batch: Batch | None) -> int | None:
    """Most likely another for other contents."""
    return None if batch is None else hash(batch)


def later(one: Batch | None, other: Batch | None) -> bool:
    """Whether the engine sent the first after the other, as far as it says when."""
    if one is None or other is None or one.at is None or other.at is None:
        return False
    return one.at > other.at


def weight(batch: Batch | None) -> int:
    """About the numbers in it that take memory: tokens and names of KV blocks."""
    total = 1
    for event in batch.events if batch is not None else ():
        if not isinstance(event, Cleared):
            total += len(event.hashes) + (len(event.tokens) if isinstance(event, Stored) else 0)
    return total
