"""Stream: how far a replica has read one log, and which records in it are new. No input or output."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from .entries import Batch, Rejected, State, read_batch
from .log import START, Entry
from .sink import Arrived
from .space import Names, Space

_MOST_WRITERS = 256


def rank(position: str) -> tuple[int, int]:
    """What positions are compared by.

    >>> rank("99-3") < rank("100-0")
    True
    """
    time, _, number = position.partition("-")
    return int(time), int(number or 0)


class Gap(Exception):
    """What was read does not go on from what was read before. Its only argument says how, in a word for metrics."""


class Stream:
    """One log, as far as it was read.

    Args:
        name: of the stream.
        space: that it is of.

    Attributes:
        position: of the last entry that was read.
        mac: that entry's; None: it is not there, or nothing was read.
        founded: the name of the snapshot that all began with.
        torn: that snapshot could not be read.
        begun: the first entry that was read names that snapshot, so that none before it was dropped.
        loaded: what the sink knows is what stands in the log up to the position. Where it is not, all is to be read
            anew.
        why: it is not loaded, in a word for metrics.
        stray: the sink took in what did not come by the log.
        settled: the number of the last of these.
        entries: read since a snapshot was written, as far as is known.
        due: a snapshot is to be written as soon as it can be.
        asked: likewise, for somebody could not read the one that there is.
        standing: the position of the latest snapshot that is known of.
        unusable: the signature of a snapshot that cannot be used.
        later: the snapshot is one of ours and is not understood: a later version's, which knows more.
        compacted_at: when one was written last, as far as is known.
    """

    def __init__(self, name: str, space: Space, now: float) -> None:
        self.name = name
        self.space = space
        self.stray = False
        self.settled = 0
        self.loaded = False
        self.why = "new"
        self.due = False
        self.asked = False
        self.standing = START
        self.unusable: bytes | None = None
        self.later = False
        self.compacted_at = now
        self.begin()

    def begin(self, position: str = START, mac: bytes | None = None, state: State | None = None) -> None:
        """Read on from a position, with what was known there."""
        self.position, self.mac = position, mac
        self.writers: OrderedDict[str, int] = OrderedDict() if state is None else OrderedDict(state.writers)
        self.founded = "" if state is None else state.founded
        self.torn = self.begun = False
        self.entries = 0

    def lose(self, why: str) -> None:
        """All is to be read anew."""
        if self.loaded or self.why == "new":
            self.why = why
        self.loaded = False

    def read(
        self, names: Names, writer: str, entries: Sequence[Entry], *, first: bool = False, torn: bool = False
    ) -> tuple[list[Arrived], list[str]]:
        """Go on by some entries.

        Args:
            names: to verify them with.
            writer: this process.
            entries: that at the position and those after it, oldest first. Without the one at the position nobody knows
                whether others were dropped in between: after a snapshot, or with the end of what a server has lost.
            first: they follow the snapshot that was just read, or are all that there are.
            torn: go on, too, where all began with another snapshot than that one.

        Returns:
            The new records, and why entries were left out.

        Raises:
            Gap: they do not go on from here; nothing was changed.
        """
        if self.mac is not None:
            if not entries or entries[0].position != self.position or entries[0].mac != self.mac:
                raise Gap("gap")
            entries = entries[1:]
        elif entries and not first:
            raise Gap("new")
        read: list[tuple[Entry, Batch | None]] = []
        rejected = []
        for entry in entries:
            if rank(entry.position) <= rank(self.position):
                continue  # it was read before
            try:
                batch = read_batch(names, self.name, entry)[1]
            except Rejected as error:
                rejected.append(str(error))
                read.append((entry, None))
                continue
            if batch.founded and batch.founded != self.founded:
                if not torn:
                    raise Gap("founded")
                self.founded, self.torn = batch.founded, True
            read.append((entry, batch))
        if first and read and read[0][1] is not None:
            self.begun = bool(read[0][1].founded)
        new = [record for entry, batch in read for record in self._take(entry, batch, writer)]
        return new, rejected

    def _take(self, entry: Entry, batch: Batch | None, writer: str) -> list[Arrived]:
        self.position, self.mac = entry.position, entry.mac
        self.entries += 1
        if batch is None:
            return []
        if not batch.records:
            self.asked = self.asked or not batch.founded
            return []
        last = self.writers.get(batch.writer, 0)
        new = []
        for number, data in batch.records:
            if number > last:  # a writer that was not told whether an entry arrived writes it once more
                last = number
                new.append(Arrived(f"{batch.writer}-{number}", bytes(data), batch.writer == writer))
        if not last:  # it only rings the bell
            return []
        self.writers[batch.writer] = last
        self.writers.move_to_end(batch.writer)
        if len(self.writers) > _MOST_WRITERS:
            self.writers.popitem(last=False)
        return new
