"""PagedPrefixCache: the numbers that a real vLLM gave, the rules behind them, and a naive model beside it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextpilot_rag.errors import InputError, SettingsError
from contextpilot_rag.testing.paged import PagedPrefixCache

SYSTEM = [*range(40)]
DOCUMENTS = {number: [*range(1000 * number, 1000 * number + 320)] for number in range(1, 7)}


def prompt(order: str, question: int = 9000) -> list[int]:
    """System, four documents and a question: 1,335 tokens, as in the measurement with vLLM 0.32."""
    documents = [token for number in order for token in DOCUMENTS[int(number)]]
    return [*SYSTEM, *documents, *range(question, question + 15)]


@pytest.fixture
def cache() -> PagedPrefixCache:
    return PagedPrefixCache(block_size=32)


def test_the_prompt_is_the_measured_one():
    assert len(prompt("1234")) == 1335


def test_cold_is_zero_and_a_repeat_all_full_blocks(cache):
    assert cache.serve(prompt("1234")) == 0
    assert cache.serve(prompt("1234")) == 1312


@pytest.mark.parametrize(
    ("order", "question", "cached"),
    [("1234", 9500, 1312), ("4321", 9000, 32), ("1256", 9000, 672)],
    ids=["same documents, new question", "reversed: the system prompt only", "half of the documents"],
)
def test_what_other_prompts_share(cache, order, question, cached):
    cache.serve(prompt("1234"))
    assert cache.serve(prompt(order, question)) == cached


def test_salts_isolate(cache):
    hits = [cache.serve(prompt("1234"), salt) for salt in (None, "A", "A", "B", None)]
    assert hits == [0, 0, 1312, 0, 1312]


def test_eviction_is_tail_first_and_keeps_the_head():
    """The whole measured sequence on 127 blocks (vLLM's 128 less its null block) ends with the measured 672."""
    cache = PagedPrefixCache(block_size=32, capacity_blocks=127)
    sequence = [("1234", None), ("1234", None), ("4321", None), ("1256", None), ("1234", "A"), ("1234", "A")]
    hits = [cache.serve(prompt(order), salt) for order, salt in [*sequence, ("1234", "B"), ("1234", None)]]
    assert hits == [0, 1312, 32, 672, 0, 1312, 0, 672]


def test_the_last_token_is_never_a_hit():
    cache = PagedPrefixCache(block_size=4)
    cache.serve(range(8))
    assert cache.lookup(range(8)) == 4
    assert cache.lookup(range(9)) == 8
    assert cache.lookup([]) == 0


def test_only_full_blocks_are_cached():
    cache = PagedPrefixCache(block_size=4)
    cache.serve(range(7))
    assert cache.lookup(range(20)) == 4


def test_a_block_is_only_found_behind_its_own_prefix():
    cache = PagedPrefixCache(block_size=2)
    cache.serve([1, 1, 7, 7, 9])
    assert cache.lookup([2, 2, 7, 7, 9]) == 0
    assert cache.lookup([7, 7, 9]) == 0


def test_descendants_of_an_evicted_block_stay_out_of_reach_and_come_back():
    cache = PagedPrefixCache(block_size=1, capacity_blocks=4)
    cache.serve([1, 2, 3])
    cache.serve([1, 2, 3, 4])
    cache.serve([1])
    cache.serve([8])  # evicts 4, the tail of the oldest
    assert cache.lookup([1, 2, 3, 4, 5]) == 3
    cache.serve([9])  # evicts 3
    assert cache.lookup([1, 2, 3, 4, 5]) == 2


def test_lookup_touches_nothing():
    cache = PagedPrefixCache(block_size=1, capacity_blocks=2)
    cache.serve([1])
    cache.serve([2])
    assert cache.lookup([1, 0]) == 1
    cache.serve([3])
    assert cache.lookup([1, 0]) == 0


def test_a_block_that_is_not_full_goes_first():
    cache = PagedPrefixCache(block_size=2, capacity_blocks=4)
    cache.serve([1, 1])
    cache.serve([2, 2, 2])  # the second block is not full: 4 have to go round
    cache.serve([3, 3, 4, 4])
    assert [cache.lookup([one, one, 0]) for one in (1, 2, 3)] == [2, 2, 2]


def test_a_hit_is_touched():
    cache = PagedPrefixCache(block_size=1, capacity_blocks=3)
    cache.serve([1])
    cache.serve([2])
    cache.serve([1, 5])
    cache.serve([3])  # evicts 2, though 1 came earlier
    assert cache.lookup([1, 0]) == 1
    assert cache.lookup([2, 0]) == 0


def test_the_answer_is_cached_behind_its_prompt_but_for_its_last_token():
    cache = PagedPrefixCache(block_size=2)
    cache.serve([1, 2, 3], answer=[4, 5, 6])
    assert cache.lookup([1, 2, 3, 4, 5, 6, 7]) == 4
    cache.serve([1, 2, 3], answer=[4, 5, 6, 7])
    assert cache.lookup([1, 2, 3, 4, 5, 6, 7]) == 6


def test_what_does_not_fit_is_refused_and_changes_nothing():
    cache = PagedPrefixCache(block_size=4, capacity_blocks=2)
    cache.serve(range(8))
    for tokens, answer in ((range(9), []), (range(8), [1, 2])):
        with pytest.raises(InputError, match="need 3 blocks of 4, and the cache holds 2"):
            cache.serve(tokens, answer=answer)
    assert cache.lookup(range(9)) == 8


def test_clear_and_len():
    cache = PagedPrefixCache(block_size=4)
    cache.serve(range(9))
    assert len(cache) == 3  # two full ones and one that is not
    cache.clear()
    assert len(cache) == 0
    assert cache.lookup(range(9)) == 0


def test_the_default_bound():
    assert PagedPrefixCache().capacity_tokens == 16 * 262_144


@pytest.mark.parametrize("value", [0, -1, 1.5, True, "16", 10**30])
def test_impossible_sizes(value):
    with pytest.raises(SettingsError, match="block_size must be an int from 1 to"):
        PagedPrefixCache(block_size=value)
    with pytest.raises(SettingsError, match="capacity_blocks must be an int from 1 to"):
        PagedPrefixCache(capacity_blocks=value)


@pytest.mark.parametrize("tokens", [[-1], [2**64], ["a"], [1.5], [None]])
def test_impossible_tokens(tokens):
    cache = PagedPrefixCache(block_size=1)
    with pytest.raises(InputError, match="tokens must be ints from 0"):
        cache.serve(tokens)
    assert len(cache) == 0


# Few different tokens, so that prefixes are shared; short, so that they are found again.
REQUESTS = st.lists(
    st.tuples(
        st.lists(st.integers(0, 1), max_size=14),
        st.sampled_from([None, "", "A"]),
        st.lists(st.integers(0, 1), max_size=3),
    ),
    max_size=25,
)


@given(requests=REQUESTS, block_size=st.integers(1, 4), capacity=st.integers(1, 12))
def test_as_a_naive_model(requests, block_size, capacity):
    """The model keeps whole prefixes in a list, the next to be evicted first."""
    cache = PagedPrefixCache(block_size, capacity)
    oldest_first: list[object] = []
    for tokens, salt, answer in requests:
        computed = [*tokens, *answer[:-1]]
        if len(computed) > block_size * capacity:
            with pytest.raises(InputError):
                cache.serve(tokens, salt, answer)
            continue
        ends = range(block_size, len(computed) + 1, block_size)
        prefixes: list[object] = [(salt, *computed[:end]) for end in ends]
        expected = 0
        while expected + block_size < len(tokens) and prefixes[expected // block_size] in oldest_first:
            expected += block_size
        assert cache.lookup(tokens, salt) == expected
        assert cache.serve(tokens, salt, answer) == expected
        unfilled = [object()] * bool(len(computed) % block_size)
        oldest_first += unfilled
        for prefix in reversed(prefixes):
            if prefix in oldest_first:
                oldest_first.remove(prefix)
            oldest_first.append(prefix)
        del oldest_first[:-capacity]
        oldest_first = unfilled + [one for one in oldest_first if one not in unfilled]
        assert len(cache) == len(oldest_first)


@given(requests=REQUESTS, block_size=st.integers(1, 4), capacity=st.integers(4, 12))
def test_invariants(requests, block_size, capacity):
    cache = PagedPrefixCache(block_size, capacity)
    sent: dict[str | None, list[list[int]]] = {}
    for tokens, salt, _ in requests:
        if len(tokens) > cache.capacity_tokens:
            continue
        hit = cache.serve(tokens, salt)
        assert hit % block_size == 0
        assert hit <= max(0, len(tokens) - 1)
        assert not hit or any(earlier[:hit] == tokens[:hit] for earlier in sent[salt])
        assert len(cache) <= capacity
        sent.setdefault(salt, []).append(tokens)
