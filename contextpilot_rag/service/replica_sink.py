"""What a service's replica feeds: its indexes, conversations and tickets.

The replica's thread brings records, and waits; the event loop, which owns all of it, takes them in, a slice at a time
between requests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice

import msgspec

from ..errors import StateError
from ..index.state import StatePart
from ..replicas.entries import UNREADABLE
from ..replicas.in_loop import InLoop
from ..replicas.sink import Arrived
from ..replicas.space import Space
from ..types import Namespace
from . import saved
from .auth import Gate
from .core import Service
from .elsewhere import Elsewhere
from .ledger import Given
from .loop_work import Slices
from .pool_names import pool_name, pool_named
from .replica_records import Record, sound
from .tenant import Pool

SLICE_SECONDS = 0.0005

_records = msgspec.msgpack.Decoder(Record)
_encoder = msgspec.msgpack.Encoder()


class LogPart(msgspec.Struct, array_like=True, tag="talks"):
    """Some conversations, in a snapshot of a namespace's log."""

    ledgers: list[saved.SavedLedger]


_parts = msgspec.msgpack.Decoder(StatePart | LogPart)


class ServiceSink:
    """The `Sink` of a service.

    Args:
        service: is fed.
        gate: knows which tenants there are.
        elsewhere: takes in each record.
        moved: told when something changed.
    """

    def __init__(
        self, service: Service, gate: Gate, elsewhere: Elsewhere, moved: Callable[[], object] = lambda: None
    ) -> None:
        self._service = service
        self._gate = gate
        self._elsewhere = elsewhere
        self._moved = moved
        self._loop = InLoop()
        self._done = self._loop.done
        self._stray: set[Space] = set()

    def open(self) -> None:
        """Feed the service, in the loop that runs."""
        self._loop.open()

    def close(self) -> None:
        """Feed it no more, and keep nobody waiting."""
        self._loop.close()

    def follows(self, space: Space) -> bool:
        """Whether a space that others told of concerns this process at all."""
        kind, name = pool_named(space.pool)
        if kind == "tenant":
            tenants = self._gate.tenants
            return not name if tenants is None else name in tenants
        members = self._service.sharing.get(name) if kind else None
        if not members or space.namespace.corpus != name:
            return False
        return space.pool == pool_name(kind, name, members)

    def apply(self, space: Space, records: Sequence[Arrived]) -> int:
        """Take in the next records of a space's log, in this order; how many could not be true."""
        taken: list[tuple[Arrived, Record]] = []
        for arrived in records:
            try:
                taken.append((arrived, sound(_records.decode(arrived.data))))
            except (*UNREADABLE, StateError):  # a later version's, or meant to do harm
                continue
        self._done(self._apply(space, taken), None)
        return len(records) - len(taken)

    def included(self, space: Space, names: Sequence[str]) -> None:
        """Own records that need not be waited for."""
        self._done(self._included(space, names), None)

    def stray(self, space: Space) -> None:
        """What is applied from here on came not by the log."""
        self._stray.add(space)
        pool = self._done(self._known(space), None)
        if pool is not None:
            pool.index.stray(space.namespace)

    def dump(self, space: Space) -> Iterator[bytes]:
        """What is known of a space: its index, and its conversations."""
        self._stray.discard(space)  # whoever dumps those has what was taken in be the log's
        if self.follows(space):
            parts = self._dump(space)
            while some := self._done(_slice(parts), []):
                yield from map(_encoder.encode, some)

    def replace(self, space: Space, parts: Iterable[bytes]) -> None:
        """Know of a space what was dumped elsewhere, and nothing else but what the log is still to be told.

        Raises:
            StateError: the parts tell of no such thing; nothing was changed.
        """
        states: list[StatePart] = []
        talks: list[tuple[Namespace, str, list[tuple[str, Given]]]] = []
        for raw in parts:
            try:
                part = _parts.decode(raw)
            except UNREADABLE as error:
                raise StateError(f"a part of a snapshot cannot be read: {error}") from error
            if isinstance(part, LogPart):
                talks += map(saved.conversation, part.ledgers)
            else:
                states.append(part)
        self._stray.discard(space)
        pool = self._done(self._known(space), None)
        if pool is not None:
            known = any(True for _ in pool.index.dump_space(space.namespace))
            pool.index.replace_space(space.namespace, states)  # in this thread: to build a tree takes a while
            self._done(self._replace_talks(space, talks, known=known), None)

    async def _apply(self, space: Space, records: Sequence[tuple[Arrived, Record]]) -> None:
        slices = Slices(SLICE_SECONDS)
        for arrived, record in records:
            pool = self._pool(space)  # which may have gone in between
            if pool is None:
                return
            stray = arrived.own and space in self._stray
            self._elsewhere.take(pool, space.namespace, arrived.name, record, own=arrived.own, stray=stray)
            await slices.next()
        if records:
            self._moved()

    async def _included(self, space: Space, names: Sequence[str]) -> None:
        slices = Slices(SLICE_SECONDS)
        for name in names:
            pool = self._pool(space)
            if pool is not None:
                self._elsewhere.included(pool, space.namespace, name)
            await slices.next()

    async def _known(self, space: Space) -> Pool | None:
        return self._pool(space)

    async def _replace_talks(
        self, space: Space, talks: Sequence[tuple[Namespace, str, list[tuple[str, Given]]]], *, known: bool
    ) -> None:
        kind, name = pool_named(space.pool)
        if kind == "tenant" and self._pool(space) is not None:
            ledgers, slices = self._service.tenant(name).ledgers, Slices(SLICE_SECONDS)
            told = {(namespace, talk): answers for namespace, talk, answers in talks}
            here = [key for key, _ in ledgers.items(space.namespace)]
            known = known or bool(here)
            for namespace, talk in (*(key for key in here if key not in told), *told):
                if replace(namespace, head="") == space.namespace:
                    ledgers.replace(namespace, talk, told.get((namespace, talk), ()))
                await slices.next()
        self._moved()
        if known:
            self._elsewhere.replaced()

    def _dump(self, space: Space) -> Iterator[StatePart | LogPart]:
        """In the event loop."""
        pool = self._pool(space)
        if pool is None:
            return
        yield from pool.index.dump_space(space.namespace)
        if not pool.shared:
            for some in saved.dump_ledgers(self._service.tenant(pool.named[1]).ledgers, space.namespace):
                yield LogPart(some)

    def _pool(self, space: Space) -> Pool | None:
        """The pool that a space is of, as it is shared now. In the event loop."""
        return self._service.pool(*pool_named(space.pool)) if self.follows(space) else None


async def _slice(parts: Iterator[StatePart | LogPart]) -> list[StatePart | LogPart]:
    """The next part: each is about a millisecond's work."""
    return list(islice(parts, 1))
