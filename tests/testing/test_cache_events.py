"""What PagedPrefixCache tells: by its events alone, its content can be known at every step."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextpilot_rag.engines.chain import ROOT, chain, extended
from contextpilot_rag.engines.kv import Cleared, Removed, Stored
from contextpilot_rag.errors import InputError
from contextpilot_rag.testing.paged import PagedPrefixCache
from tests.testing.test_paged import REQUESTS


class Heard:
    """A follower that only listens: which hashes are there, and what our own name for each is."""

    def __init__(self):
        self.steps = []
        self.there = Counter()
        self.names = {}

    def __call__(self, events, salt=None):
        assert events
        self.steps.append(events)
        for event in events:
            if isinstance(event, Stored):
                assert len(event.tokens) == len(event.hashes) * event.block_size
                assert event.parent is None or self.there[event.parent]
                name = ROOT if event.parent is None else self.names[event.parent]
                for number, one in enumerate(event.hashes):
                    start = number * event.block_size
                    extra = event.extra[number] if event.extra else ""
                    name = extended(name, event.tokens[start : start + event.block_size], extra)
                    self.names[one] = name
                    self.there[one] += 1
            elif isinstance(event, Removed):
                for one in event.hashes:
                    assert self.there[one] == 1
                    del self.there[one]
            else:
                self.there.clear()


def heard_by(block_size, capacity_blocks=None):
    heard = Heard()
    return heard, PagedPrefixCache(block_size, capacity_blocks, heard)


@given(requests=REQUESTS, block_size=st.integers(1, 4), capacity=st.integers(1, 12), clear=st.integers(0, 25))
def test_the_content_is_known_by_events_alone(requests, block_size, capacity, clear):
    heard, cache = heard_by(block_size, capacity)
    for number, (tokens, salt, answer) in enumerate(requests):
        if number == clear:
            cache.clear()
            assert heard.steps[-1] == (Cleared(),)
        before = len(heard.steps)
        try:
            hit = cache.serve(tokens, salt, answer)
        except InputError:
            assert len(heard.steps) == before
            continue
        assert heard.there.keys() == cache.hashes
        assert max(heard.there.values(), default=1) == 1
        # Our names, from what was heard, are those of the prompt: whoever holds these may predict the hit.
        names = chain([*tokens, *answer[:-1]], block_size, salt)
        resident = {heard.names[one] for one in heard.there}
        assert resident >= set(names)
        assert hit <= len(names) * block_size


@given(requests=REQUESTS, block_size=st.integers(1, 4), capacity=st.integers(1, 12))
def test_hits_can_be_predicted_by_events_alone(requests, block_size, capacity):
    heard, cache = heard_by(block_size, capacity)
    for tokens, salt, answer in requests:
        if len([*tokens, *answer[:-1]]) > cache.capacity_tokens:
            continue
        resident = {heard.names[one] for one in heard.there}
        run = 0
        for name in chain(tokens, block_size, salt)[: max(0, len(tokens) - 1) // block_size]:
            if name not in resident:
                break
            run += block_size
        assert cache.serve(tokens, salt, answer) == run


@given(requests=REQUESTS, block_size=st.integers(1, 4), capacity=st.integers(1, 12))
def test_listening_changes_nothing(requests, block_size, capacity):
    _, listened = heard_by(block_size, capacity)
    alone = PagedPrefixCache(block_size, capacity)
    for tokens, salt, answer in requests:
        if len([*tokens, *answer[:-1]]) <= alone.capacity_tokens:
            assert listened.serve(tokens, salt, answer) == alone.serve(tokens, salt, answer)
    assert listened.hashes == alone.hashes


@given(requests=REQUESTS, block_size=st.integers(1, 4), capacity=st.integers(1, 12))
def test_in_a_step_room_is_made_before_anything_is_stored(requests, block_size, capacity):
    heard, cache = heard_by(block_size, capacity)
    for tokens, salt, answer in requests:
        if len([*tokens, *answer[:-1]]) <= cache.capacity_tokens:
            cache.serve(tokens, salt, answer)
    for step in heard.steps:
        kinds = [type(event) for event in step]
        assert kinds == [Removed] * kinds.count(Removed) + [Stored] * kinds.count(Stored)
        assert kinds.count(Stored) <= 1
        assert all(len(event.hashes) == 1 for event in step if isinstance(event, Removed))


def test_only_what_is_new_is_told_in_one_event_behind_its_parent():
    heard, cache = heard_by(4)
    cache.serve(range(10))
    cache.serve([*range(8), 50, 51, 52, 53, 54, 55, 56, 57])
    (first,), (second,) = heard.steps
    assert (len(first.hashes), first.parent, first.tokens, first.extra) == (2, None, (*range(8),), ())
    assert (len(second.hashes), second.parent, second.tokens) == (2, first.hashes[1], (*range(50, 58),))
    cache.serve([*range(8), 50])  # a hit as far as it is full
    assert len(heard.steps) == 2


def test_a_salt_is_told_with_the_first_block_only():
    heard, cache = heard_by(2)
    cache.serve([1, 2, 3, 4, 5], "acme")
    cache.serve([1, 2, 3, 4, 5, 6, 7], "acme")
    assert [event.extra for (event,) in heard.steps] == [("salt:acme", ""), ()]


def test_the_answer_is_told_as_it_fills_blocks():
    heard, cache = heard_by(4)
    cache.serve(range(6), answer=range(100, 108))  # 13 are computed: a block of prompt and answer, then one of it alone
    assert [[event.tokens for event in step] for step in heard.steps] == [
        [(0, 1, 2, 3)],
        [(4, 5, 100, 101)],
        [(102, 103, 104, 105)],
    ]
    assert heard.steps[2][0].parent == heard.steps[1][0].hashes[0]


def test_room_for_the_answer_is_made_when_it_begins_a_block():
    heard, cache = heard_by(2, 3)
    for number in (1, 2):
        cache.serve([number, number])
    cache.serve([3, 3], answer=[4, 5, 6])  # fills the third block, and begins and fills a fourth
    assert [[(type(event), len(event.hashes)) for event in step] for step in heard.steps[2:]] == [
        [(Stored, 1)],
        [(Removed, 1)],
        [(Stored, 1)],
    ]
    assert heard.steps[3][0].hashes == heard.steps[0][0].hashes


def test_a_block_computed_again_takes_the_place_of_its_copy():
    """The last token is never a hit, so that the last block of a repeated prompt is computed again."""
    heard, cache = heard_by(4)
    cache.serve(range(8))
    cache.serve(range(8))
    removed, stored = heard.steps[1]
    assert isinstance(removed, Removed)
    assert removed.hashes == stored.hashes == heard.steps[0][0].hashes[1:]


def test_hashes_are_64_bits_unsigned():
    heard, cache = heard_by(1)
    cache.serve(range(200))
    hashes = heard.steps[0][0].hashes
    assert len(set(hashes)) == 200
    assert 2**63 < max(hashes) < 2**64
    assert min(hashes) >= 0


@pytest.mark.parametrize("tokens", [[], [1, 2, 3]])
def test_nothing_full_nothing_told(tokens):
    heard, cache = heard_by(4)
    cache.serve(tokens, "salt", [])
    assert heard.steps == []
