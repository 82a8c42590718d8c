"""The batch planner: an order for each request of a batch, and the order of sending.

All requests are known, so what they share can be found before anything is sent. Think of a tree whose edges hold sets
of blocks: sent depth first, each edge is computed once. `grow` finds a forest that saves much, `lay_out` puts relevance
first where it costs nothing, and a depth-first walk makes the cache's size matter little.

The idea of planning a batch by clustering its contexts is from "ContextPilot: Fast Long-Context Inference via Context
Reuse" (MLSys 2026, arXiv 2511.03475); the objective (tokens that edges save), its search and the layout are not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence

import numpy as np

from ..batch import Plan
from ..types import Alignment, BlockRef, Namespace, OrderBudget, Request, Rule
from .align import align, placement_rule
from .ceiling import ceiling_tokens
from .fixed import fixed_order
from .forest import Blocks, SetForest
from .grow import PIECE, Attempts, grow
from .layout import lay_out
from .merge import Worth
from .reuse import Ints, Sequences
from .tree import PrefixTree
from .watch import Watch


def plan_batch(
    requests: Sequence[Request],
    cached: Callable[[Namespace], PrefixTree | None] = lambda _: None,
    *,
    watch: Watch | None = None,
    ceiling: bool = False,
    piece: int = PIECE,
) -> Plan[Alignment]:
    """Plan requests that are all known; no two namespaces share anything.

    The set of blocks of each request never changes, and each request stands in the plan exactly once.

    Args:
        requests: in any order; their budgets say how much of the retriever's order may be given up.
        cached: what the engine holds for a namespace before the first request is sent. The trees are not changed.
        watch: says when the time is up; the best plan found by then is returned.
        ceiling: also work out what no plan can pass; takes time in proportion to the square of the number of requests.
        piece: more requests than this are not compared each with each.

    >>> a, b, c, d = (BlockRef(name, 100) for name in "abcd")
    >>> plan = plan_batch([Request((a, b), key="1"), Request((c, d), key="2"), Request((d, b, a), key="3")])
    >>> [alignment.request.key for alignment in plan], plan.predicted_cached_tokens
    (['1', '3', '2'], 200)
    """
    watch = watch or Watch()
    spaces: dict[Namespace, dict[OrderBudget, list[Request]]] = {}
    for request in requests:
        spaces.setdefault(request.namespace, {}).setdefault(request.budget, []).append(request)
    trees = {namespace: cached(namespace) for namespace in spaces}
    parts = {
        namespace: [_Part(members, budget, trees[namespace]) for budget, members in budgets.items()]
        for namespace, budgets in spaces.items()
    }
    every = [part for batch in parts.values() for part in batch]
    finished = [part.grow(watch, piece) for part in every]
    hopeful = [part for part in every if watch.limited and part.attempts.useful]
    while hopeful and not watch.was_late:
        for part in hopeful:
            part.attempts.once(watch)
    alignments: list[Alignment] = []
    sources: list[int] = []
    bound = 0
    for batch in parts.values():
        whole, orders = batch[0], batch[0].orders()
        if len(batch) > 1:  # other budgets share the cache, too
            whole, orders = whole.with_others(orders, batch[1:])
        found = whole.sent(orders)
        sources += [source + len(alignments) if source >= 0 else -1 for source in found.sources]
        alignments += found.alignments
        bound += whole.ceiling() if ceiling else 0
    return Plan(tuple(alignments), tuple(sources), bound if ceiling else None, all(finished))


class _Part:
    """Requests of one namespace, with their blocks as numbers; those of one budget are planned together."""

    def __init__(self, requests: Sequence[Request], budget: OrderBudget, tree: PrefixTree | None) -> None:
        self._requests = requests
        self._budget = budget
        self._tree = tree
        number: dict[Hashable, int] = {}
        self._refs: list[BlockRef] = []
        self._retrieved: list[tuple[int, ...]] = []
        for request in requests:
            for block in request.blocks:
                if block.key not in number:
                    number[block.key] = len(self._refs)
                    self._refs.append(block)
            self._retrieved.append(tuple([number[block.key] for block in request.blocks]))
        self._tokens = [request.tokens for request in requests]
        self._as_retrieved = Sequences(self._retrieved)
        # Sums have to stay exact in 32 bits, so where blocks that are shared are very long, all count less, and their
        # ratios stay. A block of one request alone is never saved, and counts as what there is room for.
        bits = max(1, 24 - max(map(len, self._retrieved), default=0).bit_length())
        times = Counter(block for order in self._retrieved for block in order)
        shared = [ref.tokens for block, ref in enumerate(self._refs) if times[block] > 1 or tree is not None]
        self._shift = max(0, max(shared, default=0).bit_length() - bits)
        most = (1 << bits) - 1
        self._weights = [min(max(1, ref.tokens >> self._shift), most) for ref in self._refs]

    def with_others(
        self, orders: Sequence[tuple[int, ...]], others: Sequence[_Part]
    ) -> tuple[_Part, list[tuple[int, ...]]]:
        """This part and others of the same namespace as one, with all their orders."""
        whole = _Part([request for part in (self, *others) for request in part._requests], self._budget, self._tree)  # noqa: SLF001
        number = {ref.key: place for place, ref in enumerate(whole._refs)}
        mine = [(self, order) for order in orders]
        theirs = [(part, order) for part in others for order in part.orders()]
        return whole, [tuple([number[part._refs[block].key] for block in order]) for part, order in mine + theirs]  # noqa: SLF001

    def grow(self, watch: Watch, piece: int) -> bool:
        """Find out what the requests can share; whether there was time for it."""
        self._member_groups = self._groups()
        leaves = [frozenset(self._retrieved[group[0]]) for group in self._member_groups]
        forest = SetForest(leaves, self._weights)
        min_gain = self._budget.min_gain if self._budget.order == "balanced" else 0.0
        touched = [sum(self._tokens[member] for member in group) >> self._shift for group in self._member_groups]
        worth = Worth(min_gain, touched, None if self._tree is None else self._cached)
        self.attempts = Attempts(forest, worth, piece if self._searched else 0)
        self._finished = not self._searched or grow(forest, worth, watch, piece)
        return self._finished

    def orders(self) -> Sequence[tuple[int, ...]]:
        """For each request, the order that saves most."""
        if self._budget.order == "retrieved":
            return self._retrieved
        if self._budget.order == "fixed":
            return self._fixed()
        hasty = not self._finished and self._budget.order == "throughput"
        popularity = self._popularity() if hasty else None
        orders, trees = lay_out(self.attempts.best, self._member_groups, self._retrieved, self._first, popularity)
        if placement_rule(self._budget) is not None:
            return self._within_limits(Sequences(orders).sending.tolist())
        idle = set() if hasty else self._trees_without_gain(orders, trees)
        if not idle:
            return orders
        return [  # where too little is gained, nothing is touched
            retrieved if tree in idle else order
            for order, retrieved, tree in zip(orders, self._retrieved, trees, strict=True)
        ]

    def sent(self, orders: Sequence[tuple[int, ...]]) -> Plan[Alignment]:
        """These orders in the order of sending, or the retriever's if they save no more than those; fixed ones stay."""
        plan = self._sent(orders)
        if plan.predicted_cached_tokens <= plan.retrieved_cached_tokens:
            fixed = [request.budget.order == "fixed" for request in self._requests]
            each = zip(fixed, orders, self._retrieved, strict=True)
            return self._sent([order if stays else retrieved for stays, order, retrieved in each])
        return plan

    def ceiling(self) -> int:
        """Tokens that no orders can save more of."""
        sets = [frozenset(order) for order in self._retrieved]
        cached = [sum(self._refs[number].tokens for number in self._first(blocks)) for blocks in sets]
        return ceiling_tokens(sets, [ref.tokens for ref in self._refs], cached)

    @property
    def _searched(self) -> bool:
        """Whether the orders depend on what the requests share."""
        return self._budget.order not in {"retrieved", "fixed"}

    def _fixed(self) -> list[tuple[int, ...]]:
        placement = placement_rule(self._budget)
        return [
            tuple([retrieved[rank] for rank in fixed_order(request.blocks, placement)])
            for request, retrieved in zip(self._requests, self._retrieved, strict=True)
        ]

    def _groups(self) -> list[list[int]]:
        """Requests with the same blocks, together; where that alone is not worth a new order, with the same order."""
        groups: dict[Blocks, list[int]] = {}
        for position, order in enumerate(self._retrieved):
            groups.setdefault(frozenset(order), []).append(position)
        if self._budget.order != "balanced":
            return list(groups.values())
        found: list[list[int]] = []
        for group in groups.values():
            if len(group) - 1 >= self._budget.min_gain * len(group) * (1 - 1e-9):
                found.append(group)
                continue
            alike: dict[tuple[int, ...], list[int]] = {}
            for position in group:
                alike.setdefault(self._retrieved[position], []).append(position)
            found += alike.values()
        return found

    def _popularity(self) -> list[int]:
        counts = Counter(block for order in self._retrieved for block in order)
        return [self._weights[block] * (counts[block] - 1) for block in range(len(self._refs))]

    def _first(self, blocks: Blocks) -> list[int]:
        """The heaviest cached prefix that can be made of some blocks."""
        if self._tree is None:
            return []
        numbers = sorted(blocks)
        prefix = self._tree.heaviest_prefix([self._refs[number] for number in numbers])
        return [numbers[rank] for rank in prefix.ranks]

    def _cached(self, blocks: Blocks) -> int:
        return sum(self._weights[number] for number in self._first(blocks))

    def _within_limits(self, sending: Sequence[int]) -> list[tuple[int, ...]]:
        """Orders that keep protect_top and max_displacement: each request is aligned to those sent before it."""
        tree = PrefixTree(None, 10**9) if self._tree is None else self._tree.copy(None, 10**9)
        orders: list[tuple[int, ...]] = [()] * len(sending)
        for position in sending:
            request = self._requests[position]
            alignment = align(request, tree)
            tree.insert([request.blocks[rank] for rank in alignment.order])
            orders[position] = tuple([self._retrieved[position][rank] for rank in alignment.order])
        return orders

    def _sent(self, orders: Sequence[tuple[int, ...]]) -> Plan[Alignment]:
        """These orders in the order of sending, with what each finds cached."""
        sequences = Sequences(orders)
        already = [self._already_cached(order) for order in orders]
        sending = self._cached_first(sequences, already)
        position = np.empty(len(orders), np.int64)
        position[sending] = np.arange(len(orders))
        reuse, before = sequences.reuse(position), self._as_retrieved.reuse(position)
        alignments, sources = [], []
        for member in sending.tolist():
            kept = max(int(before.blocks[member]), self._already_cached(self._retrieved[member]))
            shared, source = int(reuse.blocks[member]), int(reuse.source[member])
            alignments.append(self._alignment(member, orders[member], max(shared, already[member]), kept))
            sources.append(int(position[source]) if shared > already[member] else -1)
        return Plan(tuple(alignments), tuple(sources))

    def _trees_without_gain(self, orders: Sequence[tuple[int, ...]], trees: Sequence[int]) -> set[int]:
        """The trees whose requests share as much, or nearly, among themselves in the retriever's order."""
        gain: Counter[int] = Counter(dict.fromkeys(trees, 0))
        tokens: Counter[int] = Counter()
        for tree, total in zip(trees, self._tokens, strict=True):
            tokens[tree] += total >> self._shift
        for sequences, sign in ((orders, 1), (self._retrieved, -1)):
            among_themselves = Sequences([(tree, *order) for tree, order in zip(trees, sequences, strict=True)])
            for member, shared in zip(among_themselves.sending.tolist(), among_themselves.common.tolist(), strict=True):
                order = sequences[member]
                cached = max(shared - 1, self._already_cached(order))
                gain[trees[member]] += sign * sum([self._weights[number] for number in order[:cached]])
        least = self._budget.min_gain * (1 - 1e-9) if self._budget.order == "balanced" else 0.0
        return {tree for tree, saved in gain.items() if saved <= 0 or saved < least * tokens[tree]}

    def _already_cached(self, order: Sequence[int]) -> int:
        """How many leading blocks are cached before anything is sent."""
        return 0 if self._tree is None else self._tree.cached_tokens([self._refs[number] for number in order])[0]

    def _cached_first(self, sequences: Sequences, already: Sequence[int]) -> Ints:
        """The depth-first order of sending, first all that begins with what is cached and might soon be evicted."""
        sending = sequences.sending
        if not any(already):
            return sending
        tree_of = np.cumsum(sequences.common == 0)
        begins_cached = np.zeros(len(sending) + 1, bool)
        np.logical_or.at(begins_cached, tree_of, np.asarray(already)[sending] > 0)
        return sending[np.argsort(~begins_cached[tree_of], kind="stable")]

    def _alignment(self, member: int, order: tuple[int, ...], found: int, kept: int) -> Alignment:
        request, retrieved = self._requests[member], self._retrieved[member]
        rank_of = {number: rank for rank, number in enumerate(retrieved)}
        ranks = tuple([rank_of[number] for number in order])
        cached_tokens = sum([request.blocks[rank].tokens for rank in ranks[:found]])
        kept_tokens = sum([block.tokens for block in request.blocks[:kept]])
        if request.budget.order == "fixed":
            rule = Rule.FIXED
        elif order != retrieved:
            rule = Rule.PREFIX if cached_tokens > kept_tokens else Rule.PLANNED
        else:
            rule = Rule.OFF if request.budget.order == "retrieved" else Rule.NOTHING_GAINED
        return Alignment(request, ranks, found, cached_tokens, kept_tokens, rule)
