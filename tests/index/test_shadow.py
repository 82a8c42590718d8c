from __future__ import annotations

import random

import pytest

from contextpilot_rag import BlockRef, LocalIndex, Namespace, OrderBudget, Request, Rule
from contextpilot_rag.index.history import History
from contextpilot_rag.index.placement import PlacementRule
from contextpilot_rag.index.shadow import AdaptiveTail
from contextpilot_rag.index.tail import CANDIDATES
from tests.index.invariants import check

NOISE, POPULAR = 20_000, 40


def block(name):
    return BlockRef(name, 100)


def noise(numbers, count):
    return [block(("noise", numbers.randrange(NOISE))) for _ in range(count)]


def best_first(numbers):
    """Topics whose own blocks stand first and in order, before popular ones in any order: keep the order."""
    topic = numbers.randrange(300)
    common = numbers.sample(range(POPULAR), 8)
    return tuple([block((topic, place)) for place in range(4)] + [block(("popular", number)) for number in common])


def common_last(numbers):
    """The same six blocks stand at the end, behind ones that never come back: turn the order round."""
    return tuple(dict.fromkeys(noise(numbers, 6) + [block(("common", place)) for place in range(6)]))


def shuffled_topics(numbers):
    """Each topic's blocks come in any order with noise between them: count which of them come together."""
    topic = numbers.randrange(8)
    found = [block((topic, place)) for place in range(6)] + noise(numbers, 6)
    numbers.shuffle(found)
    return tuple(dict.fromkeys(found))


def feed(tail, traffic, requests=800, seed=0):
    numbers = random.Random(seed)
    for _ in range(requests):
        tail.learn(traffic(numbers))
    return tail


@pytest.mark.parametrize(
    ("traffic", "best"), [(best_first, {"retrieved"}), (common_last, {"best_last"}), (shuffled_topics, {"conditional"})]
)
def test_follows_the_policy_that_the_traffic_favours(traffic, best):
    candidates = ("retrieved", "best_last", "conditional") if traffic is not common_last else ("retrieved", "best_last")
    for seed in range(3):
        tail = feed(AdaptiveTail(History(), candidates), traffic, seed=seed)
        assert tail.following in best
        assert tail.switches <= 3


def test_the_default_candidates_leave_the_retrievers_order_where_it_shares_nothing():
    assert feed(AdaptiveTail(History()), shuffled_topics).following in CANDIDATES[1:]


def test_until_a_gain_is_shown_the_retrievers_order_goes_out():
    numbers, index = random.Random(0), LocalIndex()
    for number in range(300):  # no two share anything
        request = (block(("own", number)), *(block(("own", number, place)) for place in range(11)))
        alignment = index.align(Request(request, budget=OrderBudget("throughput")))
        assert (alignment.order, alignment.rule) == (tuple(range(12)), Rule.NOTHING_GAINED)
    index.align(Request((block("a"), *noise(numbers, 1), block("b")), budget=OrderBudget("throughput")))
    again = index.align(Request((block("c"), block("b"), block("a")), budget=OrderBudget("throughput")))
    assert again.order == (2, 0, 1), "a cached prefix is used, its tail stays as retrieved"
    tail = index._shares[Namespace()].tail
    assert (tail.following, tail.switches) == ("retrieved", 0)


def test_each_namespace_follows_its_own_traffic():
    index, numbers = LocalIndex(), random.Random(0)
    traffics = {Namespace(tenant="fixed"): best_first, Namespace(tenant="topics"): shuffled_topics}
    budget = OrderBudget("throughput")
    for _ in range(400):
        for namespace, traffic in traffics.items():
            index.align(Request(traffic(numbers), namespace, budget))
    chosen = {namespace.tenant: index._shares[namespace].tail.following for namespace in traffics}
    assert chosen["topics"] != "retrieved"
    alone = LocalIndex()
    numbers = random.Random(0)
    for _ in range(400):
        for namespace, traffic in traffics.items():
            request = traffic(numbers)
            if namespace.tenant == "fixed":
                alone.align(Request(request, namespace, budget))
    assert chosen["fixed"] == alone._shares[Namespace(tenant="fixed")].tail.following


def test_follows_traffic_that_changes():
    tail = feed(AdaptiveTail(History(), ("retrieved", "best_last")), common_last, 500)
    assert tail.following == "best_last"
    assert feed(tail, best_first, 4_000).following == "retrieved"


@pytest.mark.parametrize("traffic", [best_first, common_last, shuffled_topics])
def test_does_not_flip_between_policies(traffic):
    assert feed(AdaptiveTail(History()), traffic, 4_000).switches <= 4


def test_equal_policies_are_never_exchanged():
    tail = feed(AdaptiveTail(History(), ("popular", "conditional", "retrieved")), lambda n: noise(n, 1), 2_000)
    assert (tail.following, tail.switches) == ("popular", 0)


def test_memory_is_bounded_and_the_shadows_stay_sound():
    tail = AdaptiveTail(History(100), capacity_tokens=20_000, max_blocks=150)
    numbers = random.Random(0)
    for _ in range(1_500):
        tail.learn(shuffled_topics(numbers), PlacementRule(max_displacement=4))
        assert tail.blocks <= 150 * len(CANDIDATES)
    for shadow in tail._shadows.values():
        check(shadow.tree)
        assert shadow.tree.tokens <= 20_000


def test_shadows_have_the_engines_capacity():
    tail = feed(AdaptiveTail(History(), capacity_tokens=3_000), shuffled_topics, 200)
    assert all(shadow.tree.tokens <= 3_000 for shadow in tail._shadows.values())


def test_weights_that_grow_are_brought_back():
    tail = AdaptiveTail(History(10))
    tail._unit = 2.0**64
    feed(tail, common_last, 20)
    assert tail._unit < 2
    assert all(0 <= shadow.hits < 1e6 for shadow in tail._shadows.values())
