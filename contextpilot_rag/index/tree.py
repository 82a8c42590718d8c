"""PrefixTree: the index's picture of one engine's prefix cache.

Every root path is a sequence of blocks that the engine is believed to hold. The tree is path-compressed (as in a radix
tree): a node holds a run of blocks, so a thousand different contexts cost about a thousand nodes, not a thousand times
their length.

Each run has been used in one piece, so recency belongs to nodes. They stand in one list, least recently used first, and
a path is touched from its end to its start: a node always stands before its parent, so the first in the list is always
a leaf, and eviction takes the tail of what was used longest ago, as the engines do.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass

from ..types import BlockRef
from .node import Node
from .placement import PlacementRule

MAX_VISITED = 10_000


@dataclass(frozen=True, slots=True)
class Prefix:
    """A cached prefix that a request can use.

    Args:
        ranks: positions of its blocks in the request, in cached order.
        tokens: their tokens, by the request's own counts.
    """

    ranks: tuple[int, ...] = ()
    tokens: int = 0


class PrefixTree:
    """Block sequences believed to be cached, up to a capacity. Not thread-safe: its owner holds a lock.

    Args:
        capacity_tokens: what the engine's cache holds. None: no limit in tokens.
        max_blocks: entries kept in memory, whatever the capacity.

    >>> a, b, c = BlockRef("a", 100), BlockRef("b", 50), BlockRef("c", 70)
    >>> tree = PrefixTree()
    >>> tree.insert([a, b])
    >>> tree.heaviest_prefix([c, b, a])
    Prefix(ranks=(2, 1), tokens=150)
    """

    def __init__(self, capacity_tokens: int | None = None, max_blocks: int = 1_000_000) -> None:
        self.capacity_tokens = capacity_tokens
        self.max_blocks = max_blocks
        self._root = Node(None, [], [])
        self._by_use: OrderedDict[Node, None] = OrderedDict()
        self._clock = 0
        self.tokens = 0
        self.blocks = 0

    def __del__(self) -> None:
        """Nodes and their parents hold each other; without that, they are freed at once, and not by the collector."""
        del self._root.parent
        for node in self._by_use:
            del node.parent

    def heaviest_prefix(
        self, request: Sequence[BlockRef], rule: PlacementRule | None = None, max_visited: int = MAX_VISITED
    ) -> Prefix:
        """The root path that weighs most among those made of the request's blocks alone.

        Exact up to ``max_visited`` nodes; after that, the best found so far. Of equal weights the one closest to the
        retriever's order wins. The search follows only children that the request holds.

        Args:
            request: distinct blocks, best first.
            rule: which placements are allowed; None allows all.
            max_visited: bound on the nodes looked at.
        """
        rank_of = {block.key: rank for rank, block in enumerate(request)}
        if rule is None:
            node, length, tokens = self._heaviest(request, rank_of, max_visited)
        else:
            node, length, tokens = self._heaviest_within(request, rank_of, rule, max_visited)
        return Prefix(tuple([rank_of[block] for block in self._path_to(node, length)]), tokens)

    def _heaviest(
        self, request: Sequence[BlockRef], rank_of: dict[Hashable, int], max_visited: int
    ) -> tuple[Node, int, int]:
        """The end of the heaviest path in free order: a node, how far into it, and the tokens. This is the hot loop."""
        best_node, best_tokens = self._root, 0
        weight_of = {block.key: block.tokens for block in request}
        weigh = weight_of.get
        worst_first = list(reversed(rank_of))
        stack = [(child, 0) for child in _held(self._root.children, rank_of, worst_first)]
        visited = 0
        while stack and visited < max_visited:
            node, tokens = stack.pop()
            visited += 1
            for weight in map(weigh, node.blocks):
                if weight is None:
                    break
                tokens += weight
            else:
                if node.children:
                    # the best rank last, so that it is popped first
                    for child in _held(node.children, rank_of, worst_first):
                        stack.append((child, tokens))  # noqa: PERF401 - a generator would cost more for so few
            if tokens > best_tokens:
                best_node, best_tokens = node, tokens
        length = 0
        for block in best_node.blocks:
            if block not in weight_of:
                break
            length += 1
        return best_node, length, best_tokens

    def _heaviest_within(
        self, request: Sequence[BlockRef], rank_of: dict[Hashable, int], rule: PlacementRule, max_visited: int
    ) -> tuple[Node, int, int]:
        """The same under a placement rule, which needs to know where each block would stand."""
        best_node, best_length, best_tokens = self._root, 0, 0
        worst_first = list(reversed(rank_of))
        # (node, tokens before it, position of its first block, ranks placed before it)
        stack = [(self._root, 0, 0, 0)]
        visited = 0
        while stack and visited < max_visited:
            node, tokens, position, placed = stack.pop()
            visited += 1
            length = 0
            for block in node.blocks:
                rank = rank_of.get(block)
                if rank is None or not rule.allows(rank, position, placed):
                    break
                tokens += request[rank].tokens
                position += 1
                length += 1
                placed |= 1 << rank
            if tokens > best_tokens:
                best_node, best_length, best_tokens = node, length, tokens
            if length == len(node.blocks) and node.children:
                held = _held(node.children, rank_of, worst_first)
                stack.extend((child, tokens, position, placed) for child in held)
        return best_node, best_length, best_tokens

    def cached_tokens(self, sequence: Sequence[BlockRef]) -> tuple[int, int]:
        """How much of a sequence, sent in exactly this order, is cached: (blocks, tokens)."""
        matched, tokens = 0, 0
        for block in self._match(sequence)[2]:
            matched += 1
            tokens += block.tokens
        return matched, tokens

    def insert(self, sequence: Sequence[BlockRef]) -> None:
        """Record that the engine has been sent this sequence; evict what no longer fits.

        The sequence itself stays, even where it alone is larger than the capacity.

        Args:
            sequence: distinct blocks in prompt order.
        """
        self._clock += 1
        node, offset, matched = self._match(sequence)
        if offset < len(node.blocks):
            node = self._split(node, offset)
        rest = sequence[len(matched) :]
        if rest:
            leaf = Node(node, [block.key for block in rest], [block.tokens for block in rest])
            node.adopt(leaf)
            self._by_use[leaf] = None
            self.tokens += leaf.tokens
            self.blocks += len(leaf.blocks)
            node = leaf
        self._touch(node)
        self._evict()

    def touch(self, sequence: Sequence[BlockRef]) -> None:
        """Record that the engine has used the cached part of this sequence, without adding anything."""
        self._clock += 1
        node, offset, _ = self._match(sequence)
        if offset < len(node.blocks):
            node = self._split(node, offset)
        self._touch(node)

    def prune(self, path: Sequence[Hashable]) -> int:
        """Forget a path's last block and all that follows it there; nothing if the path is not there whole.

        Args:
            path: keys of distinct blocks in prompt order.

        Returns:
            How many entries were forgotten.
        """
        node, offset, matched = self._match([BlockRef(key, 0) for key in path])
        if not path or len(matched) < len(path):
            return 0
        before = self.blocks
        below = list(node.children.values())
        node.disown()
        for child in below:  # which grows meanwhile
            below.extend(child.children.values())
            child.disown()  # so that it is freed at once, and not by the collector
            del self._by_use[child]
            self.tokens -= child.tokens
            self.blocks -= len(child.blocks)
        first, gone = node.blocks[0], sum(node.weights[offset - 1 :])
        self.tokens -= gone
        self.blocks -= len(node.blocks) - offset + 1
        node.tokens -= gone
        del node.blocks[offset - 1 :], node.weights[offset - 1 :]
        if not node.blocks:
            del self._by_use[node]
            del node.parent.children[first]
        return before - self.blocks

    def clear(self) -> None:
        """Forget everything."""
        self._root = Node(None, [], [])
        self._by_use.clear()
        self.tokens = self.blocks = 0

    def copy(self, capacity_tokens: int | None = None, max_blocks: int = 1_000_000) -> PrefixTree:
        """A tree of its own with the same sequences, used in the same order, and with limits of its own."""
        other = PrefixTree(capacity_tokens, max_blocks)
        twin = {self._root: other._root}
        for node in reversed(self._by_use):  # a node stands before its parent: parents first, then
            parent = twin[node.parent]
            twin[node] = copied = Node(parent, node.blocks.copy(), node.weights.copy())
            copied.used_at = node.used_at
            parent.adopt(copied)
        for node in self._by_use:
            other._by_use[twin[node]] = None
        other.tokens, other.blocks, other._clock = self.tokens, self.blocks, self._clock
        return other

    @property
    def root(self) -> Node:
        """Where every path begins; it holds no block."""
        return self._root

    def nodes(self) -> list[Node]:
        """All nodes but the root, in no order: following the list of use would take some ten times as long."""
        return list(dict.keys(self._by_use))

    def holds(self, node: Node) -> bool:
        """Whether a node is (still) one of this tree."""
        return node in self._by_use

    def take_over(self, nodes: Sequence[Node]) -> None:
        """Fill an empty tree with nodes that hang on its root: used last first, parents first; evict as ever."""
        for node in reversed(nodes):
            self._clock += 1
            node.used_at = self._clock
            self._by_use[node] = None
        self.tokens = sum([node.tokens for node in nodes])
        self.blocks = sum([len(node.blocks) for node in nodes])
        self._clock += 1  # none of them is in use just now
        self._evict()

    def dismantle(self, most: int) -> bool:
        """Free up to so many nodes of a tree that nobody asks any more; False: all are freed."""
        for _ in range(min(most, len(self._by_use))):
            node, _ = self._by_use.popitem(last=False)  # a leaf: nodes stand before their parents
            del node.parent.children[node.blocks[0]]
        return bool(self._by_use)

    def paths(self) -> Iterator[list[Hashable]]:
        """Every root-to-leaf sequence of block keys, for tests and for looking at a tree."""
        for node in self._by_use:
            if not node.children:
                yield self._path_to(node, len(node.blocks))

    def _match(self, sequence: Sequence[BlockRef]) -> tuple[Node, int, Sequence[BlockRef]]:
        """The deepest node that the sequence reaches, how far into it, and the part of the sequence that matched."""
        node, position = self._root, 0
        while position < len(sequence) and node.children:
            child = node.children.get(sequence[position].key)
            if child is None:
                break
            offset = 0
            for block, wanted in zip(child.blocks, sequence[position : position + len(child.blocks)], strict=False):
                if block != wanted.key:
                    break
                offset += 1
            node = child
            position += offset
            if offset < len(child.blocks):
                return node, offset, sequence[:position]
        return node, len(node.blocks), sequence[:position]

    def _split(self, node: Node, offset: int) -> Node:
        """Cut a node in two; returns the upper half. The lower keeps its place in the list, the upper follows it."""
        upper = Node(node.parent, node.blocks[:offset], node.weights[:offset])
        node.parent.adopt(upper)
        node.blocks, node.weights = node.blocks[offset:], node.weights[offset:]
        node.tokens -= upper.tokens
        node.parent = upper
        upper.adopt(node)
        # The caller touches the upper half next, which puts it at the end: behind its child in any case.
        self._by_use[upper] = None
        return upper

    def _touch(self, node: Node) -> None:
        while node is not self._root:
            node.used_at = self._clock
            self._by_use.move_to_end(node)
            node = node.parent

    def _evict(self) -> None:
        while (
            self.capacity_tokens is not None and self.tokens > self.capacity_tokens
        ) or self.blocks > self.max_blocks:
            node = next(iter(self._by_use))
            if node.used_at == self._clock:
                return
            last = node.blocks.pop()
            weight = node.weights.pop()
            node.tokens -= weight
            self.tokens -= weight
            self.blocks -= 1
            if not node.blocks:
                del self._by_use[node]
                del node.parent.children[last]

    def _path_to(self, node: Node, length: int) -> list[Hashable]:
        path = node.blocks[:length][::-1]
        while node is not self._root:
            node = node.parent
            path.extend(reversed(node.blocks))
        path.reverse()
        return path


def _held(
    children: dict[Hashable, Node], rank_of: dict[Hashable, int], worst_first: Sequence[Hashable]
) -> Sequence[Node]:
    """The children whose first block the request holds, worst rank first. Costs the smaller of the two."""
    if len(children) * 2 > len(rank_of):
        return [children[first] for first in worst_first if first in children]
    held = [first for first in children if first in rank_of]
    if len(held) > 1:
        held.sort(key=rank_of.__getitem__, reverse=True)
    return [children[first] for first in held]
