"""What a log feeds of a proxy: its memory. The replica's thread brings records, and the event loop takes them in."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import islice

import msgspec

from ..errors import StateError
from ..replicas.in_loop import InLoop
from ..replicas.sink import Arrived
from ..replicas.space import Space
from ..service.loop_work import Slices
from ..types import Namespace
from .decided import Decided, Record, Remembered, decided, decision_of, record_of, remembered
from .memory import Memory

POOL = "proxy"
_SLICE_SECONDS = 0.0005
_PART = 200  # decisions of a part of a snapshot

_encode = msgspec.msgpack.Encoder().encode


def space_of(tenant: str) -> Space:
    """What has the log of a tenant's decisions."""
    return Space(POOL, Namespace(tenant=tenant))


class DecisionSink:
    """The `Sink` of a proxy.

    Args:
        memory: is fed.
        tenants: those that there are; None: any name is one.
    """

    def __init__(self, memory: Memory, tenants: Callable[[], Collection[str] | None]) -> None:
        self._memory = memory
        self._tenants = tenants
        self._loop = InLoop()
        self._done = self._loop.done
        self._barred: dict[Space, set[str]] = {}  # own records that have them forgotten, and are not back yet
        self._stray: set[Space] = set()

    def open(self) -> None:
        """Feed the memory, in the loop that runs."""
        self._loop.open()

    def close(self) -> None:
        """Feed it no more, and keep nobody waiting."""
        self._loop.close()

    def bar(self, space: Space, name: str) -> None:
        """Take in nothing of a space until a record of one's own is back. In the event loop."""
        self._barred.setdefault(space, set()).add(name)

    def follows(self, space: Space) -> bool:
        """Whether a space is that of a tenant's decisions."""
        tenant, tenants = space.namespace.tenant, self._tenants()
        follows = space == space_of(tenant) and (tenants is None or tenant in tenants)
        if not follows:
            self._barred.pop(space, None)  # nobody reads it, so none of its records comes back
        return follows

    def apply(self, space: Space, records: Sequence[Arrived]) -> int:
        """Take in the next records of a space's log; how many could not be true."""
        taken: list[tuple[Arrived, Record]] = []
        for arrived in records:
            try:
                taken.append((arrived, record_of(arrived.data)))
            except StateError:  # a later version's, or meant to do harm
                continue
        self._done(self._apply(space, taken), None)
        return len(records) - len(taken)

    def included(self, space: Space, names: Sequence[str]) -> None:
        """Own records that need not be waited for."""
        self._done(self._included(space, names), None)

    def stray(self, space: Space) -> None:
        """What is applied from here on came not by the log."""
        self._stray.add(space)

    def dump(self, space: Space) -> Iterator[bytes]:
        """What is known of a space, but for what only this proxy knows yet."""
        self._stray.discard(space)  # whoever dumps those has what was taken in be the log's
        keys = iter(self._done(self._keys(space), []))
        while some := list(islice(keys, _PART)):
            known = self._done(self._known(space, some), [])
            if known:
                yield _encode(Remembered(known))

    def replace(self, space: Space, parts: Iterable[bytes]) -> None:
        """Know of a space what was dumped elsewhere, and nothing else but what the log is still to be told.

        Raises:
            StateError: the parts tell of no such thing; nothing was changed.
        """
        given = [one for part in parts for one in remembered(part)]
        self._stray.discard(space)
        self._done(self._replace(space, given), None)

    async def _apply(self, space: Space, records: Sequence[tuple[Arrived, Record]]) -> None:
        memory, tenant, slices = self._memory, space.namespace.tenant, Slices(_SLICE_SECONDS)
        for arrived, record in records:
            if isinstance(record, Decided):
                if space not in self._barred:
                    stray = arrived.own and space in self._stray
                    memory.take(record.key, decision_of(record), tenant, stray=stray)
            elif not self._unbarred(space, arrived.name):  # else it was forgotten here when that was told
                for key in memory.kept(tenant):
                    memory.forget(key, tenant)
                    await slices.next()
            await slices.next()

    async def _included(self, space: Space, names: Sequence[str]) -> None:
        for name in names:
            self._unbarred(space, name)

    async def _keys(self, space: Space) -> list[bytes]:
        return self._memory.kept(space.namespace.tenant)

    async def _known(self, space: Space, keys: Sequence[bytes]) -> list[tuple[Decided, int]]:
        found = []
        for key in keys:
            known = self._memory.settled(key, space.namespace.tenant)
            record = None if known is None else decided(key, known[0])
            if known is not None and record is not None:
                found.append((record, int(known[1])))
        return found

    async def _replace(self, space: Space, given: Sequence[tuple[Decided, int]]) -> None:
        memory, tenant, slices = self._memory, space.namespace.tenant, Slices(_SLICE_SECONDS)
        keys = {record.key for record, _ in given}
        for key in memory.kept(tenant):
            if key not in keys:
                memory.forget(key, tenant, stray=False)
            await slices.next()
        if space in self._barred:
            return
        for record, age in sorted(given, key=lambda one: -one[1]):
            memory.restore(record.key, decision_of(record), float(age), tenant)
            await slices.next()

    def _unbarred(self, space: Space, name: str) -> bool:
        """An own record is back, or never will be; whether a space was barred by it."""
        barred = self._barred.get(space, set())
        if name not in barred:
            return False
        barred.discard(name)
        if not barred:
            del self._barred[space]
        return True
