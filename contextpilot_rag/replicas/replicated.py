"""ReplicatedIndex: the index of an application process, which shares what it knows with others by a log."""

from __future__ import annotations

from typing import Any

from ..index.fed import FedIndex
from ..index.records import IndexRecord
from ..types import Namespace
from .process import ProcessReplica
from .space import Space


class ReplicatedIndex(FedIndex):
    """A `ContextIndex` in this process's memory that converges with those of other processes.

    It decides at once, from what is known here, and never waits for the log. What others sent and observed arrives a
    few milliseconds later. Keys of blocks have to be bytes, str or int: they must mean the same in every process.

    Args:
        replica: of this process.
        pool: all that are fed by one log, in whichever process, call it the same.
        *args: as `LocalIndex` has them.
        **more: as `LocalIndex` has them.
    """

    def __init__(self, replica: ProcessReplica, pool: str, *args: Any, **more: Any) -> None:  # noqa: ANN401
        super().__init__(*args, journal=_Told(replica, pool), **more)
        self.replica = replica
        replica.feed(pool, self)

    def follow_usage(self, follow: bool) -> None:
        """Reports go on pruning: an engine's events tell nothing here of prompts that other processes sent."""

    def leave(self) -> None:
        """What was told to the log and has not come back is waited for no longer."""
        with self._lock:
            shares = list(self._shares.values())
            self._forgetting.clear()
        for share in shares:
            with share.lock:
                share.ahead = None
                self._resized(share)
        self._early.clear()  # after that: until then an answer may be put there


class _Told:
    """The `Journal` of a pool."""

    def __init__(self, replica: ProcessReplica, pool: str) -> None:
        self._replica = replica
        self._pool = pool

    def append(self, space: Namespace, record: IndexRecord) -> str:
        """Tell the log of a namespace."""
        return self._replica.append(Space(self._pool, space), record)

    def forgot(self, namespace: Namespace | None) -> None:
        """Have it forgotten in all processes."""
        self._replica.forgot(self._pool, namespace)
