"""RedisLog: the log in Valkey (any version) or Redis (6.2 and later), one server or a cluster.

For a prefix P and a stream S there are these keys, and no others:

- ``P:{S}:log``: a stream of entries with the fields m (mac) and d (data);
- ``P:{S}:snap``: a hash with p (position), m and d;
- ``P:{bell}:rung``: a stream, one entry for each append, with the field s: names of streams, separated by blanks;
- ``P:{bell}:used``: a sorted set of the streams' names by when they were appended to last.

All go away some days after they were used last. A key of another kind stands there because somebody put it there: it
counts as empty, and is dropped by whoever writes there next.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import LogUnavailable, MissingPackage
from . import scripts
from .address import LogAddress, parse_address
from .asking import WRONG_KIND, Ask, Command
from .budget import Budget
from .log import FEW, START, Entry, LogTooLarge, News, Snapshot, Written
from .log_tls import client_context

MOST_ENTRIES = 100_000
KEEP_SECONDS = 7 * 86_400.0
ACL_COMMANDS = (
    *("+xadd", "+xrange", "+xrevrange", "+xread", "+xtrim", "+hset", "+hmget", "+del", "+type", "+pexpire"),
    *("+zadd", "+zrevrange", "+zremrangebyrank", "+zremrangebyscore", "+eval", "+multi", "+exec", "+select"),
    *("+cluster|slots", "+asking"),
)
"""What a replica's user has to be allowed, on the keys ``~PREFIX:*`` and no channels; the last two for a cluster."""
LARGEST_SNAPSHOT = 128 * 2**20  # bytes; a larger one is neither written nor read
_LARGEST_ENTRY = 32 * 2**20
_MOST_LARGE = LARGEST_SNAPSHOT + 2**20  # for one call; so many bytes are a few entries that are not too large, too
_LONG = 8  # times the time-out
_LONGEST_MAC = 64
_LONGEST_RING = 2**21
_MOST_RINGS = 10_000  # that the bell remembers
_RINGS_AT_ONCE = 1_000
_MOST_STREAMS = 100_000  # whose names are remembered
_USED_SECONDS = 1.0  # how exact it is when a stream was used last
_KEPT_SECONDS = 60.0  # how often its end is put off
_NAME = re.compile(rb"[A-Za-z0-9_-]{1,64}")
_POSITION = re.compile(rb"(0|[1-9][0-9]{0,19})-(0|[1-9][0-9]{0,19})")
_HIGHEST = 2**64 - 1  # in a position


def open_log(
    url: str | LogAddress,
    *,
    timeout: float = 1.0,
    most_entries: int = MOST_ENTRIES,
    keep_seconds: float = KEEP_SECONDS,
) -> RedisLog:
    """The log at an address. It is not asked yet, and need not be there.

    Args:
        url: as `parse_address` takes it.
        timeout: seconds that a call may take.
        most_entries: of a stream, about; older ones are dropped.
        keep_seconds: a stream that nobody appends to goes away after so long.

    Raises:
        SettingsError: the address is none, or its TLS files cannot be used.
        MissingPackage: redis is not installed.
    """
    address = url if isinstance(url, LogAddress) else parse_address(url)
    return RedisLog(address, timeout=timeout, most_entries=most_entries, keep_seconds=keep_seconds)


class RedisLog:
    """See `Log`, and `open_log` for the arguments. `listen` may take as long as asked for, and the time-out more."""

    def __init__(
        self,
        address: LogAddress,
        *,
        timeout: float = 1.0,
        most_entries: int = MOST_ENTRIES,
        keep_seconds: float = KEEP_SECONDS,
    ) -> None:
        context = None if address.tls is None else client_context(address.tls)
        try:
            from .connecting import Server
        except ModuleNotFoundError as error:
            raise MissingPackage.of(error, "replicas need", "contextpilot-rag[replicas]") from error
        self._address = address
        self._server = Server(address, context)
        self._timeout = timeout
        self._most = most_entries
        self._keep = max(1, round(keep_seconds * 1000))
        self._heard: tuple[str, int] | None = None  # a position that was there, and the connections opened until then
        self._put_off: dict[str, float] = {}
        self._used_at: dict[str, float] = {}
        self._rung = f"{address.prefix}:{{bell}}:rung"
        self._used = f"{address.prefix}:{{bell}}:used"

    def __repr__(self) -> str:
        return f"RedisLog({self._address})"

    def append(self, entries: Sequence[Written]) -> None:
        """See `Log.append`."""
        if not entries:
            return
        deadline = Budget(self._timeout)
        streams = list(dict.fromkeys(entry.stream for entry in entries))
        now = time.monotonic()
        put_off = [name for name in streams if now - self._put_off.get(name, -_KEPT_SECONDS) >= _KEPT_SECONDS]
        used = [name for name in streams if now - self._used_at.get(name, -_USED_SECONDS) >= _USED_SECONDS]
        asks = [self._add(entry) for entry in entries]
        asks += [_ask("PEXPIRE", key, self._keep) for name in put_off for key in (self._log(name), self._snap(name))]
        ring = self._ring(streams, used, put_off=bool(put_off))
        if self._server.spread(deadline):  # the bell is elsewhere, and rings for what is there
            self._write(asks, deadline)
            self._write(ring, deadline)
        else:
            self._write([*asks, *ring], deadline, whole=True)
        _note(self._put_off, put_off, now)
        _note(self._used_at, used, now)

    def now(self) -> str:
        """See `Log.now`."""
        return self._now(Budget(self._timeout))

    def listen(self, position: str, seconds: float) -> News:
        """See `Log.listen`."""
        deadline = Budget(self._timeout + max(0.0, seconds))
        there = _ask("XRANGE", self._rung, position, position)
        if self._heard != (position, self._server.opened) and not _listed(self._one(there, deadline)):
            return News(self._now(deadline), None)  # after a connection was lost, the server may be another
        block = ("BLOCK", max(1, int(seconds * 1000))) if seconds > 0 else ()
        wait = ("XREAD", "COUNT", _RINGS_AT_ONCE, *block, "STREAMS", self._rung, position)
        # The position is looked for after what was rung since: as long as it is there, nothing after it is gone.
        try:
            rung, still = self._server.ask([(self._rung, wait), there], deadline)
        except LogTooLarge:
            rung, still = None, None
        if rung is WRONG_KIND or not _listed(still):
            return News(self._now(Budget(self._timeout)), None)
        rings = rung[0][1] if rung else []
        if rings:
            position = rings[-1][0].decode()
        self._heard = (position, self._server.opened)
        names = {name for _, fields in rings if _rings(fields) for name in fields[1].split(b" ")}
        return News(position, frozenset(name.decode() for name in names if _NAME.fullmatch(name)))

    def read(self, wanted: Mapping[str, tuple[str, bool]], most: int) -> dict[str, list[Entry]]:
        """See `Log.read`. An entry with other fields than ours has neither mac nor data."""
        asks = [
            _ask("XRANGE", self._log(stream), position if inclusive else f"({position}", "+", "COUNT", most)
            for stream, (position, inclusive) in wanted.items()
        ]
        try:
            answers = self._server.ask(asks, Budget(self._timeout)) if asks else []
        except LogTooLarge:
            if len(asks) > 1 or most > FEW:
                raise
            start = asks[0][1][2]
            answers = [
                self._script(scripts.ENTRIES, stream, (start, most, _LARGEST_ENTRY), self._long()) for stream in wanted
            ]
        return {
            stream: [_entry(*found) for found in _listed(answer)]
            for stream, answer in zip(wanted, answers, strict=True)
        }

    def snapshot(self, stream: str) -> Snapshot | None:
        """See `Log.snapshot`."""
        ask = _ask("HMGET", self._snap(stream), "p", "m", "d")
        try:
            found = _listed(self._one(ask, Budget(self._timeout, _MOST_LARGE)))
        except LogTooLarge:
            left = self._script(scripts.SNAPSHOT, stream, (LARGEST_SNAPSHOT,), self._long())
            found = _listed(left)
        numbers = None if not found or None in found else _POSITION.fullmatch(found[0])
        if numbers is None or max(map(int, numbers.groups())) > _HIGHEST or len(found[1]) > _LONGEST_MAC:
            return None
        return Snapshot(found[0].decode(), found[1], found[2])

    def found(self, stream: str, snapshot: Snapshot, first: Written) -> bool:
        """See `Log.found`. A snapshot that lacks something, or whose position is none, counts for nothing."""
        deadline = Budget(self._timeout, _MOST_LARGE)
        more = (snapshot.position, snapshot.mac, snapshot.data, self._keep, first.mac, first.data, self._most)
        if not self._script(scripts.FOUND, stream, more, deadline):
            return False
        self._write(self._ring([stream], [stream], put_off=True), deadline)
        return True

    def standing(self, stream: str) -> str | None:
        """See `Log.standing`."""
        position = self._script(scripts.STANDING, stream, (), Budget(self._timeout))
        return position.decode() if isinstance(position, bytes) else None

    def compact(self, stream: str, snapshot: Snapshot, instead_of: bytes | None = None) -> bool:
        """See `Log.compact`."""
        if len(snapshot.data) > LARGEST_SNAPSHOT:
            return False
        more = (snapshot.position, snapshot.mac, snapshot.data, self._keep)
        unusable = () if instead_of is None else (instead_of,)
        return bool(self._script(scripts.COMPACT, stream, (*more, *unusable), Budget(self._timeout, _MOST_LARGE)))

    def streams(self, most: int) -> list[str]:
        """See `Log.streams`."""
        if most <= 0:
            return []
        names = _listed(self._one(_ask("ZREVRANGE", self._used, 0, most - 1), Budget(self._timeout)))
        return [name.decode() for name in names if _NAME.fullmatch(name)]

    def close(self) -> None:
        """See `Log.close`."""
        self._server.close()

    def _log(self, stream: str) -> str:
        return f"{self._address.prefix}:{{{stream}}}:log"

    def _snap(self, stream: str) -> str:
        return f"{self._address.prefix}:{{{stream}}}:snap"

    def _add(self, entry: Written) -> Ask:
        key = self._log(entry.stream)
        return _ask("XADD", key, "MAXLEN", "~", self._most, "*", "m", entry.mac, "d", entry.data)

    def _ring(self, streams: Sequence[str], used: Sequence[str], *, put_off: bool) -> list[Ask]:
        asks = [_ask("XADD", self._rung, "MAXLEN", "~", _MOST_RINGS, "*", "s", " ".join(streams))]
        now = time.time()
        if used:
            asks.append(_ask("ZADD", self._used, *(part for name in used for part in (now, name))))
        if put_off:
            asks.append(_ask("ZREMRANGEBYRANK", self._used, 0, -_MOST_STREAMS - 1))
            asks.append(_ask("ZREMRANGEBYSCORE", self._used, "-inf", now - self._keep / 1000))
            asks += [_ask("PEXPIRE", key, self._keep) for key in (self._rung, self._used)]
        return asks

    def _now(self, deadline: Budget) -> str:
        last = _ask("XREVRANGE", self._rung, "+", "-", "COUNT", 1)
        try:
            found = _listed(self._one(last, deadline))
        except LogTooLarge:
            found = []
        if not found:  # rung for nothing, so that there is a position that can be seen to be gone
            deadline = Budget(self._timeout)
            self._write(self._ring([], [], put_off=True), deadline)
            found = _listed(self._one(last, deadline))
        position: str = found[0][0].decode() if found else START
        self._heard = (position, self._server.opened)
        return position

    def _script(self, script: str, stream: str, more: Sequence[Any], deadline: Budget) -> Any:  # noqa: ANN401
        key = self._log(stream)
        return self._one((key, ("EVAL", script, 2, key, self._snap(stream), *more)), deadline)

    def _long(self) -> Budget:
        """For what keeps the server busy: something huge is there, which is looked at once."""
        return Budget(self._timeout * _LONG, _MOST_LARGE)

    def _one(self, ask: Ask, deadline: Budget) -> Any:  # noqa: ANN401
        return self._server.ask([ask], deadline)[0]

    def _write(self, asks: Sequence[Ask], deadline: Budget, *, whole: bool = False) -> None:
        """Have it done. Where something else stands in place of a key, that is dropped first."""
        wrong = self._wrong(asks, deadline, whole=whole)
        if wrong:
            mending = [(key, ("EVAL", scripts.MEND, 1, key, _kind(command))) for key, command in wrong]
            self._server.ask(mending, deadline)
            if self._wrong(wrong, deadline):
                raise LogUnavailable("the log's server has something else in place of a log")

    def _wrong(self, asks: Sequence[Ask], deadline: Budget, *, whole: bool = False) -> list[Ask]:
        """Have it done; returns the asks that met a key of another kind."""
        answers = self._server.ask(asks, deadline, whole=whole)
        return [ask for ask, answer in zip(asks, answers, strict=True) if answer is WRONG_KIND]


def _ask(command: str, *rest: str | bytes | float) -> Ask:
    """A command about the key that is its first argument."""
    return str(rest[0]), (command, *rest)


def _note(known: dict[str, float], names: Sequence[str], now: float) -> None:
    if len(known) > _MOST_STREAMS:
        known.clear()
    known.update(dict.fromkeys(names, now))


def _kind(command: Command) -> str:
    return "zset" if str(command[0]).startswith("Z") else "stream"


def _listed(answer: Any) -> list[Any]:  # noqa: ANN401
    """A list that was answered; a key of another kind counts as empty."""
    return answer if isinstance(answer, list) else []


def _rings(fields: list[bytes]) -> bool:
    return fields[0] == b"s" and len(fields[1]) <= _LONGEST_RING


def _entry(position: bytes, fields: list[bytes]) -> Entry:
    ours = len(fields) == 4 and fields[0] == b"m" and fields[2] == b"d"
    return Entry(position.decode(), fields[1] if ours else b"", fields[3] if ours else b"")
