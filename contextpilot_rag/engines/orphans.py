"""Orphans: KV blocks stored behind one that was never heard of, until it is known which prompt they belong to.

Engines tell only of what is new. Who begins to listen late (or has missed something) never hears of the beginnings that
all prompts share, and so cannot name what follows them.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

from .chain import content
from .kv import Hash

MAX_TOKENS = 4_000_000
"""Of all orphans of a holder: 32 MB."""

Shelf = tuple[str, int]
"""Where a copy of a KV block is: the medium, and the group of the cache."""


@dataclass(slots=True)
class Orphan:
    """A KV block whose name is not known yet.

    Args:
        parent: the one before it.
        tokens: its own.
        extra: as in `Stored.extra`.
        content: the name of its tokens by themselves.
        copies: how many there are, and where; none: it is gone, and kept for those that follow it.
    """

    parent: Hash
    tokens: array[int]
    extra: str
    content: bytes
    copies: dict[Shelf, int] = field(default_factory=dict)


class Orphans:
    """The orphans of one holder, oldest first. Not thread-safe.

    Args:
        most: kept at a time; of more, or of more than `MAX_TOKENS` tokens, the oldest go.
        dropped: how many went so far.
    """

    def __init__(self, most: int, dropped: int = 0) -> None:
        self.dropped = dropped
        self._tokens = 0
        self._most = most
        self._all: OrderedDict[Hash, Orphan] = OrderedDict()
        self._behind: dict[Hash, dict[Hash, None]] = {}
        self._alike: dict[bytes, dict[Hash, None]] = {}
        self._gone: set[Hash] = set()  # of those before them that are not orphans themselves

    def __len__(self) -> int:
        return len(self._all)

    def __contains__(self, kv_block: Hash) -> bool:
        return kv_block in self._all

    def add(self, kv_block: Hash, parent: Hash, tokens: array[int], extra: str, shelf: Shelf) -> bytes:
        """Take a copy of one in; returns the name of its content."""
        orphan = self._all.get(kv_block)
        self._gone.discard(kv_block)
        if orphan is None:
            orphan = self._all[kv_block] = Orphan(parent, tokens, extra, content(tokens))
            self._behind.setdefault(parent, {})[kv_block] = None
            self._alike.setdefault(orphan.content, {})[kv_block] = None
            self._tokens += len(tokens)
        orphan.copies[shelf] = orphan.copies.get(shelf, 0) + 1
        while len(self._all) > self._most or self._tokens > MAX_TOKENS:
            self.dropped += 1
            oldest = next(iter(self._all))
            if not self._take(oldest).copies and oldest in self._behind:
                self._gone.add(oldest)
        return orphan.content

    def remove(self, kv_block: Hash, shelf: Shelf) -> bool:
        """A copy is gone; False: it is none that is known here."""
        orphan = self._all.get(kv_block)
        if orphan is None:
            if kv_block in self._behind:
                self._gone.add(kv_block)
            return False
        copies = orphan.copies.pop(shelf, 0)
        if copies > 1:
            orphan.copies[shelf] = copies - 1
        # What is gone, and has nobody behind it, is of no use: nor are those before it, then.
        while orphan is not None and not orphan.copies and kv_block not in self._behind:
            self._take(kv_block)
            kv_block = orphan.parent
            orphan = self._all.get(kv_block)
        return copies > 0

    def shelf_before(self, parent: Hash) -> Shelf | None:
        """Where the one before some orphans is: where they are. None: it was removed since they came, or they were."""
        if parent not in self._gone:
            for kv_block in self._behind.get(parent, ()):
                for shelf in self._all[kv_block].copies:
                    return shelf
        return None

    def concerns(self, kv_block: Hash) -> bool:
        """Whether one is an orphan, or some wait for it."""
        return kv_block in self._all or kv_block in self._behind

    def take(self, kv_block: Hash) -> Orphan | None:
        """Hand one out whose name is known now; those behind it stay."""
        return self._take(kv_block) if kv_block in self._all else None

    def take_behind(self, parent: Hash) -> list[tuple[Hash, Orphan]]:
        """Hand out all that follow one directly."""
        return [(kv_block, self._take(kv_block)) for kv_block in list(self._behind.get(parent, ()))]

    def runs(self, contents: Sequence[bytes], most: int = 1_000_000) -> tuple[list[tuple[int, Hash]], int]:
        """Runs of orphans that could be the end of a prompt, up to its last full KV block.

        Args:
            contents: of the prompt's KV blocks.
            most: steps that may be taken to find them.

        Returns:
            For each, how many of the prompt's KV blocks come before the run, at least one; and the engine's name for
            the last of these. And how many steps were taken; if all of them, there may be more runs.
        """
        found: list[tuple[int, Hash]] = []
        steps = 0
        for kv_block in self._alike.get(contents[-1], ()) if contents else ():
            orphan, before = self._all[kv_block], len(contents) - 1
            while before and steps < most:
                steps += 1
                above = self._all.get(orphan.parent)
                if above is None:
                    found.append((before, orphan.parent))
                    break
                before -= 1
                if above.content != contents[before]:
                    break
                orphan = above
            if steps >= most:
                break
        return found, steps

    def _take(self, kv_block: Hash) -> Orphan:
        orphan = self._all.pop(kv_block)
        self._tokens -= len(orphan.tokens)
        alike = self._alike[orphan.content]
        del alike[kv_block]
        if not alike:
            del self._alike[orphan.content]
        behind = self._behind[orphan.parent]
        del behind[kv_block]
        if not behind:
            del self._behind[orphan.parent]
            self._gone.discard(orphan.parent)
        return orphan
