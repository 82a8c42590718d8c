"""A log in memory, which does what the server does, and breaks when a test says so."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from contextpilot_rag.errors import LogUnavailable
from contextpilot_rag.replicas.log import START, Entry, News, Snapshot, Written

T = TypeVar("T")
MOST_RINGS = 10_000


def number(position: str) -> tuple[int, int]:
    """A position, so that it can be compared."""
    first, second = position.split("-")
    return int(first), int(second)


class MemoryLog:
    """See `Log`. All faults may be set at any moment, by any thread.

    Args:
        most_entries: of a stream.

    Attributes:
        away: nothing is done, and every call fails.
        full: what would write fails, and is not done.
        slow: every call takes so many seconds, and those beyond the time-out fail after it; appends are done then.
        timeout: seconds; see `slow`.
        asked: calls so far, by name.
    """

    def __init__(self, most_entries: int = 100_000) -> None:
        self.away = False
        self.full = False
        self.slow = 0.0
        self.timeout = 1.0
        self.asked: dict[str, int] = {}
        self._most = most_entries
        self._changed = threading.Condition(threading.RLock())
        self._closed = False
        self._holding = False
        self._held: list[list[Written]] = []
        self._clock = 5_000_000
        self._streams: dict[str, list[Entry]] = {}
        self._snapshots: dict[str, Snapshot] = {}
        self._rings: list[tuple[str, list[str]]] = []
        self._used: dict[str, None] = {}

    def lose_everything(self, *, back: bool = False) -> None:
        """The server starts again without its data.

        Args:
            back: its clock is behind, so that new positions are before the old ones.
        """
        with self._changed:
            for lost in (self._streams, self._snapshots, self._rings, self._used):
                lost.clear()
            self._clock += -10_000 if back else 10
            self._changed.notify_all()

    def lose_last(self, entries: int) -> None:
        """A failover to a copy that lacks the newest entries, of all streams together, and what the bell rang since."""
        with self._changed:
            newest = sorted(
                ((number(entry.position), name) for name, found in self._streams.items() for entry in found),
                reverse=True,
            )[:entries]
            for _, name in newest:
                self._streams[name].pop()
            if newest:
                oldest = newest[-1][0]
                self._rings = [ring for ring in self._rings if number(ring[0]) < oldest]
            self._clock += 10
            self._changed.notify_all()

    def hold_appends(self) -> None:
        """From now on appends fail, and are done when they are released: whoever appended doesn't learn of it."""
        with self._changed:
            self._holding = True

    @property
    def held(self) -> int:
        """Appends that are held."""
        with self._changed:
            return len(self._held)

    def release(self, order: Sequence[int] | None = None, *, go_on: bool = True) -> None:
        """Do what was held.

        Args:
            order: which, by number, and in which order; one may be there twice, or not at all (it is lost). None: all.
            go_on: appends that come later are no longer held.
        """
        with self._changed:
            held, self._held = self._held, []
            self._holding = not go_on
            for one in range(len(held)) if order is None else order:
                self._append(held[one])

    def poison(self, stream: str, entry: Entry) -> None:
        """Somebody else writes into a stream; its position is the next one, whatever is given."""
        with self._changed:
            self._add(stream, entry.mac, entry.data)
            self._ring([stream])

    def replace_snapshot(self, stream: str, snapshot: Snapshot | None) -> None:
        """Somebody else writes, or takes away, a snapshot."""
        with self._changed:
            if snapshot is None:
                self._snapshots.pop(stream, None)
            else:
                self._snapshots[stream] = snapshot

    def entries(self, stream: str) -> list[Entry]:
        """All that there are, whether or not the log is away."""
        with self._changed:
            return list(self._streams.get(stream, []))

    def append(self, entries: Sequence[Written]) -> None:
        """See `Log.append`."""
        with self._changed:
            if self._holding and entries:
                self._check("append", write=True)
                self._held.append(list(entries))
                raise LogUnavailable("the log does not answer in time")
        self._call("append", lambda: self._append(entries), write=True)

    def now(self) -> str:
        """See `Log.now`."""

        def now() -> str:
            if not self._rings:
                self._ring([])
            return self._rings[-1][0]

        return self._call("now", now)

    def listen(self, position: str, seconds: float) -> News:
        """See `Log.listen`."""
        ends = time.monotonic() + seconds
        self._call("listen", lambda: None)
        with self._changed:
            while True:
                self._check()
                if all(ring[0] != position for ring in self._rings):
                    if not self._rings:
                        self._ring([])
                    return News(self._rings[-1][0], None)
                rung = [ring for ring in self._rings if number(ring[0]) > number(position)]
                left = ends - time.monotonic()
                if rung or left <= 0:
                    names = frozenset(name for _, streams in rung for name in streams)
                    return News(rung[-1][0] if rung else position, names)
                self._changed.wait(min(left, 0.05))

    def read(self, wanted: Mapping[str, tuple[str, bool]], most: int) -> dict[str, list[Entry]]:
        """See `Log.read`."""

        def read() -> dict[str, list[Entry]]:
            found = {}
            for stream, (position, inclusive) in wanted.items():
                begin = number(position)
                after = [
                    entry
                    for entry in self._streams.get(stream, [])
                    if number(entry.position) > begin or (inclusive and number(entry.position) == begin)
                ]
                found[stream] = after[:most]
            return found

        return self._call("read", read)

    def snapshot(self, stream: str) -> Snapshot | None:
        """See `Log.snapshot`."""
        return self._call("snapshot", lambda: self._snapshots.get(stream))

    def found(self, stream: str, snapshot: Snapshot, first: Written) -> bool:
        """See `Log.found`."""

        def found() -> bool:
            if stream in self._snapshots:
                return False
            self._snapshots[stream] = snapshot
            self._append([replace(first, stream=stream)])
            return True

        return self._call("found", found, write=True)

    def standing(self, stream: str) -> str | None:
        """See `Log.standing`."""

        def standing() -> str | None:
            found = self._snapshots.get(stream)
            return None if found is None else found.position

        return self._call("standing", standing)

    def compact(self, stream: str, snapshot: Snapshot, instead_of: bytes | None = None) -> bool:
        """See `Log.compact`."""

        def compact() -> bool:
            old, entries = self._snapshots.get(stream), self._streams.get(stream, [])
            unusable = old is not None and old.mac == instead_of
            if old is not None and not unusable and number(old.position) >= number(snapshot.position):
                return False
            if snapshot.position != START:
                if all(entry.position != snapshot.position for entry in entries):
                    return False
                kept = [entry for entry in entries if number(entry.position) >= number(snapshot.position)]
                self._streams[stream] = kept
            self._snapshots[stream] = snapshot
            return True

        return self._call("compact", compact, write=True)

    def streams(self, most: int) -> list[str]:
        """See `Log.streams`."""
        return self._call("streams", lambda: list(reversed(self._used))[: max(0, most)])

    def close(self) -> None:
        """See `Log.close`."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _next(self) -> str:
        self._clock += 1
        return f"{self._clock}-0"

    def _append(self, entries: Sequence[Written]) -> None:
        for entry in entries:
            self._add(entry.stream, entry.mac, entry.data)
        if entries:
            self._ring(list(dict.fromkeys(entry.stream for entry in entries)))

    def _add(self, stream: str, mac: bytes, data: bytes) -> None:
        entries = self._streams.setdefault(stream, [])
        entries.append(Entry(self._next(), mac, data))
        del entries[: -self._most]
        self._used.pop(stream, None)
        self._used[stream] = None

    def _ring(self, streams: list[str]) -> None:
        self._rings.append((self._next(), streams))
        del self._rings[:-MOST_RINGS]
        self._changed.notify_all()

    def _call(self, name: str, do: Callable[[], T], *, write: bool = False) -> T:
        with self._changed:
            self._check(name, write=write)
            slow = self.slow
            if not slow:
                return do()
        time.sleep(min(slow, self.timeout))
        with self._changed:
            self._check(write=write)
            done = do()
        if slow > self.timeout:
            raise LogUnavailable("the log does not answer in time")
        return done

    def _check(self, name: str = "", *, write: bool = False) -> None:
        if name:
            self.asked[name] = self.asked.get(name, 0) + 1
        if self._closed:
            raise LogUnavailable("the log was closed here")
        if self.away:
            raise LogUnavailable("the log cannot be reached")
        if self.full and write:
            raise LogUnavailable("the log is full")
