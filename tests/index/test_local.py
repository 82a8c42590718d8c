from __future__ import annotations

from contextpilot_rag import BlockRef, LocalIndex, Namespace, Request
from tests.index.conformance import A, B, IndexConformance
from tests.index.invariants import check


class TestLocalIndex(IndexConformance):
    def make(self):
        return LocalIndex()

    def test_eight_threads_at_once(self):
        super().test_eight_threads_at_once()
        index = LocalIndex(capacity_tokens=500)
        self.make = lambda: index
        super().test_eight_threads_at_once()
        for share in index._shares.values():
            check(share.tree)
            assert share.tree.tokens <= 500


def test_namespaces_are_bounded_and_the_one_used_longest_ago_goes():
    index = LocalIndex(max_namespaces=2)
    one, two, three = (Namespace(tenant=name) for name in ("one", "two", "three"))
    for namespace in (one, two, one, three):
        index.align(Request((A, B), namespace))
    assert index.stats().namespaces == 2
    assert index.align(Request((A, B), one)).predicted_cached_tokens == 200
    assert index.align(Request((A, B), two)).predicted_cached_tokens == 0


def test_memory_is_bounded_whatever_comes():
    index = LocalIndex(max_blocks=200, max_namespaces=3)
    for number in range(2_000):
        blocks = tuple(BlockRef((number, place), 1) for place in range(10))
        index.align(Request(blocks, Namespace(tenant=str(number % 7))))
    stats = index.stats()
    assert stats.tree_blocks <= 600
    assert stats.namespaces == 3


def test_the_capacity_is_followed():
    index = LocalIndex(capacity_tokens=200)
    index.align(Request((A, B)))
    index.align(Request((BlockRef("x", 150),)))
    assert index.align(Request((B, A))).predicted_cached_tokens == 0
