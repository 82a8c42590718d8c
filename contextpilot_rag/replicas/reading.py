"""Reading: the thread that takes in what the log brings, and what waits for the log too long."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from typing import Any

from .core import MOST, Core
from .keeping import Keeper, Unclear
from .log import Entry, LogTooLarge, LogUnavailable
from .outbox import Waiting
from .sink import Arrived
from .space import Space
from .stream import Gap, Stream

logger = logging.getLogger("contextpilot_rag")

_TOGETHER = 64  # streams that are read in one go
_LATE_SECONDS = 1.0  # own records that are not back after so long are looked for, whether or not the bell rang
_UNCLEAR_SECONDS = 0.5  # between two looks at a stream in which only strangers have written
_RESTS = 4  # times as long as looking at such streams takes
_LOOK_SECONDS = 0.1  # at streams that are not known, before those are read again that are
_MOST_IGNORED = 100_000


class Reader:
    """Follows the bell, and reads what it tells of. The only one that feeds the sink. Not thread-safe."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._keeper = Keeper(core, self._feed)
        self._bell: str | None = None
        self._began = core.clock()  # to work, and not to wait
        self._looked = core.clock()
        self._ignored: dict[str, None] = {}  # streams that are not ours to follow
        self._unclear: dict[str, float] = {}  # when those were looked at that hold nothing of ours yet
        self._look_from = float("-inf")  # when it may be looked for more of these
        self._behind = False  # some of these are to be looked at now
        self._unknown: dict[str, float] = {}  # when those are to be looked at of which the bell told

    def step(self, seconds: float) -> float:
        """Read what there is, or wait for it, at most so long; how long to rest until the next step."""
        core = self._core
        self._began = core.clock()
        try:
            self._read(seconds)
        except LogUnavailable as error:
            self._bell = None
            core.ails("reading", str(error))
            self._settle()
            rest = core.pace.retry_seconds
        else:
            core.well("reading")
            self._give_up()
            rest = core.breath(self._began)
        return rest

    def _read(self, seconds: float) -> None:
        core = self._core
        if self._behind:
            self._behind = False
            seconds = min(seconds, max(0.0, self._look_from - core.clock()))
        if core.look_again:
            core.look_again = False
            self._ignored.clear()
            self._unclear.clear()
            self._bell = None
        if self._bell is None:
            bell = core.log.now()
            self._follow(core.log.streams(core.pace.most_spaces), everything=True)
        else:
            news = core.log.listen(self._bell, seconds)
            self._began = core.clock()
            bell = news.position
            if news.streams is None:
                self._follow(core.log.streams(core.pace.most_spaces), everything=True)
            else:
                self._follow(news.streams, everything=False)
        self._bell = bell
        if not self._behind:
            core.read_up_to(bell)
        self._keeper.compact()

    def _follow(self, names: Collection[str], *, everything: bool) -> None:
        """Read these streams, and those that are to be read anew; or all that are followed."""
        core = self._core
        self._keeper.asks = everything
        with core.lock:
            late = self._late()
            unread = list(core.unread)
            core.unread.clear()
            if everything:
                wanted = list(core.by_name.values())
            else:
                wanted = [core.by_name[name] for name in names if name in core.by_name]
                wanted += [core.streams[space] for space in late if space in core.streams]
            unknown = [name for name in names if name not in core.by_name and name not in self._ignored]
        for name in unknown:
            if name in self._unknown or len(self._unknown) < _MOST_IGNORED:
                self._unknown[name] = self._unclear.get(name, 0.0)
        wanted = self._followed(wanted)
        unread = self._followed(unread + [stream for stream in wanted if not stream.loaded])
        try:
            self._go_on([stream for stream in wanted if stream.loaded])
            for stream in unread:
                if not stream.loaded:
                    self._keeper.load(stream.name, stream)
            self._tell_again(late)
        except BaseException:
            with core.lock:
                core.unread.update(dict.fromkeys(unread))
            raise
        self._look_at_unknown()

    def _followed(self, streams: Sequence[Stream]) -> list[Stream]:
        """Each of these once, but for those that do not concern this process any more."""
        core, found = self._core, []
        for stream in dict.fromkeys(streams):
            if core.sink.follows(stream.space):
                found.append(stream)
            else:
                core.drop(stream)
                self._ignored[stream.name] = None
        return found

    def _look_at_unknown(self) -> None:
        """Find out what the streams are of that are not known: some of them, for anybody may ring for any number."""
        core, now, wasted = self._core, self._core.clock(), 0.0
        due = [name for name, time in self._unknown.items() if time <= now]
        for number, name in enumerate(due):
            before = core.clock()
            if core.closing or before < self._look_from or (number and before - now > _LOOK_SECONDS):
                self._behind = True
                break
            noted: dict[str, Any] = {}
            try:
                if name not in core.by_name and self._keeper.load(name) is None:
                    self._ignored[name], noted = None, self._ignored
            except Unclear:
                self._unclear[name], noted = now + _UNCLEAR_SECONDS, self._unclear
                wasted += core.clock() - before
            del self._unknown[name]
            if len(noted) > _MOST_IGNORED:
                del noted[next(iter(noted))]
        if wasted:
            self._look_from = core.clock() + wasted * _RESTS

    def _late(self) -> frozenset[Space]:
        """Spaces whose own records should be back. The lock is held."""
        core = self._core
        now = core.clock()
        if now - self._looked < _LATE_SECONDS:
            return frozenset()
        self._looked = now
        return frozenset(space for space, _ in core.outbox.older(now - _LATE_SECONDS))

    def _tell_again(self, late: Collection[Space]) -> None:
        """What the log took and does not bring, though all was read, it has lost."""
        core = self._core
        with core.lock:
            for space in late:
                stream = core.streams.get(space)
                if stream is not None and stream.loaded:
                    core.outbox.again(space)
            if core.outbox.unsent:
                core.work.set()

    def _go_on(self, streams: Sequence[Stream]) -> None:
        """Read what comes next in these."""
        left, together = list(streams), _TOGETHER
        while left:
            some, left = left[:together], left[together:]
            try:
                pages = self._pages(some)
            except LogTooLarge:
                if together == 1:
                    raise
                left, together = some + left, 1
                continue
            for stream in some:
                entries, more = pages.get(stream.name, ([], False))
                if self._take(stream, entries) and more:
                    left.append(stream)

    def _pages(self, some: Sequence[Stream]) -> dict[str, tuple[list[Entry], bool]]:
        """What comes next in each, and whether there may be more."""
        core = self._core
        if len(some) == 1:
            return {some[0].name: core.page(some[0].name, some[0].position, anchor=True)}
        found = core.log.read({stream.name: (stream.position, True) for stream in some}, MOST)
        return {name: (entries, len(entries) >= MOST) for name, entries in found.items()}

    def _take(self, stream: Stream, entries: Sequence[Entry]) -> bool:
        """Take in entries of a stream; False: it was read anew instead."""
        core = self._core
        try:
            new, rejected = stream.read(core.names, core.writer, entries)
        except Gap as gap:
            stream.lose(str(gap))
            self._keeper.load(stream.name, stream)
            return False
        with core.lock:
            core.rejected.update(rejected)
        self._feed(stream, new)
        return True

    def _feed(self, stream: Stream, new: Sequence[Arrived]) -> None:
        """Let the sink have records of a stream, and take own ones out of the outbox."""
        core = self._core
        if new or stream.asked:
            core.active[stream.name] = stream
        if new:
            bad = self._apply(stream.space, new)
            with core.lock:
                core.counts["applied"] += len(new) - bad
                if bad:
                    core.rejected["record"] += bad
        gone = core.came_back(stream, stream.writers.get(core.writer, 0))
        brought = {record.name for record in new if record.own} if gone else set()
        lost = [waiting for waiting in gone if f"{core.writer}-{waiting.number}" not in brought]
        if lost:  # by the log, which had taken them: it brings what was told later
            core.sink.included(stream.space, [f"{core.writer}-{waiting.number}" for waiting in lost])
            for waiting in lost:
                if waiting.forgets:
                    core.told_data(stream.space, waiting.data, forgets=True)

    def _apply(self, space: Space, records: Sequence[Arrived]) -> int:
        """How many could not be taken in. A fault of ours must not end the thread, nor be met for ever."""
        try:
            return self._core.sink.apply(space, records)
        except Exception:
            logger.exception("replica: what the log brought could not be taken in; it is left out")
            self._core.sink.included(space, [record.name for record in records if record.own])
            return len(records)

    def _settle(self) -> None:
        """Without a log: take in what has waited for it long enough."""
        core = self._core
        with core.lock:
            overdue = core.outbox.overdue(core.clock() - core.pace.alone_seconds)
            given_up: list[tuple[Space, list[Waiting]]] = []
            left_out: list[tuple[Space, list[Waiting]]] = []
            for space, waiting in core.outbox.given_up:
                forgets = waiting.forgets or core.outbox.forgets(space)
                (left_out if forgets else given_up).append((space, [waiting]))
            core.outbox.given_up.clear()
            core.counts["dropped"] += len(given_up) + len(left_out)
        for space, some in given_up + overdue:
            self._take_in(space, some)
        for space, some in given_up + left_out:  # which the log will never bring
            core.sink.included(space, [f"{core.writer}-{waiting.number}" for waiting in some])

    def _take_in(self, space: Space, some: Sequence[Waiting]) -> None:
        core = self._core
        with core.lock:
            stream = core.streams.get(space)
        if stream is None:
            return
        if not stream.stray:
            stream.stray = True
            stream.lose("stray")
            core.sink.stray(space)
        self._apply(space, [Arrived(f"{core.writer}-{waiting.number}", waiting.data, True) for waiting in some])
        for waiting in some:
            waiting.settled = True
            stream.settled = max(stream.settled, waiting.number)

    def _give_up(self) -> None:
        """With a log that can be read and not written: what will never be told is not waited for any longer."""
        core = self._core
        with core.lock:
            given_up = list(core.outbox.given_up)
            core.outbox.given_up.clear()
            core.counts["dropped"] += len(given_up)
        for space, waiting in given_up:
            core.sink.included(space, [f"{core.writer}-{waiting.number}"])
