"""Pace: how a replica works."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Pace:
    """How a replica works.

    Args:
        gather_seconds: records are sent, and read, together for so long at most.
        listen_seconds: the longest wait for news; what else is to be done is done in between.
        retry_seconds: between two attempts to reach a log that is away.
        alone_seconds: what waits for the log longer is taken in without it.
        most_pending: records that wait for the log, of all spaces; beyond, the oldest are not told any more.
        most_spaces: that are followed.
        compact_entries: a snapshot is written after so many entries,
        compact_seconds: or after so long, if there was one at all.
    """

    gather_seconds: float = 0.005
    listen_seconds: float = 0.25
    retry_seconds: float = 0.25
    alone_seconds: float = 30.0
    most_pending: int = 50_000
    most_spaces: int = 20_000
    compact_entries: int = 20_000
    compact_seconds: float = 60.0
