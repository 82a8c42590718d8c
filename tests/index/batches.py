"""Batches for the planner's tests: what hypothesis draws, and what sending a plan really finds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from unittest.mock import patch

from hypothesis import strategies as st

from contextpilot_rag import BlockRef, Namespace, OrderBudget, Request
from contextpilot_rag.batch import Plan
from contextpilot_rag.index import grow
from contextpilot_rag.index.exact import MOST_LEAVES
from contextpilot_rag.index.grow import PIECE
from contextpilot_rag.index.plan import plan_batch
from contextpilot_rag.index.tree import PrefixTree
from contextpilot_rag.index.watch import Watch
from contextpilot_rag.types import Alignment

THROUGHPUT = OrderBudget("throughput")
# Weights belong to keys. Few keys, so that contexts share blocks.
WEIGHTS = [7, 1, 40, 3, 12, 5, 100, 2, 9, 30]
REFS = [BlockRef(f"block {number}", tokens) for number, tokens in enumerate(WEIGHTS)]

numbers = st.integers(0, len(REFS) - 1)
_anything = st.lists(numbers, unique=True, max_size=6)
_chained = st.integers(0, 6).flatmap(lambda end: st.permutations(range(end)))
_alike = st.permutations([2, 5, 6])
_one_shared = st.integers(1, 9).flatmap(lambda number: st.permutations([0, number]))
contexts = st.one_of(_anything, _anything, _chained, _alike, _one_shared).map(tuple)

limits = st.sampled_from([(0, None), (0, None), (1, None), (3, None), (0, 0), (0, 2), (1, 1), (2, 4)])
budgets = st.builds(
    lambda order, min_gain, limit: OrderBudget(order, min_gain, *limit),
    st.sampled_from(["retrieved", "balanced", "throughput"]),
    st.sampled_from([0.0, 0.1, 0.3, 0.5, 1.0]),
    limits,
)
balanced = st.sampled_from([0.0, 0.1, 0.3, 0.5, 0.8, 1.0]).map(lambda min_gain: OrderBudget("balanced", min_gain))
pieces = st.sampled_from([2, 3, 4, 6, 50, PIECE])
NAMESPACES = [Namespace(), Namespace("acme"), Namespace("acme", corpus="old")]


def refs(context: Iterable[int]) -> tuple[BlockRef, ...]:
    return tuple(REFS[number] for number in context)


def batch(contexts: Iterable[Iterable[int]], budget: OrderBudget = THROUGHPUT) -> list[Request]:
    return [Request(refs(context), budget=budget, key=key) for key, context in enumerate(contexts)]


@st.composite
def many_contexts(draw, most=20):
    """Up to ``most`` contexts, some of them several times."""
    found = draw(st.lists(contexts, max_size=most - most // 5))
    again = draw(st.lists(st.integers(0, most), max_size=most // 5 if found else 0))
    return found + [found[number % len(found)] for number in again]


def batches(budgets, most=20):
    """Requests of one namespace and one budget."""
    return st.builds(batch, many_contexts(most), budgets)


@st.composite
def mixed_batches(draw, budgets=budgets):
    """Requests of several namespaces and budgets; some keys come twice."""
    chosen = draw(st.lists(budgets, min_size=1, max_size=3))
    return [
        Request(
            refs(context),
            draw(st.sampled_from(NAMESPACES)),
            draw(st.sampled_from(chosen)),
            draw(st.sampled_from([None, "key", key])),
        )
        for key, context in enumerate(draw(many_contexts()))
    ]


def tree_of(contexts: Iterable[Iterable[int]]) -> PrefixTree:
    tree = PrefixTree()
    for context in contexts:
        tree.insert(refs(context))
    return tree


sent_before = st.lists(contexts, max_size=4)
# What an engine holds for each namespace; nothing is known of one that is missing.
engines = st.dictionaries(st.sampled_from(NAMESPACES), st.builds(tree_of, sent_before), max_size=3)


class After:
    """Says that it is late from the n-th time on that it is asked."""

    def __init__(self, times: int) -> None:
        self.times = times

    def __call__(self) -> bool:
        self.times -= 1
        return self.times < 0


def planned(
    requests: Sequence[Request],
    engine: Mapping[Namespace, PrefixTree] | None = None,
    piece: int = PIECE,
    late: int | None = None,
    ceiling: bool = False,
) -> Plan[Alignment]:
    """A plan; with a small piece also few requests go the way of many."""
    watch = None if late is None else Watch(After(late))
    with patch.object(grow, "MOST_LEAVES", MOST_LEAVES if piece == PIECE else 1):
        return plan_batch(requests, (engine or {}).get, watch=watch, ceiling=ceiling, piece=piece)


def sent(alignment: Alignment) -> tuple[BlockRef, ...]:
    return tuple(alignment.request.blocks[rank] for rank in alignment.order)


def served(
    alignments: Iterable[Alignment],
    engine: Mapping[Namespace, PrefixTree],
    order: Callable[[Alignment], Sequence[BlockRef]] = sent,
) -> list[tuple[int, int]]:
    """Blocks and tokens that each request really finds in caches without limits, sent one after another."""
    trees = {namespace: tree.copy() for namespace, tree in engine.items()}
    found = []
    for alignment in alignments:
        tree = trees.setdefault(alignment.request.namespace, PrefixTree())
        found.append(tree.cached_tokens(order(alignment)))
        tree.insert(order(alignment))
    return found


def orders(plan: Plan[Alignment]) -> list[tuple[object, tuple[int, ...]]]:
    """All that a plan says about sending."""
    return [(alignment.request.key, alignment.order) for alignment in plan]
