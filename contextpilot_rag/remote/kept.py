"""Kept: a few values by key; those put in longest ago go."""

from __future__ import annotations

import threading
from collections.abc import Hashable, Mapping
from typing import Generic, TypeVar

KeyT = TypeVar("KeyT", bound=Hashable)
ValueT = TypeVar("ValueT")


class Kept(Generic[KeyT, ValueT]):
    """A bounded map. Thread-safe.

    Args:
        most: how many are kept.
        values: to begin with.

    >>> kept = Kept(2)
    >>> for key in "abc":
    ...     kept.put(key, key.upper())
    >>> kept.get("a"), kept.get("c"), kept.pop("c"), kept.get("c")
    (None, 'C', 'C', None)
    """

    def __init__(self, most: int, values: Mapping[KeyT, ValueT] | None = None) -> None:
        self._most = most
        self._values: dict[KeyT, ValueT] = dict(values or {})
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: KeyT) -> ValueT | None:
        """The value, or None."""
        return self._values.get(key)

    def pop(self, key: KeyT) -> ValueT | None:
        """The value, which is kept no longer; or None."""
        with self._lock:
            return self._values.pop(key, None)

    def put(self, key: KeyT, value: ValueT) -> None:
        """Keep a value."""
        with self._lock:
            self._values.pop(key, None)
            self._values[key] = value
            while len(self._values) > self._most:
                del self._values[next(iter(self._values))]

    def clear(self) -> None:
        """Keep nothing."""
        with self._lock:
            self._values.clear()

    def copy(self) -> Kept[KeyT, ValueT]:
        """One of its own with the same values; takes no lock, since a forked process may have inherited it locked."""
        return Kept(self._most, self._values)
