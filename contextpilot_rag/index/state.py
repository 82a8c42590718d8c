"""What an index knows, as plain data and back: for snapshots, and for those who want a copy elsewhere.

It is written in parts of about a millisecond's work each, while the index goes on being used between any two of them.
So a part may tell of something that has changed since; each path was true when it was written, and a state that was
read back is always a sound one. Nothing is read or written here: whoever calls has the file, or the connection.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Iterable, Iterator, Sequence
from itertools import repeat
from operator import attrgetter
from typing import Annotated, Any

from msgspec import Meta, Struct

from ..errors import StateError
from ..types import short
from .history import History
from .node import Node
from .reports import ReportsPart
from .shadow import Standing
from .tree import PrefixTree

_PART = 500  # entries in one part, or a few more

Place = Annotated[int, Meta(ge=0)]
Positive = Annotated[int, Meta(ge=1)]


class NamespacePart(Struct, array_like=True, forbid_unknown_fields=True, tag="namespace"):
    """A namespace; the parts that follow are about it."""

    tenant: str
    model: str
    corpus: str
    head: str


class TreePart(Struct, array_like=True, forbid_unknown_fields=True, tag="tree"):
    """Some nodes of a tree, parents first and used last first, and the blocks that no earlier part knows.

    Args:
        keys: of these blocks. Each is bytes, a text or a number.
        tokens: theirs. A block that was sent with two lengths stands there twice.
        parents: of each node, the place of its parent among all nodes so far, from 1; 0: none stands before it.
        lengths: how many blocks each has.
        entries: the blocks, node after node, by their places among all blocks so far.
    """

    keys: list[Any]
    tokens: list[Positive]
    parents: list[Place]
    lengths: list[Positive]
    entries: list[Place]


class HistoryPart(Struct, array_like=True, forbid_unknown_fields=True, tag="history"):
    """Some recent requests, oldest first, and the keys of the blocks that no earlier part knows.

    Args:
        keys: of these blocks.
        requests: for each, its blocks by their places among all keys so far.
    """

    keys: list[Any]
    requests: list[list[Place]]


class UsesPart(Struct, array_like=True, forbid_unknown_fields=True, tag="uses"):
    """What makes a tree the very same, and not only one with the same paths; where all who follow a log have to agree.

    Args:
        times: of each node, in the order of its tree's parts.
        clock: the tree's count of uses.
        gone: until which count all is to be dropped.
        beside: (when, tokens) of what is no block.
        origin: the record that the tree began with.
        reports: what reports have taught.
    """

    times: list[Place]
    clock: Place
    gone: Place
    beside: list[tuple[Place, Place]]
    origin: str
    reports: ReportsPart


StatePart = NamespacePart | TreePart | HistoryPart | Standing | UsesPart


def dump_tree(tree: PrefixTree, times: list[int] | None = None) -> Iterator[TreePart]:
    """A tree in parts, some of them empty. It may be changed between two of them.

    The first so many of them tell of a tree, too: of what was used last.

    Args:
        tree: whose nodes are written.
        times: is given the count of uses of each.

    Raises:
        StateError: a block's key is neither bytes nor a text nor a number of 64 bits.
    """
    # By the nodes' ids, and not by themselves: garbage collections do not look into a dict of numbers.
    place_of = {id(tree.root): 0}
    kept = [tree.root]  # so that no other node gets the id of one that was written
    table = _Table()
    part = TreePart([], [], [], [], [])
    runs = []  # nodes in the order of use, in pieces that are sorted one at a time
    nodes = tree.nodes()
    for start in range(0, len(nodes), _PART):
        runs.append(sorted(nodes[start : start + _PART], key=_last_used, reverse=True))
        yield TreePart([], [], [], [], [])
    for node in heapq.merge(*runs, key=_last_used, reverse=True):
        if not tree.holds(node):
            continue
        unwritten = []  # the node, and what was split off above it since
        while id(node) not in place_of:
            unwritten.append(node)
            node = node.parent  # noqa: PLW2901
        for new in reversed(unwritten):
            part.parents.append(place_of[id(new.parent)])
            part.lengths.append(len(new.blocks))
            place_of[id(new)] = len(kept)
            if times is not None:
                times.append(new.used_at)
            kept.append(new)
            part.entries += map(table.place, new.blocks, new.weights, repeat(part))
        if len(part.entries) >= _PART:
            yield part
            part = TreePart([], [], [], [], [])
    yield part


_last_used = attrgetter("used_at")


class _Table:
    """Places of blocks among all that were written. Nearly all have one length each."""

    __slots__ = ("_others", "_places", "_size", "_tokens")

    def __init__(self) -> None:
        self._places: dict[Hashable, int] = {}
        self._tokens: dict[Hashable, int] = {}
        self._others: dict[tuple[Hashable, int], int] = {}
        self._size = 0

    def place(self, key: Hashable, tokens: int, part: TreePart) -> int:
        """Where a block stands; a new one is added to the part."""
        place = self._places.get(key)
        if place is not None:
            if self._tokens[key] == tokens:
                return place
            place = self._others.get((key, tokens))
            if place is not None:
                return place
            self._others[key, tokens] = place = self._size
        else:
            self._places[key] = place = self._size
            self._tokens[key] = tokens
        self._size += 1
        part.keys.append(_plain(key))
        part.tokens.append(tokens)
        return place


def load_tree(parts: Iterable[TreePart], capacity_tokens: int | None = None, max_blocks: int = 1_000_000) -> PrefixTree:
    """The tree that parts tell of, within limits of its own.

    Raises:
        StateError: they tell of none.
    """
    tree = PrefixTree(capacity_tokens, max_blocks)
    nodes = [tree.root]
    keys: list[Hashable] = []
    tokens: list[int] = []
    one_of: dict[int, int] = {}  # equal numbers as one object: there are few different ones, and many blocks
    try:
        for part in parts:
            _check(part.keys)
            keys += part.keys
            tokens += map(one_of.setdefault, part.tokens, part.tokens)
            blocks = list(map(keys.__getitem__, part.entries))
            weights = list(map(tokens.__getitem__, part.entries))
            start = 0
            for place, length in zip(part.parents, part.lengths, strict=True):
                parent = nodes[place]
                end = start + length
                node = Node(parent, blocks[start:end], weights[start:end])
                if node.blocks[0] in parent.children:
                    raise StateError("a saved tree has two branches that begin alike")
                parent.adopt(node)
                nodes.append(node)
                start = end
            if start != len(blocks) or len(keys) != len(tokens):
                raise StateError("a saved tree's columns are of different lengths")
    except (IndexError, ValueError) as error:
        raise error if isinstance(error, StateError) else StateError("a saved tree points beyond itself") from error
    _check_paths(tree.root)
    tree.take_over(nodes[1:])
    return tree


def join(parts: Iterable[TreePart]) -> TreePart:
    """A tree's parts as one."""
    whole = TreePart([], [], [], [], [])
    for part in parts:
        whole.keys += part.keys
        whole.tokens += part.tokens
        whole.parents += part.parents
        whole.lengths += part.lengths
        whole.entries += part.entries
    return whole


def dump_history(history: History) -> Iterator[HistoryPart]:
    """A history in parts.

    Raises:
        StateError: a block's key is neither bytes nor a text nor a number of 64 bits.
    """
    table: dict[Hashable, int] = {}
    part, size = HistoryPart([], []), 0
    for request in history.requests():
        places = []
        for key in request:
            place = table.get(key)
            if place is None:
                place = table[key] = len(table)
                part.keys.append(_plain(key))
            places.append(place)
        part.requests.append(places)
        size += len(places) + 1
        if size >= _PART:
            yield part
            part, size = HistoryPart([], []), 0
    yield part


def load_history(parts: Iterable[HistoryPart], history: History) -> None:
    """Fill an empty history, within its own limits.

    Raises:
        StateError: the parts tell of none.
    """
    keys: list[Hashable] = []
    for part in parts:
        _check(part.keys)
        keys += part.keys
        for places in part.requests:
            if len(set(places)) != len(places) or max(places, default=-1) >= len(keys):
                raise StateError("a saved request has a block twice, or one that is not there")
            history.add([keys[place] for place in places])


def _plain(key: Hashable) -> Hashable:
    kind = type(key)
    if kind is bytes or kind is str or (kind is int and -(2**63) <= key < 2**63):  # type: ignore[operator]
        return key
    raise StateError(f"a block's key {short(key)} cannot be saved: it is neither bytes nor str nor a 64-bit int")


def _check(keys: Sequence[Any]) -> None:
    if not set(map(type, keys)) <= {bytes, str, int}:
        raise StateError("a saved block's key is neither bytes nor str nor int")


def _check_paths(root: Node) -> None:
    """No path holds a block twice. Walks depth-first, so that it takes linear time whatever the tree looks like."""
    above: set[Hashable] = set()
    stack = [root]
    while stack:
        node = stack[-1]
        if node.used_at:  # the second time: all that is below it has been seen
            node.used_at = 0
            above.difference_update(node.blocks)
            stack.pop()
            continue
        node.used_at = 1
        above.update(node.blocks)
        for child in node.children.values():
            blocks = child.blocks
            if not above.isdisjoint(blocks) or (len(blocks) > 1 and len(set(blocks)) != len(blocks)):
                raise StateError("a saved path holds a block twice")
            if child.children:
                stack.append(child)
