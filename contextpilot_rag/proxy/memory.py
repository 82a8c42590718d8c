"""Memory: what was decided for each conversation, so that what was sent once is sent the same way again.

A conversation is known by the chain of its messages: each message's key is a hash of the key before it and of itself,
and the first one's of tenant and model. So two conversations that begin alike share what was decided, within a tenant.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Protocol

import msgspec

from ..identity import KEY_BYTES

_BLOCKS = 32  # that a decision may order and count as one
_AGAIN = 0.25  # of the time that decisions are kept: one that goes on being used is told again after so long
_encode = msgspec.json.Encoder(order="deterministic").encode


@dataclass(frozen=True, slots=True)
class Decision:
    """What was decided for a message.

    Args:
        order: of its first group of blocks, as ranks.
        engine: where the request went.
        cached: how many of these blocks were believed cached.
    """

    order: tuple[int, ...] | None = None
    engine: str | None = None
    cached: int = 0


def chain(purpose: str, fields: Iterable[str], messages: Iterable[object]) -> list[bytes]:
    """The key of each message.

    Args:
        purpose: keys of different purposes never meet.
        fields: that all of it is within, such as tenant and model.
        messages: as they were decoded.

    >>> a = chain("", ["tenant"], [{"role": "user", "content": "x"}, {"role": "user", "content": "y"}])
    >>> b = chain("", ["tenant"], [{"content": "x", "role": "user"}, {"role": "user", "content": "z"}])
    >>> a[0] == b[0], a[1] == b[1]
    (True, False)
    """
    key = _hash(b"", _encode([purpose, *fields]))
    keys = []
    for message in messages:
        key = _hash(key, _encode(message))
        keys.append(key)
    return keys


class Teller(Protocol):
    """Whoever tells others of what is decided here."""

    def told(self, tenant: str, key: bytes, decision: Decision) -> None:
        """Tell them. Waits for nothing, and raises nothing."""
        ...


@dataclass(slots=True)
class _Kept:
    """A decision that is remembered.

    Args:
        decision: itself.
        used_at: when it was used last.
        told_at: when others were told last, or told it.
        settled: its order is the one that all have who read the log; else it was decided here, and may yet yield.
        stray: it was settled without the log, which is told of it again.
    """

    decision: Decision
    used_at: float
    told_at: float
    settled: bool = False
    stray: bool = False

    @property
    def passed_on(self) -> bool:
        """Whether the log has had it, as far as that counts."""
        return self.settled or self.decision.order is None


class Memory:
    """Decisions by the keys of messages. Not thread-safe: one event loop owns it.

    Where replicas share what they decide, what is decided here counts at once. Of several that decided for the same
    message at the same time, the one stays that the log has first: so all have the same once they have read it. Where
    a conversation goes is the latest that anybody said.

    Args:
        most: that are kept; the one used longest ago goes. One about very many blocks counts as several.
        seconds: one that was not used for so long goes.
        clock: seconds that never run backwards.

    Attributes:
        teller: is told what is decided; None: nobody is.
    """

    def __init__(self, most: int, seconds: float, clock: Callable[[], float]) -> None:
        self.teller: Teller | None = None
        self._most = most
        self._seconds = seconds
        self._clock = clock
        self._kept: OrderedDict[tuple[str, bytes], _Kept] = OrderedDict()
        self._of: dict[str, dict[bytes, None]] = {}
        self._count = 0

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, key: bytes, tenant: str = "") -> Decision | None:
        """What was decided; it counts as used now."""
        found = self._kept.get((tenant, key))
        if found is None:
            return None
        now = self._clock()
        if now - found.used_at > self._seconds:
            self._remove(tenant, key)
            return None
        found.used_at = now
        self._kept.move_to_end((tenant, key))
        return found.decision

    def put(self, key: bytes, decision: Decision, tenant: str = "") -> None:
        """Remember a decision, and tell of it, where there is something to tell."""
        now = self._clock()
        before = self._kept.get((tenant, key))
        same = before is not None and (before.decision.order, before.decision.engine) == (
            decision.order,
            decision.engine,
        )
        told_at = before.told_at if before is not None and same else now
        tells = not same or now - told_at > self._seconds * _AGAIN
        settled = before is not None and before.settled and before.decision.order == decision.order
        self._keep(tenant, key, _Kept(decision, now, now if tells else told_at, settled))
        if tells and self.teller is not None:
            self.teller.told(tenant, key, decision)

    def take(self, key: bytes, decision: Decision, tenant: str = "", *, stray: bool = False) -> None:
        """Remember the next decision that the log has, whoever decided it.

        Args:
            key: of a message.
            decision: about it.
            tenant: whose it is.
            stray: the log does not have it yet, but is given up for now.
        """
        now = self._clock()
        before = self._kept.get((tenant, key))
        if before is not None and now - before.used_at > self._seconds:
            before = None
        settled = decision.order is not None
        if before is not None:
            engine = decision.engine or before.decision.engine
            if before.settled or not settled:  # the first that says an order stays
                decision, settled = before.decision, before.settled
                stray = stray and before.stray
            decision = replace(decision, engine=engine)
        self._keep(tenant, key, _Kept(decision, now, now, settled, stray))

    def kept(self, tenant: str) -> list[bytes]:
        """The keys of a tenant's decisions."""
        return list(self._of.get(tenant, ()))

    def settled(self, key: bytes, tenant: str = "") -> tuple[Decision, float] | None:
        """A decision that others may be given, and how long ago it was used; it does not count as used."""
        found = self._kept.get((tenant, key))
        if found is None or not found.passed_on:
            return None
        age = self._clock() - found.used_at
        return None if age > self._seconds else (found.decision, max(0.0, age))

    def restore(self, key: bytes, decision: Decision, age: float, tenant: str = "") -> None:
        """Remember what others know, as it was used so long ago."""
        before = self._kept.get((tenant, key))
        used_at = self._clock() - age
        if before is None:
            self._keep(tenant, key, _Kept(decision, used_at, used_at, decision.order is not None))
            return
        settled = decision.order is not None
        if not settled:
            decision = replace(before.decision, engine=decision.engine)
        self._count += _weight(decision) - _weight(before.decision)
        before.decision, before.settled, before.stray = decision, settled or before.settled, False
        before.used_at = max(before.used_at, used_at)

    def forget(self, key: bytes, tenant: str = "", *, stray: bool = True) -> None:
        """Forget a decision that the log has had; one that is on its way there stays.

        Args:
            key: of a message.
            tenant: whose it is.
            stray: also one that was settled without the log; else it is on its way there again.
        """
        found = self._kept.get((tenant, key))
        if found is None or not found.passed_on:
            return
        if found.stray and not stray:
            found.settled = found.stray = False
        else:
            self._remove(tenant, key)

    def forget_all(self, tenant: str) -> None:
        """Forget all of a tenant's decisions."""
        for key in self.kept(tenant):
            self._remove(tenant, key)

    def _keep(self, tenant: str, key: bytes, kept: _Kept) -> None:
        self._remove(tenant, key)
        self._kept[tenant, key] = kept
        self._of.setdefault(tenant, {})[key] = None
        self._count += _weight(kept.decision)
        now = self._clock()
        while self._kept:
            (whose, oldest), one = next(iter(self._kept.items()))
            if self._count <= self._most and now - one.used_at <= self._seconds:
                break
            self._remove(whose, oldest)

    def _remove(self, tenant: str, key: bytes) -> None:
        found = self._kept.pop((tenant, key), None)
        if found is None:
            return
        self._count -= _weight(found.decision)
        keys = self._of[tenant]
        del keys[key]
        if not keys:
            del self._of[tenant]


def _weight(decision: Decision) -> int:
    return 1 + len(decision.order or ()) // _BLOCKS


def _hash(before: bytes, more: bytes) -> bytes:
    return hashlib.blake2b(before + more, digest_size=KEY_BYTES).digest()
