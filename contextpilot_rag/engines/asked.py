"""Asked: the prompts that were answered last, and whether the events told of them as was to be expected."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from .covering import Covering
from .kv import Hash

MAX_ASKED = 256

Holder = tuple[str, int]
"""An engine's name, and the data-parallel rank."""


@dataclass(slots=True, eq=False)
class Asked:
    """A prompt that was answered.

    Args:
        covering: where its blocks stand.
        cached_tokens: as the engine reported; None: it did not.
        holder: who answered; None: not known.
        waits: no event told of it yet, as one should.
        tail: KV blocks of its end that were taken for its own by their content.
        parent: the engine's name for the one before these.
    """

    covering: Covering
    cached_tokens: int | None
    holder: Holder | None
    waits: bool = True
    tail: int = 0
    parent: Hash | None = None

    def could_begin(self, tail: int) -> bool:
        """Whether all but so many of its last KV blocks were cached, for all that is known."""
        before = len(self.covering.keys) - tail
        return before > 0 and self.cached_tokens in {None, before * self.covering.block_size}

    def same_end(self, other: Asked, tail: int) -> bool:
        """Whether so many KV blocks at the end have the same tokens as another's, and stand behind others."""
        return self.covering.contents[-tail:] == other.covering.contents[-tail:] and (
            self.covering.keys[-tail - 1 : -tail] != other.covering.keys[-tail - 1 : -tail]
        )


class AskedLast:
    """The prompts that were answered last and whose KV blocks were not all known then. Not thread-safe.

    Args:
        missed: told of each that no event told of at all while it was kept here.
    """

    def __init__(self, missed: Callable[[Asked], object]) -> None:
        self._missed = missed
        self._all: OrderedDict[int, Asked] = OrderedDict()
        self._serial = 0
        self._by_key: dict[bytes, dict[int, Asked]] = {}
        self._by_content: dict[bytes, dict[int, Asked]] = {}

    def __len__(self) -> int:
        return len(self._all)

    def add(self, asked: Asked) -> None:
        """Take one in; the oldest goes."""
        self._serial += 1
        self._all[self._serial] = asked
        self._by_key.setdefault(asked.covering.keys[-1], {})[self._serial] = asked
        self._by_content.setdefault(asked.covering.contents[-1], {})[self._serial] = asked
        if len(self._all) > MAX_ASKED:
            serial, oldest = self._all.popitem(last=False)
            _take(self._by_key, oldest.covering.keys[-1], serial)
            _take(self._by_content, oldest.covering.contents[-1], serial)
            if oldest.waits:
                self._missed(oldest)

    def ending_in(self, keys: Iterable[bytes]) -> Iterator[Asked]:
        """Those whose last full KV block has one of these names."""
        for key in keys if self._all else ():
            yield from list(self._by_key.get(key, {}).values())

    def like(self, content: bytes) -> list[Asked]:
        """Those whose last full KV block has these tokens."""
        return list(self._by_content.get(content, {}).values())

    def clear(self) -> None:
        """Drop all."""
        self._all.clear()
        self._by_key.clear()
        self._by_content.clear()


def _take(table: dict[bytes, dict[int, Asked]], key: bytes, serial: int) -> None:
    del table[key][serial]
    if not table[key]:
        del table[key]
