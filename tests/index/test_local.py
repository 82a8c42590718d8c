from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor

import pytest

from contextpilot_rag import BlockRef, LocalIndex, Namespace, OrderBudget, Request
from contextpilot_rag.errors import SettingsError
from contextpilot_rag.index.tail import POLICIES
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


THROUGHPUT = OrderBudget("throughput")


def any_request(numbers, namespace=Namespace()):  # noqa: B008 - frozen
    blocks = tuple(BlockRef(number, 10 + number) for number in numbers.sample(range(40), 12))
    return Request(blocks, namespace, THROUGHPUT)


@pytest.mark.parametrize("tail", ["adaptive", *POLICIES])
def test_any_tail_can_be_held_fast(tail):
    index, numbers = LocalIndex(tail=tail), random.Random(0)
    for _ in range(100):
        alignment = index.align(any_request(numbers))
        assert sorted(alignment.order) == list(range(12))
    assert index.stats().predicted_cached_tokens > 0


def test_an_unknown_tail_is_refused():
    with pytest.raises(SettingsError, match="unknown tail 'populer'; tails are adaptive, retrieved"):
        LocalIndex(tail="populer")


def test_only_throughput_is_remembered_and_forgetting_drops_it():
    index = LocalIndex(tail="popular")
    index.align(Request((A, B)))
    assert index._shares[Namespace()].tail is None
    index.align(Request((A, B), budget=THROUGHPUT))
    first = index._shares[Namespace()].tail
    assert first is not None
    index.forget(Namespace())
    index.align(Request((B, A), budget=THROUGHPUT))
    assert index._shares[Namespace()].tail is not first


def test_equal_traffic_gives_equal_orders():
    def orders():
        index, numbers = LocalIndex(), random.Random(0)
        return [index.align(any_request(numbers)).order for _ in range(300)]

    assert orders() == orders()


def test_eight_threads_with_tails():
    index = LocalIndex(capacity_tokens=5_000, history=50)

    def work(worker):
        numbers = random.Random(worker)
        for _ in range(100):
            request = any_request(numbers, Namespace(tenant=str(numbers.randrange(2))))
            assert sorted(index.align(request).order) == list(range(12))
        return True

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(8)))
    for share in index._shares.values():
        check(share.tree)
        for shadow in share.tail._shadows.values():
            check(shadow.tree)
            assert shadow.tree.tokens <= 5_000
