from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextpilot_rag import BlockRef, LocalIndex, Namespace, OrderBudget, Request, Usage
from contextpilot_rag.index.tree import PrefixTree
from contextpilot_rag.testing import PagedPrefixCache

HEAD, QUESTION, ANSWER, KV_BLOCK = 60, 25, 30, 16
A, B, C, D, E = (BlockRef(key, 200) for key in "abcde")
OFF = OrderBudget("retrieved")


class Engine:
    """A paged cache that is sent prompts of blocks, and reports as engines do."""

    def __init__(self, capacity: int) -> None:
        self.cache = PagedPrefixCache(KV_BLOCK, capacity // KV_BLOCK)
        self.number = 0

    def serve(self, alignment):
        self.number += 1
        prompt = ["head"] * HEAD
        for rank in alignment.order:
            block = alignment.request.blocks[rank]
            prompt += [block.key] * block.tokens
        prompt += [self.number] * QUESTION
        cached = self.cache.serve([hash(token) % 2**60 for token in prompt], answer=range(ANSWER))
        return Usage(len(prompt), cached, ANSWER)


def ask(index, *blocks, cached, head=0, prompt=None):
    """One request after another, in the order given, with what is reported for it."""
    alignment = index.align(Request(blocks, budget=OFF))
    tokens = sum(block.tokens for block in blocks) + head if prompt is None else prompt
    index.observe(alignment, Usage(tokens, cached, 0))
    return alignment


def reporting(**settings):
    """An index whose engine has shown that it reports what it finds."""
    index = LocalIndex(**settings)
    ask(index, cached=16, prompt=16)
    return index


def believed(index, *blocks):
    return index.predict(Request(blocks, budget=OFF))


def test_a_cold_prefix_prunes_all_that_was_used_before_it():
    index = reporting(single=True)
    for block in (A, B, C):
        ask(index, block, D, cached=0)
    ask(index, B, E, cached=0)  # b was believed, and is gone; so is a, which was used before it
    assert believed(index, A, D) == 0
    assert believed(index, B, D) == 200, "only what this request has just brought back"
    assert believed(index, B, E) == 400
    assert believed(index, C, D) == 400, "used later: nothing is known of it"
    stats = index.stats()
    assert (stats.cold_prefixes, stats.pruned_blocks, stats.tree_blocks) == (1, 3, 4)


def test_what_was_found_is_kept_and_what_was_not_goes():
    index = reporting(single=True)
    ask(index, E, cached=0)
    ask(index, A, B, C, D, cached=0)
    ask(index, A, B, E, cached=400)
    ask(index, A, B, C, D, cached=400)  # a and b were there, d was not
    assert believed(index, A, B, C, D) == 800, "this request has brought it back"
    assert believed(index, A, B, E) == 600, "used after d"
    assert believed(index, E) == 0, "used before d"


@pytest.mark.parametrize("cached", [None, 800, 790, 700])
def test_nothing_is_concluded_from_no_report_or_one_that_is_near(cached):
    index = reporting(single=True)
    ask(index, A, cached=0)
    ask(index, B, C, D, E, cached=0)
    ask(index, B, C, D, E, cached=cached)
    assert believed(index, A) == 200
    assert index.stats().cold_prefixes == 0


def test_estimates_that_are_too_long_or_too_short_prune_nothing():
    for factor in (0.7, 1.4):
        index, real = LocalIndex(), int(800 * factor)
        for block in (A, B):
            ask(index, block, C, D, E, cached=0, prompt=real + 40)
        for _ in range(20):
            for block in (A, B):
                ask(index, block, C, D, E, cached=real - real % KV_BLOCK, prompt=real + 40)
        assert index.stats().cold_prefixes == 0


def test_a_prefix_that_was_still_under_way_proves_nothing():
    index = reporting(single=True)
    ask(index, C, cached=0)
    first = index.align(Request((A, B), budget=OFF))
    second = index.align(Request((A, B), budget=OFF))  # before the first is answered
    assert second.belief.since is None
    index.observe(second, Usage(400, 0))
    index.observe(first, Usage(400, 0))
    assert believed(index, C) == 200
    third = index.align(Request((A, B), budget=OFF))
    assert third.belief.since is not None
    index.observe(third, Usage(400, 0))
    assert believed(index, C) == 0


def test_requests_that_are_never_answered_cost_bounded_memory():
    index = LocalIndex()
    for _ in range(10_000):
        index.align(Request((A,), budget=OFF))
    share = index._shares[Namespace()]
    assert len(share.reports._unanswered) <= 4_096


@pytest.mark.parametrize(("single", "kept"), [(None, 200), (True, 0), (False, 200)])
def test_whether_one_cache_answers_all_can_be_said(single, kept):
    index = reporting(single=single)
    ask(index, A, cached=0)
    ask(index, B, cached=0)
    ask(index, B, C, cached=0)
    assert believed(index, A) == kept


def test_usage_can_be_left_to_events():
    index = reporting(single=True)
    index.follow_usage(False)
    ask(index, A, cached=0)
    ask(index, B, cached=0)
    ask(index, B, C, cached=0)
    assert believed(index, A) == 200
    assert index.stats().cold_prefixes == 0
    index.follow_usage(True)
    ask(index, B, D, cached=0)
    assert believed(index, A) == 0


def test_one_namespace_learns_nothing_from_another():
    index = LocalIndex()
    other = Namespace(tenant="other")
    index.observe(index.align(Request((A,), other)), Usage(200, 0))
    ask(index, B, cached=0)
    ask(index, B, C, cached=0)
    assert index.predict(Request((A,), other)) == 200


def test_what_stands_before_the_blocks_is_learnt_and_expected():
    index = LocalIndex(kv_block_tokens=KV_BLOCK)
    engine = Engine(100_000)
    assert index.align(Request((A,), budget=OFF)).expected_cached_tokens is None
    for block in (B, C, D):
        alignment = index.align(Request((block, A), budget=OFF))
        index.observe(alignment, engine.serve(alignment))
    again = index.align(Request((B, A, E), budget=OFF))
    assert again.expected_cached_tokens == (48 + 400) // KV_BLOCK * KV_BLOCK
    assert engine.serve(again).cached_tokens == pytest.approx(again.expected_cached_tokens, abs=KV_BLOCK)
    assert index.align(Request((E,), budget=OFF)).expected_cached_tokens == 48


def test_an_engine_that_was_warm_before_has_no_longer_a_head():
    index, engine = LocalIndex(kv_block_tokens=KV_BLOCK), Engine(100_000)
    for block in (A, B, C, D):
        engine.serve(LocalIndex().align(Request((block, E), budget=OFF)))
    for blocks in ((A, E), (B, E), (C, D), (D, C)):
        alignment = index.align(Request(blocks, budget=OFF))
        index.observe(alignment, engine.serve(alignment))
    assert index.align(Request((E,), budget=OFF)).expected_cached_tokens in {None, 48}


def test_calibration_compares_what_was_expected_with_what_was_reported():
    index = LocalIndex()
    assert index.stats().calibration is None
    ask(index, A, cached=0)
    ask(index, A, cached=100)
    ask(index, A, cached=None)
    expecting = replace(index.align(Request((A,), budget=OFF)), expected_cached_tokens=300)
    index.observe(expecting, Usage(200, 150))
    stats = index.stats()
    assert (stats.reported_cached_tokens, stats.reported_of_expected, stats.predicted_of_reported) == (250, 150, 300)
    assert stats.calibration == 0.5


def run(requests, index, capacity, engines=1):
    """Tokens found cached, and requests that were believed to find much more than they did, in the second half."""
    pool = [Engine(capacity) for _ in range(engines)]
    chance = random.Random(1)
    found = wrong = 0
    for number, blocks in enumerate(requests):
        alignment = index.align(Request(tuple(blocks)))
        usage = chance.choice(pool).serve(alignment)
        index.observe(alignment, usage)
        if number >= len(requests) // 2:
            found += usage.cached_tokens
            wrong += usage.cached_tokens < alignment.predicted_cached_tokens / 2
    return found, wrong


def traffic(count, seed=0):
    numbers = random.Random(seed)
    blocks = [BlockRef(key, 60 + key * 7 % 80) for key in range(60)]
    weights = [1 / (1 + rank) for rank in range(60)]
    for _ in range(count):
        yield list(dict.fromkeys(numbers.choices(blocks, weights, k=9)))[:6]


def test_learns_the_capacity_that_nobody_told_it():
    requests, capacity = list(traffic(600)), 3_000
    ignorant, learning, knowing = LocalIndex(usage=False), LocalIndex(), LocalIndex(capacity, kv_block_tokens=KV_BLOCK)
    none, usage, model = (run(requests, index, capacity) for index in (ignorant, learning, knowing))
    assert usage[1] < none[1] / 3, "beliefs that were wrong"
    assert usage[1] < 0.1 * 300
    assert usage[0] > none[0] + 0.7 * (max(model[0], usage[0]) - none[0])
    assert learning.stats().tree_tokens < 2 * capacity < ignorant.stats().tree_tokens


def test_the_model_is_in_step_with_a_paged_cache():
    requests, capacity = list(traffic(400)), 3_000
    index, engine, off = LocalIndex(capacity, kv_block_tokens=KV_BLOCK, usage=False), Engine(capacity), []
    for blocks in requests:
        alignment = index.align(Request(tuple(blocks)))
        usage = engine.serve(alignment)
        index.observe(alignment, usage)
        if alignment.expected_cached_tokens is not None:
            off.append(abs(usage.cached_tokens - alignment.expected_cached_tokens))
    assert sum(off) / len(off) < 20


@pytest.mark.parametrize("engines", [2, 4])
def test_a_tree_for_several_engines_is_not_emptied_by_misses(engines):
    requests = list(traffic(800))
    blind = run(requests, LocalIndex(usage=False), 3_000, engines)
    index = LocalIndex()
    learning = run(requests, index, 3_000, engines)
    assert learning[0] >= 0.97 * blind[0]
    assert index.stats().tree_tokens > 3_000


def test_an_engine_that_restarts_is_noticed():
    index, engine = LocalIndex(), Engine(100_000)
    for blocks in list(traffic(300)):
        alignment = index.align(Request(tuple(blocks)))
        index.observe(alignment, engine.serve(alignment))
    engine.cache.clear()
    wrong = 0
    for blocks in list(traffic(300, seed=1)):
        alignment = index.align(Request(tuple(blocks)))
        usage = engine.serve(alignment)
        index.observe(alignment, usage)
        wrong += usage.cached_tokens < alignment.predicted_cached_tokens / 2
    assert wrong < 60


@given(st.data())
def test_no_report_breaks_it(data):
    index = LocalIndex(kv_block_tokens=KV_BLOCK)
    blocks = [BlockRef(key, key + 1) for key in range(6)]
    count = st.integers(0, 400) | st.none()
    waiting = []
    for _ in range(data.draw(st.integers(1, 25))):
        chosen = data.draw(st.lists(st.sampled_from(blocks), unique=True, max_size=5))
        waiting.append(index.align(Request(tuple(chosen))))
        if data.draw(st.booleans()):
            alignment = waiting.pop(data.draw(st.integers(0, len(waiting) - 1)))
            index.observe(alignment, Usage(data.draw(count), data.draw(count), data.draw(count)))
    stats = index.stats()
    assert stats.tree_blocks >= 0
    assert stats.requests >= stats.observed


def thrashed(usage, bad, capacity, **settings):
    """Tokens found after a time in which others used the cache so much that nothing of ours was left in it."""
    engine, index, found = Engine(capacity), LocalIndex(usage=usage, **settings), 0
    for number, blocks in enumerate(traffic(bad + 500)):
        alignment = index.align(Request(tuple(blocks)))
        if number < bad:
            engine.cache.clear()
        usage_report = engine.serve(alignment)
        index.observe(alignment, usage_report)
        if number >= bad:
            found += usage_report.cached_tokens
    return found


@pytest.mark.parametrize("bad", [30, 80])
@pytest.mark.parametrize("settings", [{}, {"capacity_tokens": 8_000, "kv_block_tokens": KV_BLOCK}, {"single": True}])
def test_bad_times_are_not_believed_to_last(bad, settings):
    ignoring, learning = (thrashed(usage, bad, 8_000, **settings) for usage in (False, True))
    assert learning > 0.93 * ignoring


@pytest.mark.parametrize("single", [None, True])
def test_an_engine_that_always_reports_nothing_found_is_not_taken_at_its_word(single):
    index = LocalIndex(single=single)
    for blocks in traffic(100):
        ask(index, *blocks, cached=0)
    assert index.stats().cold_prefixes == 0
    index.observe(index.align(Request((A,))), Usage(300, 48))
    ask(index, *blocks, cached=0)
    assert index.stats().cold_prefixes == 1, "it has shown that it reports what it finds"


@pytest.mark.parametrize(("engines", "share"), [(2, 0.97), (4, 0.97), (8, 0.9)])
def test_large_caches_behind_one_address_are_believed_in_as_without_reports(engines, share):
    requests = list(traffic(600))
    blind, learning = (run(requests, LocalIndex(usage=usage), 1_000_000, engines)[0] for usage in (False, True))
    assert learning >= share * blind


@pytest.mark.parametrize("question", [1_000, 3_000])
def test_long_questions_do_not_hide_that_blocks_are_estimated_too_long(question):
    index, numbers = LocalIndex(), random.Random(0)
    real = {key: 60 + key * 7 % 80 for key in range(60)}
    for blocks in traffic(200):
        alignment = index.align(Request(tuple([BlockRef(block.key, 3 * block.tokens) for block in blocks])))
        lengths = [real[alignment.request.blocks[rank].key] for rank in alignment.order]
        cached = HEAD + sum(lengths[: alignment.cached_blocks])
        prompt = HEAD + sum(lengths) + question + numbers.randrange(20)
        index.observe(alignment, Usage(prompt, cached - cached % KV_BLOCK, ANSWER))
    assert index.stats().cold_prefixes <= 3, "all that was believed was found"


def test_kv_blocks_are_as_long_as_reports_show():
    index, page = LocalIndex(), 1_024
    for blocks in traffic(300):
        alignment = index.align(Request(tuple(blocks)))
        prompt = HEAD + alignment.request.tokens + QUESTION
        cached = HEAD + alignment.predicted_cached_tokens if alignment.cached_blocks else 0
        index.observe(alignment, Usage(prompt + page, (page + cached) // page * page, ANSWER))
    assert index.stats().cold_prefixes == 0


def test_one_absurd_report_does_not_empty_the_room():
    for absurd in (1_000_000, 2**70, 1.5, True):
        index = LocalIndex(3_000)
        for number in range(12):
            ask(index, BlockRef(number, 200), cached=0, prompt=absurd if number == 5 else 220)
        assert index.stats().tree_blocks == 12, "twelve times 220 tokens fit"
        assert index.stats().reported_prompt_tokens == 11 * 220 + (absurd if absurd == 1_000_000 else 0)


def test_what_stands_before_blocks_that_all_prompts_begin_with_is_told_from_what_is_found():
    index = LocalIndex(kv_block_tokens=KV_BLOCK)
    for _ in range(5):
        alignment = ask(index, A, B, cached=2_800, prompt=2_900)
    assert alignment.expected_cached_tokens == 2_800


def test_reports_that_are_late_do_not_make_a_cache_look_smaller():
    tree = PrefixTree()
    for block in (A, B, C):
        tree.insert([block])
    until = tree.clock
    assert tree.used_between(1, until) == 200
    tree.touch([B])
    assert tree.used_between(1, until) == 0
    assert tree.used_between(1, until, most=True) == 200


def test_no_request_waits_while_a_large_tree_is_pruned():
    index = LocalIndex(single=True)
    tree = index._share(Namespace()).tree
    ask(index, A, cached=16, prompt=400)
    for number in range(3_000):
        index.restore(Namespace(), [BlockRef((number, place), 10) for place in range(5)])
    ask(index, A, cached=16, prompt=400)
    ask(index, E, cached=16, prompt=400)
    index.restore(Namespace(), [BlockRef("new", 10)])
    before = tree.blocks
    tree.forget_until(tree.clock - 1)
    assert before - 2_000 <= tree.blocks < before, "a step"
    for _ in range(20):
        ask(index, B, cached=16, prompt=400)
    assert tree.blocks == 1, "the others followed"
    for number in range(3_000):
        index.restore(Namespace(), [BlockRef((number, place), 10) for place in range(5)])
    index.resize(1_000)
    assert tree.tokens <= 1_000
