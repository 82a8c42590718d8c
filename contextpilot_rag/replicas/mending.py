"""Mending: streams whose beginning could not be read, for their snapshot is damaged or lost.

Part of the thread that reads. Others may know what the snapshot said. So whoever meets such a stream asks, by an entry
without records, and whoever has read the stream from its beginning writes a snapshot. Where nobody does, all begin anew
with what one of those knows who asked.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass

from .core import Core
from .entries import write_batch, write_state
from .log import LogUnavailable
from .stream import Stream

_LOOK_SECONDS = 0.2  # between two looks for the snapshot that was asked for
_PATIENCE_SECONDS = 1.2  # after so long nobody is expected to write it any more


@dataclass(slots=True)
class _Missing:
    """What is known of a stream whose beginning is missing.

    Args:
        writers: the stream's, as long as it was not read anew.
        standing: the position of the snapshot that could not be read; None: there was none.
        until: somebody may write another.
        looked: when that was looked for last.
        asked: the log has the question.
        founded: the name of the snapshot that was written here in the end, as long as the others were not told.
    """

    writers: object
    standing: str | None
    until: float
    looked: float
    asked: bool = False
    founded: str = ""


class Mender:
    """Sees to it that those who follow a stream begin with the same. Not thread-safe.

    Args:
        core: held in common.
    """

    def __init__(self, core: Core) -> None:
        self._core = core
        self._missing: dict[Stream, _Missing] = {}

    def __contains__(self, stream: Stream) -> bool:
        missing = self._missing.get(stream)
        return missing is not None and missing.writers is stream.writers

    def miss(self, stream: Stream, standing: str | None) -> None:
        """A stream was read, but for its beginning.

        Args:
            stream: just now.
            standing: the position of the snapshot that could not be read.
        """
        now = self._core.clock()
        self._missing[stream] = _Missing(stream.writers, standing, now + _PATIENCE_SECONDS, now)

    def ask(self, stream: Stream) -> bool:
        """Ask the others to write a snapshot; whether the log has the question."""
        return self._say(stream, "")

    def mend(self) -> None:
        """Take the next step with each.

        Raises:
            LogUnavailable: the log does not answer.
        """
        for stream, missing in list(self._missing.items()):
            if missing.writers is not stream.writers or not stream.loaded:
                del self._missing[stream]
                continue
            if not missing.asked:
                missing.asked = self._say(stream, "")
            now = self._core.clock()
            if now - missing.looked < _LOOK_SECONDS:
                continue
            missing.looked = now
            self._look(stream, missing, now)

    def _look(self, stream: Stream, missing: _Missing, now: float) -> None:
        core = self._core
        if not missing.founded:
            if core.log.standing(stream.name) != missing.standing:  # here it is
                del self._missing[stream]
                stream.lose("missing")
                with core.lock:
                    core.unread[stream] = None
                return
            if now < missing.until:
                return
            missing.founded = self._found(stream)
        if missing.founded and self._say(stream, missing.founded):
            del self._missing[stream]

    def _found(self, stream: Stream) -> str:
        """Write what is known here; its name, empty if it was not written."""
        core, name = self._core, secrets.token_hex(8)
        parts = list(core.sink.dump(stream.space))
        snapshot = write_state(core.names, stream.space, stream.position, stream.writers, parts, name)
        if not core.log.compact(stream.name, snapshot, stream.unusable):
            return ""
        stream.founded, stream.standing, stream.unusable = name, stream.position, None
        with core.lock:
            core.counts["founded"] += 1
        return name

    def _say(self, stream: Stream, founded: str) -> bool:
        """Append an entry without records; False: not now."""
        core = self._core
        try:
            core.log.append([write_batch(core.names, stream.space, core.writer, [], founded)])
        except LogUnavailable:  # a full one can still be read, and that it is away is found out by those who read
            return False
        return True
