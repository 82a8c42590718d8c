"""Status: how a replica stands to its log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

REJECTIONS = ("record", "schema", "signature", "size", "state", "version")
"""Why something that the log brought is left out."""


@dataclass(frozen=True, slots=True)
class ReplicaStatus:
    """How a replica stands to its log, and counts since it was made.

    Args:
        joined: what is told arrives, and what others tell is heard. Where it is not, the replica goes on alone.
        why: it is not; empty if it is.
        spaces: namespaces that are followed.
        pending: records that were told here and have not come back yet.
        pending_seconds: how long the oldest of them waits.
        behind_seconds: how old the record was that was applied last, when it was applied; None: none was.
        appended: records that the log took.
        applied: records that it brought, own ones too.
        rejected: entries and records that were left out, by reason.
        reloads: how often a namespace was read anew, by reason.
        founded: how often this replica gave the log what the others begin with.
        compacted: snapshots that it wrote.
        outages: how often it had to go on alone.
        dropped: records that were not told, because too many waited.
    """

    joined: bool = False
    why: str = ""
    spaces: int = 0
    pending: int = 0
    pending_seconds: float = 0.0
    behind_seconds: float | None = None
    appended: int = 0
    applied: int = 0
    rejected: Mapping[str, int] = field(default_factory=dict)
    reloads: Mapping[str, int] = field(default_factory=dict)
    founded: int = 0
    compacted: int = 0
    outages: int = 0
    dropped: int = 0
