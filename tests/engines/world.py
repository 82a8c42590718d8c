"""A small world for mirrors: prompts of blocks, engines that tell of their caches, trees that follow."""

from __future__ import annotations

import random
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass

from contextpilot_rag import BlockRef
from contextpilot_rag.engines.chain import chain, content
from contextpilot_rag.engines.covering import Covering
from contextpilot_rag.engines.kv import Event, Stored
from contextpilot_rag.engines.mirror import Changes, Holder, Mirror
from contextpilot_rag.index.tree import PrefixTree
from contextpilot_rag.testing import PagedPrefixCache
from tests.resident import resident_tokens

SIZE = 4


@dataclass(frozen=True)
class Prompt:
    """A prompt, and where its blocks are in it."""

    space: Hashable
    salt: str | None
    blocks: tuple[BlockRef, ...]
    tokens: tuple[int, ...]
    ends: tuple[int, ...]

    @property
    def covering(self) -> Covering:
        return covering(self.tokens, self.ends, self.salt)


def covering(tokens: Sequence[int], ends: tuple[int, ...], salt: str | None = None, size: int = SIZE) -> Covering:
    starts = range(0, len(tokens) - size + 1, size)
    contents = tuple(content(tokens[start : start + size]) for start in starts)
    return Covering(chain(tokens, size, salt), contents, ends, len(tokens), size)


def ids(seed: object, count: int) -> list[int]:
    """Token ids that are the same for the same seed, and most likely others for others."""
    numbers = random.Random(str(seed))
    return [numbers.randrange(1 << 40) for _ in range(count)]


def prompt(
    keys: Iterable[int], space: Hashable = "tree", salt: str | None = None, question: object = 0, head: int = 6
) -> Prompt:
    """A prompt with these blocks; each key has a length of its own."""
    blocks = tuple(BlockRef(key, 2 + key * 5 % 11) for key in keys)
    tokens = ids(("head", head), head)
    ends = [len(tokens)]
    for block in blocks:
        tokens += ids(block.key, block.tokens)
        ends.append(len(tokens))
    tokens += ids(("question", question), 7)
    return Prompt(space, salt, blocks, tuple(tokens), tuple(ends))


class Machine:
    """An engine; what it tells is kept until it is delivered."""

    def __init__(self, name: str, capacity: int) -> None:
        self.holder: Holder = (name, 0)
        self.told: list[Event] = []
        self.cache = PagedPrefixCache(SIZE, capacity, lambda events, _: self.told.extend(events))

    def has(self, one: Prompt) -> int:
        """How many KV blocks of a prompt it has, from the first on."""
        return self.cache.lookup((*one.tokens, 0), one.salt) // SIZE


class World:
    """Engines, the mirror of their caches, and the trees that follow it; in one thread."""

    def __init__(self, *machines: Machine, mirror: Mirror | None = None) -> None:
        self.machines = machines
        self.mirror = mirror or Mirror()
        self.trees: dict[Hashable, PrefixTree] = {}
        self.ends: dict[tuple[Hashable, int, tuple[Hashable, ...]], tuple[int, Prompt]] = {}
        self.covered: list[Prompt] = []

    def ask(self, one: Prompt, machine: Machine) -> int:
        """Have a prompt answered; returns what was cached."""
        self.tree(one.space).insert(one.blocks)
        return machine.cache.serve(one.tokens, one.salt, ids("answer", 3))

    def deliver(self, machine: Machine, most: int | None = None) -> Changes:
        """Tell the mirror what an engine told, or the first so many events of it."""
        most = len(machine.told) if most is None else most
        events, machine.told[:] = machine.told[:most], machine.told[most:]
        return self.follow(self.mirror.apply(machine.holder, events))

    def cover(self, one: Prompt, machine: Machine | None = None, cached: int | None = None, short: int = 0) -> Changes:
        """Tell the mirror of an answered prompt; what its blocks follow, and its last one, may seem to end earlier."""
        where = one.covering
        if short and len(one.ends) > 1:
            last = max(one.ends[-2], one.ends[-1] - short)
            where = covering(one.tokens, (max(0, one.ends[0] - short), *one.ends[1:-1], last), one.salt)
        self.covered.append(one)
        path: tuple[Hashable, ...] = ()
        for number, block in enumerate(one.blocks, 1):
            path = (*path, block.key)
            end = where.ends[number]
            known = self.ends.get((one.space, one.ends[0], path))
            self.ends[one.space, one.ends[0], path] = (min(end, known[0]) if known else end, one)
        holder = machine.holder if machine else None
        return self.follow(self.mirror.cover(one.space, one.salt, one.blocks, where, holder, cached))

    def follow(self, changes: Changes) -> Changes:
        for space, path in changes.gone:
            assert path
            self.tree(space).prune([block.key for block in path])
        for space, path in changes.back:
            self.tree(space).insert(path)
        return changes

    def tree(self, space: Hashable) -> PrefixTree:
        return self.trees.setdefault(space, PrefixTree())

    def check(self) -> None:
        """What the mirror says is what the caches have, and the trees have just that."""
        for one in self.covered:
            there = max(machine.has(one) for machine in self.machines)
            assert resident_tokens(self.mirror, one.covering.keys, SIZE) == there * SIZE
        wanted: dict[Hashable, set[tuple[Hashable, ...]]] = {space: set() for space in self.trees}
        for (space, _, path), (end, one) in self.ends.items():
            if any(machine.has(one) >= end // SIZE for machine in self.machines):
                wanted[space].add(path)
        for space, tree in self.trees.items():
            assert starts(tree) == wanted[space]


def starts(tree: PrefixTree) -> set[tuple[Hashable, ...]]:
    """Every start of a path of a tree."""
    return {tuple(path[:end]) for path in tree.paths() for end in range(1, len(path) + 1)}


# Prompts that are easy to follow by hand

ONE = ("one", 0)


def told(tokens, base=0, parent=None, extra="", start=0):
    """All full KV blocks of some tokens from one on, named by numbers."""
    count = len(tokens) // SIZE - start
    return Stored(
        tuple(range(base + start, base + start + count)),
        parent,
        tuple(tokens[start * SIZE : (start + count) * SIZE]),
        SIZE,
        (extra, *[""] * (count - 1)) if extra else (),
    )


def keys(paths):
    return [(space, [block.key for block in path]) for space, path in paths]


def block(key, tokens=8):
    return BlockRef(key, tokens)


def simple(blocks, salt=None, head=8, question=9):
    """Tokens of a prompt of blocks that are two KV blocks each, and where they stand."""
    tokens, ends = ids("simple head", head), [head]
    for one in blocks:
        tokens += ids(("simple", one.key), one.tokens)
        ends.append(len(tokens))
    tokens += ids(("simple question", question), 4)
    return tokens, covering(tokens, tuple(ends), salt)


A, B, C = block("a"), block("b"), block("c")
