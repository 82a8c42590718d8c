"""Memory: what was decided for each conversation, so that what was sent once is sent the same way again.

A conversation is known by the chain of its messages: each message's key is a hash of the key before it and of itself,
and the first one's of tenant and model. So two conversations that begin alike share what was decided, within a tenant.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import msgspec

from ..identity import KEY_BYTES

_BLOCKS = 32  # that a decision may order and count as one
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


class Memory:
    """Decisions by the keys of messages. Not thread-safe: one event loop owns it.

    Args:
        most: that are kept; the one used longest ago goes. One about very many blocks counts as several.
        seconds: one that was not used for so long goes.
        clock: seconds that never run backwards.
    """

    def __init__(self, most: int, seconds: float, clock: Callable[[], float]) -> None:
        self._most = most
        self._seconds = seconds
        self._clock = clock
        self._kept: OrderedDict[bytes, tuple[float, Decision]] = OrderedDict()
        self._count = 0

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, key: bytes) -> Decision | None:
        """What was decided; it counts as used now."""
        found = self._kept.get(key)
        if found is None:
            return None
        now = self._clock()
        if now - found[0] > self._seconds:
            self._remove(key)
            return None
        self._kept[key] = now, found[1]
        self._kept.move_to_end(key)
        return found[1]

    def put(self, key: bytes, decision: Decision) -> None:
        """Remember a decision."""
        now = self._clock()
        self._remove(key)
        self._kept[key] = now, decision
        self._count += _weight(decision)
        while self._kept:
            oldest, (used_at, _) = next(iter(self._kept.items()))
            if self._count <= self._most and now - used_at <= self._seconds:
                break
            self._remove(oldest)

    def _remove(self, key: bytes) -> None:
        found = self._kept.pop(key, None)
        if found is not None:
            self._count -= _weight(found[1])


def _weight(decision: Decision) -> int:
    return 1 + len(decision.order or ()) // _BLOCKS


def _hash(before: bytes, more: bytes) -> bytes:
    return hashlib.blake2b(before + more, digest_size=KEY_BYTES).digest()
