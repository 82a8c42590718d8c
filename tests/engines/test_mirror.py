from __future__ import annotations

import os
import random
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from contextpilot_rag import BlockRef
from contextpilot_rag.engines.asked import MAX_ASKED
from contextpilot_rag.engines.chain import chain, content
from contextpilot_rag.engines.covering import Covering
from contextpilot_rag.engines.kv import Cleared, Removed, Stored
from contextpilot_rag.engines.mirror import Changes, Mirror
from contextpilot_rag.engines.passages import MAX_HEADS
from tests.engines.world import (
    ONE,
    SIZE,
    A,
    B,
    C,
    Machine,
    World,
    block,
    covering,
    ids,
    keys,
    prompt,
    simple,
    told,
)
from tests.resident import resident_tokens


def test_the_shortest_path_that_is_gone_and_the_longest_that_is_back():
    mirror = Mirror()
    abc, ab = simple([A, B, C]), simple([A, B], question=1)
    mirror.apply(ONE, [told(abc[0])])
    assert mirror.cover("t", None, [A, B, C], abc[1]) == Changes((), (("t", (A, B, C)),))
    assert mirror.cover("t", None, [A, B], ab[1]) == Changes()
    assert mirror.apply(ONE, [Removed((5, 6, 7))]).gone == (("t", (A, B)),)
    assert mirror.apply(ONE, [Removed((4,))]).gone == (("t", (A, B)),), "a tree may have it from a new request"
    assert mirror.apply(ONE, [told(abc[0], parent=3, start=4)]).back == (("t", (A, B, C)),)
    assert mirror.apply(ONE, [Removed((1,))]).gone == (("t", (A,)),), "a head is no path of a tree"
    assert resident_tokens(mirror, abc[1].keys, SIZE) == 4
    assert mirror.apply(ONE, [Cleared()]).gone == (("t", (A,)),)


def test_what_came_and_went_at_once_is_gone():
    mirror, (tokens, where) = Mirror(), simple([A, B])
    mirror.cover("t", None, [A, B], where)
    assert mirror.apply(ONE, [told(tokens), Removed((4, 5, 6))]) == Changes((("t", (A, B)),), (("t", (A,)),))
    assert mirror.apply(ONE, [told(tokens, parent=3, start=4), Removed((4,))]).gone == (("t", (A, B)),)


def test_absence_alone_is_no_evidence():
    mirror, (tokens, where) = Mirror(), simple([A, B])
    assert mirror.cover("t", None, [A, B], where, ONE, 0) == Changes()
    assert mirror.expected("t", [A, B]) == 0
    mirror = Mirror()
    mirror.apply(ONE, [told(tokens), Removed((4, 5, 6))])
    assert mirror.cover("t", None, [A, B], where, ONE, 0) == Changes((("t", (A, B)),), (("t", (A,)),))


def test_what_went_is_remembered_when_the_cache_is_cleared_again():
    mirror, (tokens, where) = Mirror(), simple([A, B])
    mirror.apply(ONE, [told(tokens), Cleared()])
    mirror.apply(ONE, [Cleared()])
    assert mirror.cover("t", None, [A, B], where, ONE, 0).gone == (("t", (A,)),)


def test_a_head_that_came_and_went_takes_blocks_without_kv_blocks_of_their_own_along():
    mirror, tiny = Mirror(), BlockRef("tiny", 2)
    tokens, where = simple([tiny, A])
    mirror.cover("t", None, [tiny, A], where)
    assert mirror.apply(ONE, [told(tokens), Cleared()]).gone == (("t", (tiny,)),)


@pytest.mark.parametrize("end", [Mirror.remove, Mirror.lost])
def test_a_path_is_there_while_any_holder_has_all_of_it(end):
    mirror, (tokens, where) = Mirror(), simple([A, B])
    mirror.cover("t", None, [A, B], where)
    assert keys(mirror.apply(("x", 0), [told(tokens[:16])]).back) == [("t", ["a"])]
    assert keys(mirror.apply(("y", 0), [told(tokens)]).back) == [("t", ["a", "b"])]
    assert mirror.apply(("x", 1), [told(tokens[:16]), Removed((0,))]) == Changes()
    holder = {Mirror.remove: "y", Mirror.lost: ("y", 0)}[end]
    assert keys(end(mirror, holder).gone) == [("t", ["a", "b"])]
    assert resident_tokens(mirror, where.keys, SIZE) == mirror.expected("t", [A, B]) == 16
    holder = {Mirror.remove: "x", Mirror.lost: ("x", 0)}[end]
    assert keys(end(mirror, holder).gone) == [("t", ["a"])]
    assert keys(mirror.apply(("z", 0), [told(tokens)]).back) == [("t", ["a", "b"])]
    assert end(mirror, {Mirror.remove: "nobody", Mirror.lost: ("nobody", 0)}[end]) == Changes()


def test_parts_in_two_caches_make_no_whole():
    mirror, (tokens, where) = Mirror(), simple([A, B])
    mirror.cover("t", None, [A, B], where)
    mirror.apply(("x", 0), [told(tokens[:16])])
    assert mirror.apply(("y", 0), [told(tokens), Removed((0,))]) == Changes()
    assert mirror.expected("t", [A, B]) == 16


def test_expected_is_by_kv_blocks_and_none_where_nothing_is_known():
    world = World(machine := Machine("x", 500))
    one = prompt([1, 2, 3])
    assert world.mirror.expected(one.space, one.blocks) is None
    world.ask(one, machine)
    world.deliver(machine)
    world.cover(one, machine, 0)
    for count in range(4):
        assert world.mirror.expected(one.space, one.blocks[:count]) == one.ends[count] // SIZE * SIZE
    assert world.mirror.expected(one.space, (*one.blocks[:2], block("new"))) == one.ends[2] // SIZE * SIZE
    assert world.mirror.expected("elsewhere", one.blocks) is None
    machine.cache.clear()
    world.deliver(machine)
    assert world.mirror.expected(one.space, one.blocks) == 0


def test_expected_counts_what_is_left_of_a_block():
    mirror, (tokens, where) = Mirror(), simple([A, block("long", 40), B])
    mirror.apply(ONE, [told(tokens)])
    mirror.cover("t", None, [A, block("long", 40), B], where)
    mirror.apply(ONE, [Removed((9,))])
    assert mirror.expected("t", [A, block("long", 40), B]) == 36


def test_of_two_heads_the_one_covered_last_is_expected():
    mirror = Mirror()
    (long, long_where), (short, short_where) = simple([A, B], head=8), simple([A], head=4)
    mirror.apply(ONE, [told(long), told(short, 100)])
    mirror.cover("t", None, [A, B], long_where)
    mirror.cover("t", None, [A], short_where)
    assert mirror.expected("t", [A, B]) == 12
    mirror.cover("t", None, [A, B], long_where)
    assert mirror.expected("t", [A, B]) == 24
    assert mirror.apply(ONE, [Removed((2, 4))]).gone == (("t", (A, B)),), "a is there behind the other head"
    assert mirror.apply(ONE, [Removed((102,))]).gone == (("t", (A,)),)


def test_a_block_whose_tokens_are_others_than_before_is_covered_anew():
    mirror, (tokens, where) = Mirror(), simple([A, B])
    mirror.apply(ONE, [told(tokens)])
    mirror.cover("t", None, [A, B], where)
    other = covering([*tokens[:12], *ids("other", 4), *tokens[16:]], where.ends)
    assert mirror.cover("t", None, [A, B], other) == Changes((("t", (A,)),))
    assert mirror.expected("t", [A, B]) == 12
    assert mirror.cover("t", None, [A, B], where).back == (("t", (A, B)),)
    assert mirror.counts().passages == 3


def test_heads_are_bounded():
    mirror = Mirror()
    for head in range(4, 4 * 30, 4):
        tokens, where = simple([A], head=head)
        mirror.apply(ONE, [told(tokens, 1_000 * head)])
        mirror.cover("t", None, [A], where)
        assert mirror.counts().passages <= 2 * MAX_HEADS
    assert mirror.expected("t", [A]) == 4 * 29 + 8


def test_knows_and_forgets():
    mirror, (tokens, where) = Mirror(), simple([A, B])
    mirror.apply(ONE, [told(tokens)])
    mirror.cover("t", None, [A, B], where)
    mirror.cover("u", None, [A, B], where)
    assert [mirror.knows("t", path) for path in ("", "a", "ab", "abc", "b")] == [True, True, True, False, False]
    assert mirror.spaces() == ["t", "u"]
    mirror.forget("t")
    mirror.forget("never heard of")
    assert (mirror.knows("t", ""), mirror.knows("u", "ab")) == (False, True)
    assert mirror.apply(ONE, [Removed((0,))]).gone == (("u", (A,)),)
    mirror.forget()
    assert (mirror.spaces(), mirror.counts().passages, mirror.counts().kv_blocks) == ([], 0, 6)


def test_passages_are_bounded_and_those_let_go_are_gone():
    world = World(machine := Machine("x", 5_000), mirror=Mirror(max_passages=20))
    numbers = random.Random(0)
    for question in range(200):
        one = prompt(numbers.sample(range(30), 3), question=question)
        world.ask(one, machine)
        world.deliver(machine)
        world.cover(one, machine, 0)
        counts = world.mirror.counts()
        assert world.tree("tree").blocks == counts.passages - 1 <= 19
        assert world.mirror.expected(one.space, one.blocks) == one.ends[-1] // SIZE * SIZE


def test_names_of_kv_blocks_are_bounded_but_for_the_last_prompts():
    mirror = Mirror(max_kv_blocks=100)
    for number in range(50):
        tokens, where = simple([block((number, 1), 80), block((number, 2), 80)])
        mirror.apply(ONE, [told(tokens, 1_000 * number)])
        mirror.cover("t", None, [block((number, 1), 80), block((number, 2), 80)], where)
        assert mirror._passages._keys == sum(len(one.keys) for one in mirror._passages._by_use) <= 100
        assert mirror.counts().kv_blocks <= 100
    assert mirror.counts().forgotten > 1_000


def test_a_large_event_is_taken_in_parts():
    mirror, many = Mirror(), [block(number) for number in range(500)]
    tokens, where = simple(many, "salt")
    mirror.apply(ONE, [told(tokens, extra="salt:salt")])
    assert resident_tokens(mirror, where.keys, SIZE) == len(tokens) == 4 * 1_003
    assert mirror.counts().kv_blocks == 1_003


# What is known of being in step


def test_prompts_that_no_event_tells_of_are_counted():
    mirror = Mirror()
    for number in range(MAX_ASKED + 20):
        _, where = simple([A, B], question=number)
        mirror.cover("t", None, [A, B], where, ONE, 0)
    counts = mirror.counts()
    assert (counts.covered, counts.matched, counts.mismatched) == (MAX_ASKED + 20, 0, 20)
    tokens, _ = simple([A, B], question=MAX_ASKED + 19)
    mirror.apply(ONE, [told(tokens)])
    assert mirror.counts().matched == 1
    assert mirror.cover("t", None, [A, B], simple([A, B])[1], ONE, 20).gone == ()
    assert mirror.counts().covered == MAX_ASKED + 21, "two KV blocks were new"
    mirror.cover("t", None, [A, B], simple([A, B], question="known")[1], ONE, 24)
    assert mirror.counts().covered == MAX_ASKED + 21, "nothing was new, and so nothing is told"


def test_after_a_loss_a_prompt_without_a_report_proves_nothing():
    mirror, (tokens, where) = Mirror(), simple([A, B])
    mirror.apply(ONE, [told(tokens)])
    mirror.lost(ONE)
    mirror.cover("t", None, [A, B], where, ONE)
    assert mirror.counts().covered == 0
    mirror.apply(ONE, [Cleared()])
    mirror.cover("t", None, [A, B], where, ONE)
    assert mirror.counts().covered == 1


def test_a_prompt_below_one_kv_block_and_one_without_blocks():
    mirror = Mirror()
    tiny = covering([1, 2, 3], (1, 2))
    assert keys(mirror.cover("t", None, [block("x", 1)], tiny, ONE, 0).back) == [("t", ["x"])], "nothing is missing"
    assert mirror.expected("t", [block("x", 1)]) == 0
    tokens, where = simple([])
    mirror.apply(ONE, [told(tokens)])
    assert mirror.cover("u", None, [], where, ONE, 0) == Changes()
    assert mirror.expected("u", [A]) == 8
    assert mirror.apply(ONE, [Cleared()]) == Changes()


def test_a_report_of_less_is_believed():
    mirror, (_, where) = Mirror(), simple([A, B])
    mirror.apply(ONE, [])
    assert keys(mirror.cover("t", None, [A, B], where, ONE, 24).back) == [("t", ["a", "b"])]
    _, other = simple([A, B], question="another")
    assert keys(mirror.cover("t", None, [A, B], other, ONE, 17).gone) == [("t", ["a", "b"])]
    assert mirror.expected("t", [A, B]) == 16


def test_counts_stay_when_an_engine_goes():
    mirror = Mirror()
    mirror.apply(ONE, [Removed((1, 2, 3))])
    mirror.remove("one")
    assert mirror.counts().ignored == 3


# Threads and forks


def test_told_covered_and_asked_by_many_threads():
    world = World(machine := Machine("x", 60))
    numbers, batches, prompts = random.Random(0), [], []
    for question in range(200):
        one = prompt(numbers.sample(range(7), 3), question=question % 4)
        cached = machine.cache.serve(one.tokens)
        prompts.append((one, cached))
        batches.append(list(machine.told))
        machine.told.clear()
    mirror, done = world.mirror, threading.Event()

    def tell():
        for events in batches:
            mirror.apply(machine.holder, events)
        return True

    def cover(part):
        for one, cached in prompts[part::3]:
            mirror.cover(one.space, one.salt, one.blocks, one.covering, machine.holder, cached)
        return True

    def look(seed):
        some = random.Random(seed)
        looks = 0
        while not done.is_set() or looks < 100:
            one, _ = some.choice(prompts)
            expected = mirror.expected(one.space, one.blocks)
            assert expected is None or 0 <= expected <= one.ends[-1]
            assert resident_tokens(mirror, one.covering.keys, SIZE) <= len(one.tokens)
            mirror.knows(one.space, [block.key for block in one.blocks])
            looks += 1
        return mirror.counts().kv_blocks >= 0

    with ThreadPoolExecutor(6) as pool:
        lookers = [pool.submit(look, seed) for seed in range(2)]
        workers = [pool.submit(tell), *(pool.submit(cover, part) for part in range(3))]
        try:
            assert all(one.result(60) for one in workers)
        finally:
            done.set()
        assert all(one.result(60) for one in lookers)
    for one, _ in prompts:
        assert resident_tokens(mirror, one.covering.keys, SIZE) == machine.has(one) * SIZE
    counts = mirror.counts()
    assert counts.matched == counts.covered > 100
    for passage in mirror._passages._by_use:
        assert passage.parent is None or passage.there == passage.own & passage.parent.there


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes cannot fork here")
@pytest.mark.parametrize("held", [True, False])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_can_go_on(held):
    mirror, (tokens, where) = Mirror(), simple([A, B])
    mirror.apply(ONE, [told(tokens)])
    if held:
        mirror._lock.acquire()
    child = os.fork()
    if not child:
        known = resident_tokens(mirror, where.keys, SIZE)
        mirror.apply(ONE, [told(tokens)])
        fits = known == (0 if held else 28) and resident_tokens(mirror, where.keys, SIZE) == 28
        os._exit(0 if fits else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_what_ends_where_others_went_on_is_expected_no_further_than_both_are_alike():
    """Behind a prompt's last block its documents end; what was seen there before is another block's label."""
    mirror, refs = Mirror(), [BlockRef("a", 4), BlockRef("b", 4)]
    tokens = tuple(range(12))
    contents = tuple(content(tokens[at : at + 2]) for at in range(0, 12, 2))
    mirror.apply(("vllm", 0), [Stored(tuple(range(100, 106)), None, tokens, 2)])
    assert mirror.expected("tree", refs) is None
    mirror.cover("tree", None, refs, Covering(chain(tokens, 2), contents, (2, 6, 10), 12, 2, (1, 5, 10)))
    assert [mirror.expected("tree", refs[:count]) for count in range(3)] == [0, 4, 10]
    assert mirror.expected("tree", [refs[0], BlockRef("c", 4)]) == 6
    mirror.cover("tree", None, refs, Covering(chain(tokens, 2), contents, (2, 6, 10), 12, 2, (1, 3, 10)))
    assert mirror.expected("tree", refs[:1]) == 2
