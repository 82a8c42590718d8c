"""Resident: which KV blocks one holder (an engine, or one of its data-parallel ranks) has, as its events tell."""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from itertools import islice

from .chain import ROOT, extended
from .kv import Cleared, Event, Hash, Removed, Stored
from .orphans import Orphan, Orphans, Shelf

MAX_SHELVES = 64
MAX_LEFT = 20_000  # names of KV blocks that were removed last
UNCLEAR = b"?"
"""Stands for the names of KV blocks that follow one of several to which the engine gave one name. No prompt has it.

SGLang, by default, names KV blocks alike that have the same tokens and different salts: then nobody can say whose those
are that follow, and they are nobody's.
"""


class Resident:
    """The KV blocks of one holder. Bridges the engine's names for them to ours (`chain`). Not thread-safe.

    Copies are counted where they are: vLLM tells of each that is stored and of each that is removed. A KV block is
    there while a copy is anywhere.

    Args:
        bit: the holder's, in sets of holders.
        most: copies that are known at a time; of more those stored first are forgotten.
        most_orphans: as for `Orphans`.
    """

    def __init__(self, bit: int, most: int, most_orphans: int) -> None:
        self.bit = bit
        self.complete = False  # told of all that happened since the holder's start
        self.changed: set[bytes] = set()  # came or went since the owner looked
        self.dropped: list[dict[bytes, int]] = []  # all that was there when it was dropped, since then
        self.strange: set[bytes] = set()  # contents of new orphans since then
        self.left: OrderedDict[bytes, None] = OrderedDict()
        self.orphans = Orphans(most_orphans)
        self.ignored = self.forgotten = self.adopted = self.revoked = 0
        self._most = most
        self._most_assumed = most_orphans
        self._empty()

    def apply(self, event: Event) -> None:
        """Take in what the holder told."""
        if isinstance(event, Stored):
            self._store(event)
        elif isinstance(event, Removed):
            for kv_block in event.hashes:
                self._remove(kv_block, (event.medium, event.group))
        elif isinstance(event, Cleared):
            self.left.update(dict.fromkeys(islice(self.there, MAX_LEFT)))
            self._bound_left()
            self.drop()
            self.complete = True

    def drop(self) -> None:
        """Nothing is there any more, as far as is known. What went before is still known to have gone."""
        # Others wait for this, so it is not the place to look at each of them.
        if self.there:
            self.dropped.append(self.there)
        self.strange.clear()
        self.orphans = Orphans(self._most_assumed, self.orphans.dropped)
        self._empty()

    def take_changed(self, most: int) -> list[bytes]:
        """So many of those that came or went since this was asked last; each at least once."""
        taken: list[bytes] = []
        while self.dropped and len(taken) < most:
            last = self.dropped[-1]
            while last and len(taken) < most:
                taken.append(last.popitem()[0])
            if not last:
                self.dropped.pop()
        while self.changed and len(taken) < most:
            taken.append(self.changed.pop())
        return taken

    def run(self, keys: Sequence[bytes]) -> int:
        """How many of these are there, from the first up to one that is not."""
        for number, key in enumerate(keys):
            if key not in self.there:
                return number
        return len(keys)

    def has_all(self, keys: Iterable[bytes]) -> bool:
        """Whether all of these are there."""
        return all(map(self.there.__contains__, keys))

    def assume(self, keys: Iterable[bytes]) -> None:
        """Take these as there though no event told so; but for those of which one told that they went."""
        for key in keys:
            if key not in self.there and key not in self.left:
                self._assumed[key] = None
                self._gain(key)
        while len(self._assumed) > self._most_assumed:
            self._lose(self._assumed.popitem(last=False)[0])

    def doubt(self, keys: Iterable[bytes]) -> None:
        """Take these as there no longer if no event told that they are."""
        for key in keys:
            if key in self._assumed:
                del self._assumed[key]
                self._lose(key)

    def adopt(self, parent: Hash, before: Sequence[bytes]) -> None:
        """Learn which prompt orphans belong to.

        Args:
            parent: the engine's name for the KV block before them.
            before: our names of the prompt's KV blocks up to that one.
        """
        self.adopted += 1
        self._guessed[parent] = parent
        shelf = self.orphans.shelf_before(parent)
        if shelf is not None:
            self._put(shelf, parent, before[-1])
            self.assume(before)
        self._name_behind(parent, before[-1])
        if shelf is None:
            del self._guessed[parent]
        self._bound()

    def revoke(self, parent: Hash) -> None:
        """Forget all that was named by an adoption, which proved a mistake."""
        self.revoked += 1
        for kv_block in [one for one, origin in self._guessed.items() if origin == parent]:
            self._forget(kv_block)

    def _empty(self) -> None:
        self.there: dict[bytes, int] = {}  # our name, and for how many reasons it is taken as there
        self.copies = 0
        self._shelves: dict[Shelf, dict[Hash, bytes]] = {}
        self._more: dict[tuple[Shelf, Hash], int] = {}  # copies but the first
        self._others: dict[Hash, set[bytes]] = {}  # where the engine has one name for several
        self._assumed: OrderedDict[bytes, None] = OrderedDict()
        self._guessed: dict[Hash, Hash] = {}  # named by an adoption, and by which

    def _store(self, event: Stored) -> None:
        shelf, size, count = (event.medium, event.group), event.block_size, len(event.hashes)
        tokens = self._tokens_of(event)
        if tokens is None:
            self.ignored += count
            return
        extras = event.extra or ("",) * count
        parent = event.parent
        before = ROOT if parent is None else self._before(parent)
        for number, kv_block in enumerate(event.hashes):
            own = tokens[number * size : (number + 1) * size]
            if before is not None:
                key = UNCLEAR if before == UNCLEAR else extended(before, own, extras[number])
                if parent in self._guessed:
                    self._guessed.setdefault(kv_block, self._guessed[parent])
            else:
                named = self._named(kv_block)
                if named is None:
                    assert parent is not None  # noqa: S101  what begins a prompt has a name
                    self.strange.add(self.orphans.add(kv_block, parent, own, extras[number], shelf))
                    parent = kv_block
                    continue
                key = named
            self._put(shelf, kv_block, key)
            if self.orphans.concerns(kv_block):
                self._name_behind(kv_block, key)
            parent, before = kv_block, self._before(kv_block)
        self._bound()

    def _tokens_of(self, event: Stored) -> array[int] | None:
        """None: it tells of nothing that a prompt could find, or contradicts itself."""
        count, shelf = len(event.hashes), (event.medium, event.group)
        if event.sliding or (shelf not in self._shelves and len(self._shelves) >= MAX_SHELVES):
            return None
        if len(event.tokens) != count * event.block_size or len(event.extra) not in {0, count}:
            return None
        try:
            return array("Q", event.tokens)
        except (OverflowError, TypeError):
            return None

    def _remove(self, kv_block: Hash, shelf: Shelf) -> None:
        held = self._shelves.get(shelf)
        if held is None or kv_block not in held:
            self.ignored += not self.orphans.remove(kv_block, shelf)
        elif (shelf, kv_block) in self._more and kv_block not in self._others:
            self._take_copy(shelf, kv_block)
        else:
            keys = (held[kv_block], *self._others.get(kv_block, ()))
            self._forget(kv_block, shelf)
            for key in keys:
                if key not in self.there:
                    self.left[key] = None
            self._bound_left()

    def _before(self, kv_block: Hash) -> bytes | None:
        """Our name for a KV block that others follow; None: not known."""
        return UNCLEAR if kv_block in self._others else self._named(kv_block)

    def _name_behind(self, kv_block: Hash, key: bytes) -> None:
        """A KV block's name is known: if it is an orphan it is none any more, and nor are those behind it."""
        origin = self._guessed.get(kv_block)
        own = self.orphans.take(kv_block)
        if own is not None:
            self._put_all(own, kv_block, key)
        waiting = [(kv_block, UNCLEAR if kv_block in self._others else key)]
        while waiting:
            parent, before = waiting.pop()
            for child, orphan in self.orphans.take_behind(parent):
                name = UNCLEAR if before == UNCLEAR else extended(before, orphan.tokens, orphan.extra)
                if origin is not None and orphan.copies:
                    self._guessed[child] = origin
                self._put_all(orphan, child, name)
                waiting.append((child, name))

    def _put_all(self, orphan: Orphan, kv_block: Hash, key: bytes) -> None:
        for shelf, copies in orphan.copies.items():
            for _ in range(copies):
                self._put(shelf, kv_block, key)

    def _put(self, shelf: Shelf, kv_block: Hash, key: bytes) -> None:
        known = self._named(kv_block)
        if known is not None and known != key and kv_block in self._guessed:
            self.revoke(self._guessed[kv_block])
            known = None
        held = self._shelves.setdefault(shelf, {})
        if known is not None and known != key:
            others = self._others.setdefault(kv_block, set())
            if key not in others:
                others.add(key)
                self.copies += 1
                self._gain(key)
            return
        self.copies += 1
        if kv_block in held:
            self._more[shelf, kv_block] = self._more.get((shelf, kv_block), 0) + 1
            return
        held[kv_block] = key
        self._gain(key)
        if key in self._assumed:
            del self._assumed[key]
            self._lose(key)
        self.left.pop(key, None)

    def _take_copy(self, shelf: Shelf, kv_block: Hash) -> None:
        self.copies -= 1
        more = self._more.pop((shelf, kv_block)) - 1
        if more:
            self._more[shelf, kv_block] = more

    def _forget(self, kv_block: Hash, only: Shelf | None = None) -> None:
        """Forget one's copies, on all shelves or one. If it has several of our names, on all, as nobody says which."""
        others = self._others.pop(kv_block, None)
        for key in others or ():
            self._lose(key)
        self.copies -= len(others or ())
        for shelf, held in self._shelves.items():
            if kv_block in held and (others or only in {None, shelf}):
                self.copies -= 1 + self._more.pop((shelf, kv_block), 0)
                self._lose(held.pop(kv_block))
        if self._named(kv_block) is None:
            self._guessed.pop(kv_block, None)

    def _bound(self) -> None:
        """Forget what was stored first, many at a time: to find the first of a dict costs as much as was taken out."""
        while self.copies > self._most:
            held = max(self._shelves.values(), key=len)
            for kv_block in list(islice(held, max(1, len(held) // 64))):
                self._forget(kv_block)
                self.forgotten += 1
                self.complete = False

    def _bound_left(self) -> None:
        while len(self.left) > MAX_LEFT:
            self.left.popitem(last=False)

    def _named(self, kv_block: Hash) -> bytes | None:
        for held in self._shelves.values():
            key = held.get(kv_block)
            if key is not None:
                return key
        return None

    def _gain(self, key: bytes) -> None:
        reasons = self.there.get(key, 0)
        self.there[key] = reasons + 1
        if not reasons:
            self.changed.add(key)

    def _lose(self, key: bytes) -> None:
        reasons = self.there[key] - 1
        if reasons:
            self.there[key] = reasons
        else:
            del self.there[key]
            self.changed.add(key)
