"""PrefixTree: the index's picture of one engine's prefix cache.

Every root path is a sequence of blocks that the engine is believed to hold. The tree is path-compressed (as in a radix
tree): a node holds a run of blocks, so a thousand different contexts cost about a thousand nodes, not a thousand times
their length.

Each run has been used in one piece, so recency belongs to nodes. They stand in one list, least recently used first, and
a path is touched from its end to its start: a node always stands before its parent, so the first in the list is always
a leaf, and eviction takes the tail of what was used longest ago, as the engines do. An engine's cache also holds what
is no block (questions, answers, what fills up its pages). Under a capacity these tokens stand beside the nodes, by the
same clock, and go by the same rule.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Hashable, Iterator, Sequence
from itertools import islice

from ..types import BlockRef
from .believed import Prefix
from .node import Node
from .placement import PlacementRule
from .search import heaviest, heaviest_within

MAX_VISITED = 10_000
_MOST_WALKED = 500
_SPANS = 512  # what stands beside the nodes is told apart in so many spans of time, or a few times as many


class PrefixTree:
    """Block sequences believed to be cached, up to a capacity. Not thread-safe: its owner holds a lock.

    Args:
        capacity_tokens: what the engine's cache holds. None: no limit in tokens.
        max_blocks: entries kept in memory, whatever the capacity.
        pace: entries that one call drops at most, or a few more, beside as many as it adds; what is still to be dropped
            goes with the calls that follow, so that none takes long. None: all at once.

    >>> a, b, c = BlockRef("a", 100), BlockRef("b", 50), BlockRef("c", 70)
    >>> tree = PrefixTree()
    >>> tree.insert([a, b])
    >>> tree.heaviest_prefix([c, b, a])
    Prefix(ranks=(2, 1), tokens=150)
    """

    def __init__(
        self, capacity_tokens: int | None = None, max_blocks: int = 1_000_000, pace: int | None = None
    ) -> None:
        self.capacity_tokens = capacity_tokens
        self.max_blocks = max_blocks
        self.pace = pace
        self._gone = 0  # what was used no later is to be dropped
        self._root = Node(None, [], [])
        self._by_use: OrderedDict[Node, None] = OrderedDict()
        self._clock = 0
        self.tokens: int = 0
        self.blocks: int = 0
        self._beside: deque[tuple[int, int]] = deque()  # (when, tokens) of what is no block, oldest first
        self.beside: int = 0

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
            node, length, tokens = heaviest(self._root, request, rank_of, max_visited)
        else:
            node, length, tokens = heaviest_within(self._root, request, rank_of, rule, max_visited)
        return Prefix(tuple([rank_of[block] for block in self._path_to(node, length)]), tokens)

    def cached_tokens(self, sequence: Sequence[BlockRef]) -> tuple[int, int]:
        """How much of a sequence, sent in exactly this order, is cached: (blocks, tokens)."""
        matched, tokens = 0, 0
        for block in self._match(sequence)[2]:
            matched += 1
            tokens += block.tokens
        return matched, tokens

    def insert(self, sequence: Sequence[BlockRef], beside: int = 0) -> None:
        """Record that the engine has been sent this sequence; evict what no longer fits.

        The sequence itself stays, even where it alone is larger than the capacity.

        Args:
            sequence: distinct blocks in prompt order.
            beside: tokens that the engine caches with it and that nobody finds again.
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
        if beside:
            self._add_beside(beside)
        self._evict(len(rest))

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
            self._uncount(child)
        first, gone = node.blocks[0], sum(node.weights[offset - 1 :])
        self.tokens -= gone
        self.blocks -= len(node.blocks) - offset + 1
        node.tokens -= gone
        del node.blocks[offset - 1 :], node.weights[offset - 1 :]
        if not node.blocks:
            del self._by_use[node]
            del node.parent.children[first]
        return before - self.blocks

    def resize(self, capacity_tokens: int | None) -> None:
        """Have another capacity from now on; evict what no longer fits."""
        self.capacity_tokens = capacity_tokens
        self._clock += 1  # nothing is in use just now
        self._evict()

    def forget_until(self, time: int) -> int:
        """Forget all that was used at that count of uses, or before, and not since.

        Returns:
            How many entries were forgotten; at a pace, the others follow.
        """
        before = self.blocks
        self._gone = max(self._gone, time)
        while self._beside and self._beside[0][0] <= time:
            self.beside -= self._beside.popleft()[1]
        self._evict()
        return before - self.blocks

    def settle(self) -> bool:
        """Drop some of what is to be dropped; False: nothing is left of it."""
        return not self._evict()

    def uses(self, sequence: Sequence[BlockRef]) -> list[tuple[int, int]]:
        """When the cached part of a sequence was used last: (blocks up to here, count of uses), from its start.

        The counts never rise along a path.
        """
        found: list[tuple[int, int]] = []
        node, offset, matched = self._match(sequence)
        end = len(matched)
        while node is not self._root:
            found.append((end, node.used_at))
            end -= offset
            node = node.parent
            offset = len(node.blocks)
        found.reverse()
        return found

    def used_between(self, since: int, until: int, *, most: bool = False) -> int:
        """Tokens, also of what is no block, whose last use came after the one count of uses and before the other.

        What was used after both, too, may have been used in between: it counts only for the ``most`` that it can be.

        Exact where few nodes lie on either side of the first count; else as many as at the pace of the latest uses.
        """
        newer = after = again = 0
        at = self._clock
        for node in islice(reversed(self._by_use), _MOST_WALKED):
            at = node.used_at
            if at <= since:
                break
            if at < until:
                newer += node.tokens
            else:
                after += node.tokens
                again += node.tokens * (at > until)
        if at > since and len(self._by_use) > _MOST_WALKED:
            older = 0
            for node in islice(self._by_use, _MOST_WALKED):
                if node.used_at > since:
                    newer = max(0, self.tokens - older - after)
                    break
                older += node.tokens
            else:
                newer = newer * (until - since) // max(1, until - at)
        for time, tokens in reversed(self._beside):
            if time <= since:
                break
            newer += tokens * (time < until)
        return newer + again * most

    @property
    def clock(self) -> int:
        """The count of uses."""
        return self._clock

    def clear(self) -> None:
        """Forget everything."""
        self._root = Node(None, [], [])
        self._by_use.clear()
        self._beside.clear()
        self.tokens = self.blocks = self.beside = self._gone = 0

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
        other._beside, other.beside, other._gone = self._beside.copy(), self.beside, self._gone
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

    def resume(self, times: Sequence[int], clock: int, gone: int, beside: Sequence[tuple[int, int]]) -> None:
        """Have the times of another tree with the same nodes, or more, used last first, and its `standing`."""
        for node, time in zip(reversed(self._by_use), times, strict=False):
            node.used_at = time
        self._clock, self._gone, self._beside = clock, gone, deque(beside)
        self.beside = sum(tokens for _, tokens in beside)

    @property
    def standing(self) -> tuple[int, int, list[tuple[int, int]]]:
        """The count of uses, that until which all is to be dropped, and (when, tokens) of what is no block."""
        return self._clock, self._gone, list(self._beside)

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
        self._by_use[upper] = None  # at the end, as the caller touches it next: behind its child in any case
        return upper

    def _touch(self, node: Node) -> None:
        while node is not self._root:
            node.used_at = self._clock
            self._by_use.move_to_end(node)
            node = node.parent

    def _add_beside(self, tokens: int) -> None:
        spans = self._beside
        self.beside += tokens
        if spans and (self._clock - spans[-1][0]) * _SPANS < self._clock - spans[0][0]:
            tokens += spans.pop()[1]
        spans.append((self._clock, tokens))

    def _evict(self, added: int = 0) -> bool:
        """Drop what is gone and what no longer fits, at the pace that is set; whether that is all."""
        least = None if self.pace is None else self.blocks - added - self.pace
        while True:
            node = next(iter(self._by_use), None)
            gone = node is not None and node.used_at <= self._gone
            over = 0 if self.capacity_tokens is None else self.tokens + self.beside - self.capacity_tokens
            if not gone and over <= 0 and self.blocks <= self.max_blocks:
                return True
            if least is not None and self.blocks <= least:
                return False
            if not gone and over > 0 and self._beside and (node is None or self._beside[0][0] <= node.used_at):
                time, tokens = self._beside.popleft()
                self.beside -= tokens
                if tokens > over:  # the rest is still there
                    self._beside.appendleft((time, tokens - over))
                    self.beside += tokens - over
                continue
            if node is None or (not gone and node.used_at == self._clock):
                return True
            if gone or over >= node.tokens:
                del node.parent.children[node.blocks[0]]
                self._uncount(node)
                continue
            last = node.blocks.pop()
            weight = node.weights.pop()
            node.tokens -= weight
            self.tokens -= weight
            self.blocks -= 1
            if 0 < over < weight:  # the engine drops pages, not blocks: the rest of this one goes next
                self._beside.appendleft((node.used_at, weight - over))
                self.beside += weight - over
            if not node.blocks:
                del self._by_use[node]
                del node.parent.children[last]

    def _uncount(self, node: Node) -> None:
        del self._by_use[node]
        self.tokens -= node.tokens
        self.blocks -= len(node.blocks)

    def _path_to(self, node: Node, length: int) -> list[Hashable]:
        path = node.blocks[:length][::-1]
        while node is not self._root:
            node = node.parent
            path.extend(reversed(node.blocks))
        path.reverse()
        return path
