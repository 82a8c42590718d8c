"""Core: what a replica's two threads and those who tell it something have in common."""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable

import msgspec
from msgspec import Struct

from .log import FEW, Entry, Log, LogTooLarge
from .outbox import Outbox, Waiting
from .pace import Pace
from .sink import Sink
from .space import Names, Space
from .status import ReplicaStatus
from .stream import Stream, rank

logger = logging.getLogger("contextpilot_rag")

MOST = 256  # entries that are read of a stream in one go


class Core:
    """Held in common. Its lock is never held while the log or the sink is asked.

    Args:
        log: the server.
        names: of spaces.
        sink: what is fed.
        pace: how to work.
        clock: seconds that never run backwards.
    """

    def __init__(
        self, log: Log, names: Names, sink: Sink, pace: Pace, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.log, self.names, self.sink, self.pace, self.clock = log, names, sink, pace, clock
        self.closing = False
        self.counts: Counter[str] = Counter()
        self.rejected: Counter[str] = Counter()
        self.reloads: Counter[str] = Counter()
        self.behind: float | None = None
        self.streams: OrderedDict[Space, Stream] = OrderedDict()
        self.by_name: dict[str, Stream] = {}
        self.unread: dict[Stream, None] = {}  # to be read anew, or for the first time
        self._most = MOST  # that are asked for next, where they may be large
        self.active: dict[str, Stream] = {}  # read since their snapshot; for the thread that reads alone
        self.renew()

    def renew(self) -> None:
        """As another writer, who has told nothing and read nothing: also in a forked child."""
        self.writer = secrets.token_hex(8)
        self.lock = threading.Lock()
        self.news = threading.Condition(self.lock)  # of what was read
        self.work = threading.Event()  # for the thread that tells
        self._ended = threading.Event()
        self.outbox = Outbox(self.pace.most_pending)
        self._ailing: dict[str, str] = {}  # which of the two threads has lost the log, and why
        self.heard: str | None = None  # the bell's position up to which all was read; None: the log is not followed
        self.read_once = False
        self.look_again = False
        for stream in self.streams.values():
            stream.lose("fork")
        self.unread = dict.fromkeys(self.streams.values())

    def page(self, name: str, position: str, *, anchor: bool) -> tuple[list[Entry], bool]:
        """Entries of a stream from a position on, oldest first, and whether there may be more.

        Args:
            name: of the stream.
            position: of the last one that was read.
            anchor: that one, too.

        Raises:
            LogUnavailable: they cannot be read.
        """
        while True:
            most = self._most
            try:
                entries = self.log.read({name: (position, anchor)}, most).get(name, [])
            except LogTooLarge:
                if most <= FEW:
                    raise
                self._most = FEW if most == MOST else max(FEW, most // 4)
            else:
                self._most = min(MOST, most * 2)
                return entries, len(entries) >= most

    def told(self, space: Space, record: Struct) -> str:
        """Put a record into the outbox; its name."""
        return self.told_data(space, _encoder.encode(record), forgets=getattr(record, "forgets", False))

    def told_data(self, space: Space, data: bytes, *, forgets: bool) -> str:
        """Put a record into the outbox; its name."""
        with self.lock:
            stream = self.streams.get(space)
            if stream is None:
                stream = self.add(space, self.names.stream(space))
            waiting = self.outbox.add(space, data, self.clock(), forgets=forgets)
            name = f"{self.writer}-{waiting.number}"
        if not self.work.is_set():
            self.work.set()
        return name

    def add(self, space: Space, name: str) -> Stream:
        """Follow a space from now on. The lock is held."""
        stream = Stream(name, space, self.clock())
        self.streams[space] = self.by_name[name] = stream
        self.unread[stream] = None
        for _ in range(min(_LOOKS, len(self.streams) - self.pace.most_spaces)):
            first = next(iter(self.streams.values()))
            if first is stream or self.outbox.of(first.space):  # what it was told is still to be told
                self.streams.move_to_end(first.space)
            else:
                del self.streams[first.space], self.by_name[first.name]
                self.unread.pop(first, None)
        return stream

    def drop(self, stream: Stream) -> None:
        """Follow a space no longer; if it concerns this process once more, it is a new one."""
        with self.lock:
            self.streams.pop(stream.space, None)
            self.by_name.pop(stream.name, None)
            self.unread.pop(stream, None)
            self.outbox.came_back(stream.space, 2**62)
        self.active.pop(stream.name, None)
        stream.loaded = False

    def came_back(self, stream: Stream, number: int) -> list[Waiting]:
        """Take a stream's own records up to a number out of the outbox: the log has brought them."""
        with self.lock:
            gone = self.outbox.came_back(stream.space, number)
            if gone:
                if any(waiting.forgets for waiting in gone):
                    stream.due = True  # so that what was forgotten leaves the server, too
                self.behind = max(0.0, self.clock() - gone[-1].at)
        return gone

    def ails(self, part: str, why: str) -> None:
        """One of the threads has lost the log."""
        with self.lock:
            alone = bool(self._ailing)
            self._ailing[part] = why
            self.heard = None if part == "reading" else self.heard
            self.counts["outages"] += not alone
            self.news.notify_all()
        if not alone:
            logger.warning(
                "replica: the log cannot be used (%s): going on alone; the other replicas are heard again once it can",
                why,
            )

    def well(self, part: str) -> None:
        """One of the threads has the log."""
        with self.lock:
            was = self._ailing.pop(part, None)
            alone = bool(self._ailing)
        if was is not None and not alone:
            logger.info("replica: the log can be used again")

    @property
    def ailing(self) -> bool:
        """Whether one of the threads has lost the log."""
        return bool(self._ailing)

    def rest(self, seconds: float) -> None:
        """Rest for so long, or until the end."""
        if seconds > 0:
            self._ended.wait(seconds)

    def breath(self, began: float) -> float:
        """How long to rest after work that began then: longer after more, so that more is done together."""
        return min(self.pace.gather_seconds, _RESTS * max(0.0, self.clock() - began))

    def close(self) -> None:
        """End."""
        with self.lock:
            self.closing = True
            self.news.notify_all()
        self._ended.set()
        self.work.set()

    def look(self) -> None:
        """Look at all streams at the next chance, also at those that did not concern this process."""
        with self.lock:
            self.look_again, self.read_once = True, False

    def read_up_to(self, position: str) -> None:
        """All that the bell told up to a position was read."""
        with self.lock:
            self.heard, self.read_once = position, not self.look_again
            self.news.notify_all()

    def wait_for(self, position: str, seconds: float) -> bool:
        """Wait until that was read, or the log is lost, or the time is up; whether it was read."""
        wanted = rank(position)

        def reached() -> bool:
            return self.heard is not None and rank(self.heard) >= wanted

        with self.news:
            self.news.wait_for(lambda: self.closing or self.heard is None or reached(), seconds)
            return reached()

    def status(self) -> ReplicaStatus:
        """How it stands."""
        with self.lock:
            why = "; ".join(dict.fromkeys(self._ailing.values()))
            oldest = self.outbox.oldest
            return ReplicaStatus(
                joined=not self._ailing and self.heard is not None,
                why=why,
                spaces=len(self.streams),
                pending=self.outbox.size,
                pending_seconds=0.0 if oldest is None else max(0.0, self.clock() - oldest),
                behind_seconds=self.behind,
                rejected=dict(self.rejected),
                reloads=dict(self.reloads),
                **{name: self.counts[name] for name in _COUNTED},
            )


_LOOKS = 16  # for streams that need not be followed any more, each time that there are too many
_COUNTED = ("appended", "applied", "founded", "compacted", "outages", "dropped")
_RESTS = 4  # times as long as the work took: so it takes a fifth of a core at most
_encoder = msgspec.msgpack.Encoder()
