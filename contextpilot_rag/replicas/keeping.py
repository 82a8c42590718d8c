"""Keeping: reading a log from its snapshot on, and writing snapshots. Part of the thread that reads."""

from __future__ import annotations

import logging
import random
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..errors import StateError
from .core import Core
from .entries import Rejected, State, read_batch, read_state, write_batch, write_state
from .log import START, Entry, Snapshot
from .mending import Mender
from .sink import Arrived
from .space import Space
from .stream import Gap, Stream, rank

logger = logging.getLogger("contextpilot_rag")

_LATER = 5  # times as many entries are waited for one that replaces a later version's snapshot: by then nobody uses it
_PAGES = 20  # that are looked through for an entry that is sound
_ATTEMPTS = 3
_SLACK_SECONDS = 2.0  # others may lag so far behind, and need not read all anew for it
_LOOK_SECONDS = 0.5  # between two looks for a snapshot that is to be written


@dataclass(frozen=True, slots=True)
class _Prepared:
    """A snapshot that is written once the others will have read what it has dropped from the log.

    Args:
        at: when.
        writers: the stream's, as long as it was not read anew.
        snapshot: of it.
    """

    at: float
    writers: object
    snapshot: Snapshot


class Unclear(Exception):
    """Nothing in a stream says what it is of: it is empty, or all that stands there was written by strangers."""


class Keeper:
    """Reads spaces anew, and writes their snapshots. Not thread-safe.

    Args:
        core: held in common.
        feed: takes in new records of a stream.

    Attributes:
        asks: a stream without a snapshot may have had one, or others know more of it. Not where the bell told of it:
            then it is a new one.
    """

    def __init__(self, core: Core, feed: Callable[[Stream, Sequence[Arrived]], None]) -> None:
        self._core = core
        self._feed = feed
        self.asks = True
        self._looked = core.clock()
        self._mender = Mender(core)
        self._prepared: dict[Stream, _Prepared] = {}
        self._jitter = random.uniform(0.75, 1.25)  # noqa: S311  so that replicas do not all write at once

    def load(self, name: str, stream: Stream | None = None) -> Stream | None:
        """Read a stream anew, or for the first time, so that the sink knows what stands there.

        Args:
            name: of the stream.
            stream: as far as it is known.

        Returns:
            The stream; None: it does not concern this process.

        Raises:
            Unclear: nothing in it says what it is of.
            LogUnavailable: it is still to be read.
        """
        for attempt in range(_ATTEMPTS):
            try:
                return self._load(name, stream, last=attempt == _ATTEMPTS - 1)
            except Gap as gap:  # somebody else founded it just now
                if stream is None:
                    with self._core.lock:
                        stream = self._core.by_name.get(name)
                if stream is not None:
                    stream.lose(str(gap))
        if stream is not None:
            with self._core.lock:
                self._core.unread[stream] = None
        return stream

    def _load(self, name: str, stream: Stream | None, *, last: bool) -> Stream | None:
        core = self._core
        snapshot = core.log.snapshot(name)
        state, space, bad, later = None, None, None, False
        if snapshot is not None:
            try:
                space, state = read_state(core.names, name, snapshot)
            except Rejected as error:
                later = str(error) == "version"
                bad = None if later else snapshot.mac
                with core.lock:
                    core.rejected[str(error)] += 1
        start = START if state is None or snapshot is None else snapshot.position
        entries, more = core.page(name, start, anchor=True)
        if not last and not (entries and entries[0].position == start):
            standing = core.log.standing(name)
            if standing != (None if snapshot is None else snapshot.position):
                raise Gap("moved")  # entries went into another snapshot meanwhile
        if stream is None:
            space = space or self._space(name, entries, more=more)
            if not core.sink.follows(space):
                return None
            with core.lock:
                stream = core.streams.get(space) or core.add(space, name)
        why = stream.why
        if snapshot is None and why in {"gap", "new"}:
            parts = list(core.sink.dump(stream.space))  # of a new one only where a file has brought something back
            if parts:
                return self._found(stream, parts)
        stream.later = not self._replace(stream, state) or later
        anchored = bool(entries) and entries[0].position == start
        stream.begin(start, entries[0].mac if anchored else None, state)
        if snapshot is not None and bad is None:
            stream.standing = snapshot.position
        stream.unusable = bad
        self._read_on(stream, entries, more=more, first=True, torn=last)
        begun = stream.begun if state is not None else bad is None and not self.asks
        whole = anchored or (start == START and begun)
        if (stream.torn or (stream.entries and not whole)) and not stream.later:
            self._mender.miss(stream, None if snapshot is None else snapshot.position)
        if why != "new":
            with core.lock:
                core.reloads[why] += 1
        return stream

    def _space(self, name: str, entries: Sequence[Entry], *, more: bool) -> Space:
        """What a stream is of, as its first sound entry says."""
        core = self._core
        for _ in range(_PAGES):
            for entry in entries:
                try:
                    return read_batch(core.names, name, entry)[0]
                except Rejected as error:
                    with core.lock:
                        core.rejected[str(error)] += 1
            if not more:
                break
            entries, more = core.page(name, entries[-1].position, anchor=False)
        raise Unclear

    def _replace(self, stream: Stream, state: State | None) -> bool:
        """Let the sink know what a snapshot says, and nothing else; False: it does not understand that."""
        core = self._core
        self._included(stream, 0 if state is None else dict(state.writers).get(core.writer, 0))
        try:
            core.sink.replace(stream.space, [] if state is None else state.parts)
        except StateError as error:
            logger.warning("replica: a snapshot in the log says nothing that can be: %s", error)
            with core.lock:
                core.rejected["state"] += 1
            core.sink.replace(stream.space, [])
            return False
        return True

    def _included(self, stream: Stream, number: int) -> None:
        """Own records up to a number are part of what was read, or written, as a whole."""
        core = self._core
        gone = core.came_back(stream, number)
        if gone:
            core.sink.included(stream.space, [f"{core.writer}-{waiting.number}" for waiting in gone])

    def _read_on(
        self, stream: Stream, entries: Sequence[Entry], *, more: bool, first: bool, torn: bool = False
    ) -> None:
        """Take in all entries from here on, and tell again what is not among them."""
        core = self._core
        while True:
            new, rejected = stream.read(core.names, core.writer, entries, first=first, torn=torn)
            first = False
            with core.lock:
                core.rejected.update(rejected)
            stream.loaded, stream.stray, stream.settled = True, False, 0
            self._feed(stream, new)
            if not more or not stream.loaded:
                break
            entries, more = core.page(stream.name, stream.position, anchor=True)
        if stream.due or stream.entries:
            core.active[stream.name] = stream
        with core.lock:
            core.outbox.again(stream.space)
            if core.outbox.unsent:
                core.work.set()

    def _found(self, stream: Stream, parts: Sequence[bytes]) -> Stream:
        """Give a log that was lost what is known here, so that all begin with the same.

        Raises:
            Gap: somebody else was faster: theirs is to be read.
        """
        core = self._core
        name = secrets.token_hex(8)
        writers = dict(stream.writers)
        if stream.settled:  # what was taken in here without the log is part of it
            writers[core.writer] = max(writers.get(core.writer, 0), stream.settled)
        snapshot = write_state(core.names, stream.space, START, writers, parts, name)
        first = write_batch(core.names, stream.space, core.writer, [], name)
        if not core.log.found(stream.name, snapshot, first):
            raise Gap("founded")
        logger.info("replica: the log had lost a namespace; it goes on from what is known here")
        state = read_state(core.names, stream.name, snapshot)[1]
        stream.begin(START, None, state)
        with core.lock:
            core.counts["founded"] += 1
        self._included(stream, writers.get(core.writer, 0))
        entries, more = core.page(stream.name, START, anchor=True)
        self._read_on(stream, entries, more=more, first=True)
        return stream

    def compact(self) -> None:
        """Write a snapshot, if it is time for one.

        Raises:
            LogUnavailable: it was not written.
        """
        core = self._core
        now = core.clock()
        self._mender.mend()
        self._write_prepared(now)
        if now - self._looked < _LOOK_SECONDS and not any(
            stream.due or stream.asked for stream in core.active.values()
        ):
            return
        self._looked = now
        longest, most = core.pace.compact_seconds * self._jitter, core.pace.compact_entries * self._jitter
        for stream in list(core.active.values()):
            with core.lock:
                forgets = core.outbox.forgets(stream.space)  # what is to be forgotten would go into it
                gone = core.by_name.get(stream.name) is not stream  # there were too many
            if gone:
                del core.active[stream.name]
                continue
            if not stream.loaded or stream.stray or forgets or stream in self._mender:
                continue
            if not core.sink.follows(stream.space):  # any more: what the sink knows of it is nothing
                core.drop(stream)
                continue
            if stream.later and stream.entries < _LATER * most:
                if stream.due and self._mender.ask(stream):  # what was forgotten leaves the server by those who can
                    stream.due = False
                continue
            old = stream.entries > 0 and now - stream.compacted_at > longest
            if stream.due or stream.asked or stream.entries >= most or old:
                self._compact(stream, now)
                return

    def _compact(self, stream: Stream, now: float) -> None:
        core = self._core
        due = stream.due or stream.asked
        standing = core.log.standing(stream.name)
        done = standing is not None and rank(standing) > rank(stream.standing)
        if stream.unusable is None and done and standing is not None:
            stream.standing = standing  # another replica wrote one
            if not due or rank(standing) >= rank(stream.position):
                self._rest(stream, now)
                return
        parts = list(core.sink.dump(stream.space))
        if not parts and not due:  # there is no room for it here; others may know it still
            self._rest(stream, now)
            return
        snapshot = write_state(core.names, stream.space, stream.position, stream.writers, parts, stream.founded)
        if due:
            self._write(stream, snapshot)
        else:
            self._prepared[stream] = _Prepared(now + _SLACK_SECONDS, stream.writers, snapshot)
        self._rest(stream, now)

    def _write_prepared(self, now: float) -> None:
        core = self._core
        for stream, prepared in list(self._prepared.items()):
            if stream.writers is not prepared.writers or not stream.loaded:  # it was read anew
                del self._prepared[stream]
            elif prepared.at <= now:
                standing = core.log.standing(stream.name)
                if standing is None or rank(standing) < rank(prepared.snapshot.position):
                    self._write(stream, prepared.snapshot)
                del self._prepared[stream]

    def _write(self, stream: Stream, snapshot: Snapshot) -> None:
        core = self._core
        if core.log.compact(stream.name, snapshot, stream.unusable):
            stream.standing, stream.later = snapshot.position, False
            with core.lock:
                core.counts["compacted"] += 1
        stream.unusable = None

    def _rest(self, stream: Stream, now: float) -> None:
        stream.due = stream.asked = False
        stream.entries, stream.compacted_at = 0, now
        self._core.active.pop(stream.name, None)
