"""What is forgotten is freed between requests, all of it, and nobody who reads it meanwhile is disturbed."""

from __future__ import annotations

import asyncio
import gc
import random
import weakref
from itertools import pairwise

import pytest

from contextpilot_rag.index.node import Node
from contextpilot_rag.index.tree import PrefixTree
from contextpilot_rag.remote import wire
from contextpilot_rag.service.core import Service
from contextpilot_rag.service.leftovers import _SMALL, Leftovers
from contextpilot_rag.service.settings import ServiceSettings
from contextpilot_rag.types import BlockRef, Namespace

MANY = 3 * _SMALL


def tree_of(contexts, seed=0):
    chance = random.Random(seed)
    tree = PrefixTree()
    for _ in range(contexts):
        tree.insert([BlockRef(chance.randrange(40), 10) for _ in range(1)] + [BlockRef(chance.random(), 10)])
    return tree


def nodes():
    return sum(isinstance(one, Node) for one in gc.get_objects())


def test_a_tree_is_taken_apart_in_steps_to_the_last_node():
    tree = tree_of(500)
    size, steps = len(tree.nodes()), 0
    while tree.dismantle(100):
        steps += 1
        assert len(tree.nodes()) == size - 100 * steps
        assert all(tree.holds(node.parent) or node.parent is tree.root for node in tree.nodes())
    assert steps == (size - 1) // 100
    assert (tree.nodes(), tree.root.children) == ([], {})
    assert not tree.dismantle(1)


@pytest.fixture
async def leftovers():
    made = Leftovers()
    await made.start()
    yield made
    await made.stop()


def fill(service, tenant, corpus, contexts=MANY):
    for number in range(contexts):
        block = wire.BlockIn(id=f"{corpus}-{number}", tokens=10)
        service.tenant(tenant).align(wire.AlignIn([block], wire.NamespaceIn(corpus=corpus)))


async def freed(leftovers, at_least=1):
    assert len(leftovers) >= at_least, "it was freed at once"
    turns = 0
    while len(leftovers):
        await asyncio.sleep(0)
        turns += 1
    return turns


@pytest.mark.parametrize("how", ["namespace", "all", "tenant", "corpus", "evicted"])
async def test_however_it_is_forgotten_others_have_their_turn(leftovers, how):
    gc.collect()
    before = nodes()
    service = Service(ServiceSettings(tenant_namespaces=1 if how == "evicted" else 100), leftovers=leftovers)
    if how == "corpus":
        service.share({"c": frozenset({"acme", "globex"})})
    fill(service, "acme", "c")
    kept = before + (1 if how == "evicted" else 0)
    if how == "namespace":
        service.tenant("acme").forget(Namespace(corpus="c"))
    elif how == "all":
        service.tenant("acme").forget()
    elif how == "tenant":
        service.drop(["acme"])
    elif how == "corpus":
        service.share({"c": frozenset({"acme"})})
    else:
        fill(service, "acme", "d", 1)
        kept += 1
    assert nodes() > before + MANY / 2
    assert await freed(leftovers) >= MANY // 200
    service.tenant("acme")
    assert nodes() <= kept + 1


@pytest.mark.parametrize("spaces", [1, 7])
def test_a_smaller_capacity_is_taken_over_in_steps_and_is_the_same_in_the_end(spaces):
    def filled():
        index = Service(ServiceSettings()).pool("tenant", "").index
        chance = random.Random(spaces)
        for number in range(8_000):
            space = Namespace(corpus=str(number % spaces))
            index.restore(space, [BlockRef(chance.randrange(40), 10), BlockRef(number, chance.randrange(5, 50))])
        return index

    stepwise, at_once = filled(), filled()
    blocks = [stepwise.stats().tree_blocks]
    blocks += [stepwise.stats().tree_blocks for _ in stepwise.shrink(2_000, 16)]
    at_once.resize(2_000, 16)
    assert stepwise.namespaces() == at_once.namespaces()
    assert all(size.tokens <= 2_000 for size in stepwise.namespaces().values())
    assert max(before - after for before, after in pairwise(blocks)) < 1_500
    assert len(list(stepwise.shrink(2_000, 16))) == len(list(stepwise.shrink(None, None))) == 1


def test_what_is_emptied_is_not_forgotten_by_anybody():
    service, told = Service(ServiceSettings()), []
    service.forgetting.append(lambda *given: told.append(given))
    fill(service, "acme", "c", 5)
    assert list(service.empty()) == [True]
    assert list(service.empty()) == [False]
    assert told == []
    service.tenant("acme").forget(Namespace(corpus="c"))
    service.drop(["acme"])
    assert told == [("tenant", "acme", Namespace(corpus="c")), ("tenant", "acme", None)]


async def test_small_ones_go_at_once(leftovers):
    service = Service(ServiceSettings(), leftovers=leftovers)
    fill(service, "", "c", 10)
    service.tenant("").forget()
    assert len(leftovers) == 0


async def test_what_is_written_down_meanwhile_is_as_sound_as_ever(leftovers):
    service = Service(ServiceSettings(), leftovers=leftovers)
    fill(service, "", "c")
    fill(service, "", "d", 10)
    parts = service.tenant("").tree_parts(Namespace(corpus="c"))
    dump = service.pool("tenant", "").index.dump()
    first = [next(parts) for _ in range(3)], [next(dump) for _ in range(3)]
    service.tenant("").forget(Namespace(corpus="c"))
    for _ in range(5):
        await asyncio.sleep(0)
    assert len(leftovers) == 1
    rest = [*parts], [*dump]
    assert all(first)
    assert all(part is not None for some in rest for part in some)


async def test_stopped_it_keeps_nothing():
    leftovers = Leftovers()
    await leftovers.start()
    tree = tree_of(MANY)
    gone = weakref.ref(tree)
    leftovers.add(tree)
    del tree
    assert len(leftovers) == 1
    await leftovers.stop()
    assert gone() is None
