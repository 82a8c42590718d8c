from __future__ import annotations

import tracemalloc

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from contextpilot_rag.index.reuse import Sequences
from tests.index.models import longest_common_prefix

some = settings(max_examples=40)
# Ragged, with empties and repeats; few different blocks, so that prefixes are shared.
ragged = st.lists(st.lists(st.integers(0, 3), max_size=6).map(tuple), max_size=14)


@st.composite
def sent_in_any_order(draw):
    sequences = draw(ragged)
    return sequences, np.array(draw(st.permutations(range(len(sequences)))), np.int64)


@some
@given(sent_in_any_order())
def test_each_sequence_finds_the_longest_prefix_that_was_sent_before(given_in):
    sequences, position = given_in
    reuse = Sequences(sequences).reuse(position)
    for one, sequence in enumerate(sequences):
        shared = [
            longest_common_prefix(sequence, other) if position[two] < position[one] else 0
            for two, other in enumerate(sequences)
        ]
        length = max(shared)
        first = min((two for two, size in enumerate(shared) if size == length), key=lambda two: position[two])
        assert reuse.blocks[one] == length
        assert reuse.source[one] == (first if length else -1)


@some
@given(ragged)
def test_sorted_they_stand_as_in_a_walk_through_their_tree(sequences):
    found = Sequences(sequences)
    order = found.sending.tolist()
    assert order == sorted(range(len(sequences)), key=lambda one: (sequences[one], one))
    assert len(found.common) == len(sequences)
    for place, one in enumerate(order):
        before = longest_common_prefix(sequences[order[place - 1]], sequences[one]) if place else 0
        assert found.common[place] == before


@some
@given(ragged)
def test_sent_sorted_nothing_is_found_that_the_neighbour_does_not_have(sequences):
    found = Sequences(sequences)
    position = np.empty(len(sequences), np.int64)
    position[found.sending] = np.arange(len(sequences))
    assert found.reuse(position).blocks[found.sending].tolist() == found.common.tolist()


def test_nothing_and_only_empty_sequences():
    for sequences in ([], [()], [(), (), ()]):
        reuse = Sequences(sequences).reuse(np.arange(len(sequences)))
        assert reuse.blocks.tolist() == [0] * len(sequences)
        assert reuse.source.tolist() == [-1] * len(sequences)


def test_one_very_long_sequence_costs_no_more_than_its_length():
    sequences = [tuple(range(number, number + 10)) for number in range(1_000)] + [tuple(range(10_000))]
    tracemalloc.start()
    found = Sequences(sequences)
    reuse = found.reuse(np.arange(len(sequences)))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert reuse.blocks.tolist() == [0] * 1_000 + [10]
    assert peak < 10 * 2**20
