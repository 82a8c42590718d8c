"""Telling: the thread that appends to the log what was told here."""

from __future__ import annotations

from .core import Core
from .entries import write_batch
from .log import LogUnavailable
from .space import Space

_SPACES = 64  # in one step
_NOTHING = (0, b"\xc0")  # a record that nobody takes in, for its number is always below the next


class Teller:
    """Appends what waits. For each space one entry is on the way at a time, and begins with the oldest record that the
    log has not taken: so records of one writer never pass each other.
    """  # noqa: D205

    def __init__(self, core: Core) -> None:
        self._core = core
        self._owed: dict[Space, None] = {}  # where something may stand in the log of which the bell did not tell

    def step(self, seconds: float) -> float:
        """Wait for something to tell, at most so long, and tell some of it; how long to rest until the next step."""
        core = self._core
        if not core.work.wait(seconds):
            return 0.0
        began = core.clock()
        with core.lock:
            core.work.clear()
            some = core.outbox.to_send(_SPACES)
            writer = core.writer
        if not some and not self._owed:
            core.well("telling")  # what could not be told came back nevertheless, or is told no more
            return 0.0
        entries = [
            write_batch(core.names, space, writer, [(one.number, one.data) for one in waiting])
            for space, waiting in some
        ]
        self._owed = {space: None for space in self._owed if all(space != other for other, _ in some)}
        entries += [write_batch(core.names, space, writer, [_NOTHING]) for space in self._owed]
        try:
            core.log.append(entries)
        except LogUnavailable as error:
            self._owed.update(dict.fromkeys(space for space, _ in some))
            core.ails("telling", str(error))
            core.work.set()
            return core.pace.retry_seconds
        self._owed.clear()
        with core.lock:
            for space, waiting in some:
                core.outbox.sent(space, waiting)
                core.counts["appended"] += len(waiting)
            if core.outbox.unsent:
                core.work.set()
        core.well("telling")
        return core.breath(began)
