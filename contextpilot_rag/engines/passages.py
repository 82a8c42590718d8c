"""Passages: which KV blocks cover which blocks of the prompts that were sent, and whether they are there.

A passage is a path of blocks behind a certain beginning of the prompt (its head). It is covered by the KV blocks that
end within it; one that ends behind it depends on what follows, and so does not help a prompt in which something else
follows. A passage is there if some holder has all the KV blocks from the prompt's first to the passage's last.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Container, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from ..types import BlockRef
from .covering import Covering

Space = Hashable
"""Whose tree it is: a namespace, or a service's pool and namespace."""
Path = tuple[BlockRef, ...]

EVERY = -1  # the set of all holders: what no KV block covers is wherever its beginning is
MAX_HEADS = 8
"""Of one space. More of them take turns: prompts of one space should begin alike."""


@dataclass(frozen=True, slots=True)
class Changes:
    """What happened to the paths of trees. Those that are gone come first: a path may be gone, and back.

    Args:
        gone: paths whose last block, and so what follows it, is in no holder's cache any more; each with its space.
        back: paths that are in one again; those that they begin with are not mentioned.
    """

    gone: tuple[tuple[Space, Path], ...] = ()
    back: tuple[tuple[Space, Path], ...] = ()


class Passage:
    """One block behind a certain path; or a head, which has no block.

    Args:
        parent: what it follows; None: it is a head.
        block: None: it is a head.
        end: tokens of the prompt up to its end, whatever block follows.
        keys: of the KV blocks that end within it.
        own: holders that have all of these, as a set of bits.
    """

    __slots__ = ("block", "children", "end", "keys", "last", "own", "parent", "there")

    def __init__(self, parent: Passage | None, block: BlockRef | None, end: int, keys: tuple[bytes, ...]) -> None:
        self.parent = parent
        self.block = block
        self.end = end
        self.last = end  # the same where no block follows, either
        self.keys = keys
        self.own = 0
        self.there = 0  # holders that have all from the prompt's beginning
        self.children: dict[Hashable, Passage] = {}

    def path(self) -> Path:
        """Its blocks, from the first."""
        found: list[BlockRef] = []
        passage: Passage | None = self
        while passage is not None and passage.block is not None:
            found.append(passage.block)
            passage = passage.parent
        return tuple(reversed(found))


class Head(Passage):
    """What stands before the first block.

    Args:
        space: whose prompts begin so.
        salt: of the prompts' KV blocks.
        block_size: tokens of these.
        end: as for `Passage`.
        keys: as for `Passage`.
    """

    __slots__ = ("block_size", "salt", "space")

    def __init__(self, space: Space, salt: str | None, block_size: int, end: int, keys: tuple[bytes, ...]) -> None:
        super().__init__(None, None, end, keys)
        self.space = space
        self.salt = salt
        self.block_size = block_size


class Passages:
    """All passages that are known, of all spaces; those used last. Not thread-safe.

    Args:
        holders: which holders have all of some KV blocks, as a set of bits.
        most: passages that are kept.
        most_keys: names of KV blocks that are kept with them.
    """

    def __init__(self, holders: Callable[[tuple[bytes, ...]], int], most: int, most_keys: int) -> None:
        self._holders = holders
        self._most = most
        self._most_keys = most_keys
        self._heads: dict[Space, OrderedDict[Head, None]] = {}  # covered last last
        self._by_use: OrderedDict[Passage, Head] = OrderedDict()  # a passage stands before its parent
        self._of: dict[bytes, Passage | list[Passage]] = {}
        self._was: dict[Passage, tuple[Head, bool]] = {}  # those that changed: whether they were there before
        self._went: set[Passage] = set()  # those of which a KV block went
        self._keys = 0

    def __len__(self) -> int:
        return len(self._by_use)

    def cover(self, space: Space, salt: str | None, blocks: Sequence[BlockRef], covering: Covering) -> list[Passage]:
        """Note where the blocks of a prompt stand, in prompt order. Returns the head and a passage for each block."""
        size = covering.block_size
        head = self._head(space, salt, blocks, covering)
        passages: list[Passage] = [head]
        for number, block in enumerate(blocks, 1):
            parent = passages[-1]
            passage = parent.children.get(block.key)
            start, end = parent.end // size, max(covering.ends[number], parent.end)
            if passage is not None and end < passage.end:
                self._shorten(head, passage, end)
            keys = covering.keys[start : (passage.end if passage else end) // size]
            if passage is not None and passage.keys != keys:
                self._drop(passage)
                passage = None
            if passage is None:
                passage = Passage(parent, block, end, covering.keys[start : end // size])
                parent.children[block.key] = passage
                self._add(head, passage)
            passages.append(passage)
        for number, passage in enumerate(passages):
            passage.last = min(passage.last, covering.last(number))
        for passage in reversed(passages):
            self._by_use.move_to_end(passage)
        self._bound(len(passages))
        return passages

    def shows(self, keys: Iterable[bytes], there: Container[bytes]) -> None:
        """Look again at the passages that some KV blocks cover.

        Args:
            keys: of KV blocks that came or went, or both, in some holder's cache.
            there: that the holder has now.
        """
        found: dict[Passage, bool] = {}
        for key in keys:
            one = self._of.get(key)
            if one is not None:
                for passage in (one,) if isinstance(one, Passage) else one:
                    found[passage] = found.get(passage, False) or key not in there
        for passage, went in found.items():
            own, head = self._holders(passage.keys), self._by_use[passage]
            if went:
                # It may have come and gone again since the last look. A tree can have it from when it was asked for.
                self._note(head, passage)
                self._went.add(passage)
            if own != passage.own:
                passage.own = own
                self._spread(head, passage)

    def changes(self) -> Changes:
        """What happened since this was asked last."""
        if not self._was:
            return Changes()
        gone: list[tuple[Space, Path]] = []
        back: list[tuple[Space, Path]] = []
        over = {one for one, (_, was) in self._was.items() if not one.there and (was or one in self._went)}
        for head in [one for one in over if isinstance(one, Head)]:  # no path of a tree, so those behind it tell
            for first in head.children.values():
                self._note(head, first)
                over.add(first)
        for passage, (head, was) in self._was.items():
            if passage in over:
                path = passage.path()
                if path and self._begins(head, passage, path, over):
                    gone.append((head.space, path))
            elif passage.there and not was and passage.block is not None and not _goes_on(passage):
                back.append((head.space, passage.path()))
        self._was.clear()
        self._went.clear()
        return Changes(tuple(gone), tuple(back))

    def has(self, space: Space, path: Path, but: Head | None = None) -> bool:
        """Whether a path is there, behind any head but one."""
        keys = [block.key for block in path]
        others = [head for head in self._heads.get(space, ()) if head is not but]
        return any(sum(1 for one in _follow(head, keys) if one.there) > len(path) for head in others)

    def walk(self, space: Space, keys: Iterable[Hashable]) -> Iterator[Passage]:
        """The head covered last, and the passages that follow it, as far as they are known."""
        heads = self._heads.get(space)
        if heads:
            yield from _follow(next(reversed(heads)), keys)

    def heads(self, space: Space) -> list[Head]:
        """The heads of a space, the one covered last at the end."""
        return list(self._heads.get(space, ()))

    def spaces(self) -> list[Space]:
        """All that are known."""
        return list(self._heads)

    def forget(self, space: Space) -> None:
        """Drop what is known of a space; nothing of it is gone or back then."""
        for head in list(self._heads.get(space, ())):
            self._drop(head)
        self._was = {one: (head, was) for one, (head, was) in self._was.items() if head.space != space}
        self._went.intersection_update(self._was)

    def _head(self, space: Space, salt: str | None, blocks: Sequence[BlockRef], covering: Covering) -> Head:
        size, end = covering.block_size, covering.ends[0]
        keys = covering.keys[: end // size]
        heads = self._heads.setdefault(space, OrderedDict())
        for head in reversed(heads):
            # It ends where the prompts' blocks begin to differ, so later for blocks that all begin alike.
            full = min(end, head.end) // size
            if (head.salt, head.block_size, head.keys[:full]) == (salt, size, keys[:full]):
                # What of the head is no full KV block shows in the first one of the blocks.
                first = head.children.get(blocks[0].key) if blocks else None
                begins = () if first is None else (head.keys + first.keys)[full : full + 1]
                if not begins or covering.keys[full : full + 1] == begins:
                    heads.move_to_end(head)
                    if end < head.end:
                        self._shorten(head, head, end)
                    return head
        head = Head(space, salt, size, end, keys)
        heads[head] = None
        self._add(head, head)
        if len(heads) > MAX_HEADS:
            self._drop(next(iter(heads)))
        return head

    def _add(self, head: Head, passage: Passage) -> None:
        self._by_use[passage] = head
        self._register(passage, passage.keys)
        passage.own = self._holders(passage.keys) if passage.keys else EVERY
        self._spread(head, passage)

    def _register(self, passage: Passage, keys: Iterable[bytes]) -> None:
        for key in keys:
            others = self._of.get(key)
            if others is None:
                self._of[key] = passage
            elif isinstance(others, Passage):
                self._of[key] = [others, passage]
            else:
                others.append(passage)
            self._keys += 1

    def _unregister(self, passage: Passage, keys: Iterable[bytes]) -> None:
        for key in keys:
            others = self._of[key]
            if isinstance(others, Passage):
                del self._of[key]
            else:
                others.remove(passage)
                if len(others) == 1:
                    self._of[key] = others[0]
            self._keys -= 1

    def _shorten(self, head: Head, passage: Passage, end: int) -> None:
        """A passage ends earlier than was thought: KV blocks that end behind it cover what follows it."""
        count = end // head.block_size - passage.end // head.block_size + len(passage.keys)
        rest = passage.keys[count:]
        passage.end = end
        if rest:
            self._unregister(passage, rest)
            passage.keys = passage.keys[:count]
            passage.own = self._holders(passage.keys) if passage.keys else EVERY
            for child in passage.children.values():
                self._register(child, rest)
                child.keys = rest + child.keys
                child.own = self._holders(child.keys)
            self._spread(head, passage)

    def _spread(self, head: Head, passage: Passage) -> None:
        """Who has a passage from the prompt's beginning may have changed: then of those behind it, too."""
        waiting = [passage]
        while waiting:
            one = waiting.pop()
            there = one.own if one.parent is None else one.own & one.parent.there
            if there != one.there:
                self._note(head, one)
                one.there = there
                waiting.extend(one.children.values())

    def _note(self, head: Head, passage: Passage) -> None:
        if passage not in self._was:
            self._was[passage] = head, bool(passage.there)

    def _drop(self, passage: Passage) -> None:
        """Let a passage go, and all behind it."""
        head = self._by_use[passage]
        dropped = [passage]
        for one in dropped:  # which grows meanwhile
            dropped.extend(one.children.values())
        for one in reversed(dropped):
            self._drop_leaf(head, one)

    def _drop_leaf(self, head: Head, passage: Passage) -> None:
        self._note(head, passage)
        passage.there = 0
        passage.children = {}
        self._unregister(passage, passage.keys)
        del self._by_use[passage]
        if passage.parent is not None and passage.block is not None:
            del passage.parent.children[passage.block.key]
        elif isinstance(passage, Head):
            heads = self._heads[passage.space]
            del heads[passage]
            if not heads:
                del self._heads[passage.space]

    def _bound(self, used: int) -> None:
        """Let those go that were used longest ago, but for the ones used last."""
        while len(self._by_use) > max(self._most, used) or (self._keys > self._most_keys and len(self._by_use) > used):
            oldest, head = next(iter(self._by_use.items()))
            self._drop_leaf(head, oldest)

    def _begins(self, head: Head, passage: Passage, path: Path, over: Container[Passage]) -> bool:
        """Whether, of paths that are gone, one is the shortest that tells so."""
        if self.has(head.space, path, head):
            return False
        parent = passage.parent
        return parent not in over or len(path) == 1 or self.has(head.space, path[:-1], head)


def _follow(head: Head, keys: Iterable[Hashable]) -> Iterator[Passage]:
    passage: Passage | None = head
    yield head
    for key in keys:
        passage = passage.children.get(key) if passage else None
        if passage is None:
            return
        yield passage


def _goes_on(passage: Passage) -> bool:
    return any(child.there for child in passage.children.values())
