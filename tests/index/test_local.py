from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextpilot_rag import Alignment, BlockRef, LocalIndex, Namespace, OrderBudget, Request, Usage
from contextpilot_rag.choosing import chosen_index
from contextpilot_rag.errors import SettingsError
from contextpilot_rag.index.tail import POLICIES
from contextpilot_rag.settings import Settings
from tests.index.conformance import ACME, OTHER, A, B, C, IndexConformance
from tests.index.invariants import check
from tests.strategies import requests


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


def test_what_the_engine_lost_is_pruned_and_what_it_has_again_is_restored():
    index, other = LocalIndex(), Namespace(tenant="other")
    index.align(Request((A, B)))
    index.align(Request((A, B), other))
    assert index.prune(Namespace(), ["a", "b"]) == 1
    assert index.predict(Request((B, A))) == 100
    assert index.prune(Namespace(), ["a", "b"]) == index.prune(Namespace(tenant="nobody"), ["a"]) == 0
    index.restore(Namespace(), (B, A))
    assert index.predict(Request((A, B))) == 200
    index.restore(Namespace(tenant="new"), (B, A))
    assert index.predict(Request((A, B), Namespace(tenant="new"))) == 200
    assert index.predict(Request((A, B), other)) == 200
    stats = index.stats()
    assert (stats.requests, stats.block_tokens, stats.rules) == (2, 400, {"nothing_gained": 2})
    assert index._blocks == held(index) == stats.tree_blocks == 7


def held(index):
    return sum(share.entries for share in index._shares.values())


@pytest.mark.parametrize("seed", range(4))
def test_all_namespaces_together_are_bounded(seed):
    index, numbers = LocalIndex(max_total_blocks=400, capacity_tokens=5_000 if seed % 2 else None), random.Random(seed)
    for step in range(1_500):
        blocks = tuple(BlockRef(key, 10) for key in numbers.sample(range(500), 10))
        budget = THROUGHPUT if numbers.random() < 0.7 else OrderBudget()
        namespace = Namespace(tenant=str(int(numbers.paretovariate(0.7)) % 20))
        index.align(Request(blocks, namespace, budget))
        assert index._blocks == held(index) <= 400
        assert namespace in index.namespaces(1), "the one in use stays"
        if step % 3 == 0:
            index.prune(namespace, [block.key for block in blocks[: numbers.randint(1, 9)]])
            index.restore(Namespace(tenant=str(numbers.randrange(20))), blocks[:5])
            assert index._blocks == held(index) <= 400
        if step % 100 == 99:
            index.forget(numbers.choice(list(index.namespaces())))
            assert index._blocks == held(index)
    for share in index._shares.values():
        check(share.tree)


def test_the_namespaces_used_longest_ago_make_room():
    index = LocalIndex(max_total_blocks=6)
    one, two, three = (Namespace(tenant=name) for name in ("one", "two", "three"))
    for namespace in (one, two, one, three):
        index.align(Request((A, B), namespace))
    assert list(index.namespaces()) == [three, one, two]
    index.align(Request((BlockRef("c", 1), BlockRef("d", 1)), one))
    assert list(index.namespaces()) == [one, three]
    assert index.namespaces(1)[one].blocks == 4


def test_a_namespace_alone_shrinks_and_a_request_is_kept_whole():
    index = LocalIndex(max_total_blocks=20)
    for number in range(50):
        index.align(Request(tuple(BlockRef((number, place), 1) for place in range(5)), budget=THROUGHPUT))
        assert held(index) <= 20
        assert index.stats().tree_blocks >= 5
    index.align(Request(tuple(BlockRef(place, 1) for place in range(100))))
    assert index.stats().tree_blocks == 100
    index.align(Request((A, B)))
    assert held(index) <= 20


def test_eight_threads_and_one_limit():
    index = LocalIndex(max_total_blocks=600, max_namespaces=5)

    def work(worker):
        numbers = random.Random(worker)
        for step in range(150):
            namespace = Namespace(tenant=str(numbers.randrange(8)))
            request = any_request(numbers, namespace)
            assert sorted(index.align(request).order) == list(range(12))
            index.prune(namespace, [request.blocks[0].key])
            index.restore(Namespace(tenant=str(numbers.randrange(8))), request.blocks)
            if step % 40 == 39:
                index.forget(namespace)
                list(index.dump())
        return True

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(8)))
    assert index._blocks == held(index) <= 600
    assert index._blocks == sum(share.size for share in index._shares.values())


def test_a_prefix_below_one_kv_block_counts_as_none():
    index = LocalIndex(kv_block_tokens=128)
    index.align(Request((A, B)))
    alone = index.align(Request((C, A)))
    assert (alone.order, alone.cached_blocks, alone.predicted_cached_tokens) == ((0, 1), 0, 0)
    assert index.predict(Request((A,))) == 0
    assert index.align(Request((BlockRef("d", 10), B, A))).order == (2, 1, 0)


@given(st.lists(requests, max_size=10), requests, st.integers(0, 200))
def test_kv_blocks_only_take_small_prefixes_away(asked, wanted, least):
    free, bound = LocalIndex(), LocalIndex(kv_block_tokens=least or None)
    for blocks in asked:
        for index in (free, bound):
            index.sent(Alignment(Request(tuple(blocks)), tuple(range(len(blocks)))))
    found = free.predict(Request(tuple(wanted)))
    kept = bound.predict(Request(tuple(wanted)))
    assert 0 <= found - kept < max(least, 1)
    assert kept == 0 or kept >= least


def test_the_capacity_can_be_told_later():
    index = LocalIndex()
    for block in (A, B, C):
        index.align(Request((block,)))
    index.resize(250, 128)
    assert index.stats().tree_tokens <= 250
    assert index.align(Request((BlockRef("x", 100), A))).predicted_cached_tokens == 0
    index.resize(None)
    for number in range(10):
        index.align(Request((BlockRef(number, 100),)))
    assert index.stats().tree_tokens >= 1_000


def test_a_later_capacity_holds_for_namespaces_and_tails_of_before_and_after():
    index = LocalIndex()
    throughput = OrderBudget("throughput")
    for number in range(20):
        index.align(Request((BlockRef(number, 100), A), ACME, throughput))
    index.resize(500)
    for number in range(20):
        index.align(Request((BlockRef(number, 100), A), ACME, throughput))
        index.align(Request((BlockRef(number, 100), A), OTHER, throughput))
    for namespace in (ACME, OTHER):
        share = index._shares[namespace]
        assert share.tree.tokens <= 500
        assert share.tree.capacity_tokens == 500
        assert {shadow.tree.capacity_tokens for shadow in share.tail._shadows.values()} == {500}


def test_what_was_not_used_for_its_time_to_live_is_gone():
    now = 0.0
    index = LocalIndex(cache_seconds=100, clock=lambda: now)
    index.align(Request((A, B)))
    now = 60.0
    index.align(Request((A, C)))
    assert index.predict(Request((A, B))) == 200
    now = 130.0
    assert index.predict(Request((A, B))) == 100
    assert index.predict(Request((A, C))) == 200
    tree = index.tree(Namespace())
    assert tree is not None
    assert sorted(tree.paths()) == [["a", "c"]]
    now = 1_000.0
    assert index.align(Request((A, C))).predicted_cached_tokens == 0


def test_a_time_to_live_needs_a_clock():
    with pytest.raises(SettingsError, match="clock"):
        LocalIndex(cache_seconds=1)


def test_threads_report_while_the_capacity_changes():
    index = LocalIndex()
    blocks = [BlockRef(number, 50) for number in range(40)]

    def work(worker):
        numbers = random.Random(worker)
        for step in range(200):
            alignment = index.align(Request(tuple(numbers.sample(blocks, 6)), Namespace(tenant=str(step % 2))))
            index.observe(alignment, Usage(330, numbers.choice([0, 100, 300, None]), 5))
            if step % 20 == 0:
                index.resize(numbers.choice([None, 1_000, 3_000]), 16)
                index.follow_usage(step % 40 == 0)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    index.resize(1_000)
    stats = index.stats()
    assert stats.observed == 800
    assert stats.tree_tokens <= 2_000
    assert index._blocks == sum(share.size for share in index._shares.values()) == stats.tree_blocks
    for share in index._shares.values():
        check(share.tree)


def test_settings_reach_it():
    settings = Settings(kv_block_tokens=128, cache_seconds=1e-9)
    index = chosen_index("embedded", settings, {})[1]
    index.align(Request((A, B)))
    assert index.predict(Request((A, B))) == 0, "its time to live is over"
    index = chosen_index("embedded", settings.with_(cache_seconds=None), {})[1]
    index.align(Request((A, B)))
    assert [index.predict(Request(blocks)) for blocks in ((A,), (A, B))] == [0, 200]


def test_a_history_of_no_request_is_refused():
    with pytest.raises(SettingsError, match="history must be at least one request"):
        LocalIndex(history=0)
