from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contextpilot_rag.index.split import by_direction, by_popularity
from tests.index.forests import WEIGHTS, sets

divisions = pytest.mark.parametrize("divide", [by_direction, by_popularity])
nonempty = st.lists(sets.filter(bool), min_size=1, max_size=30)


@divisions
@settings(max_examples=30)
@given(nonempty, st.integers(1, 12))
def test_every_position_stands_in_one_piece_none_too_large(divide, leaves, size):
    pieces = divide(leaves, WEIGHTS, size)
    assert sorted(position for piece in pieces for position in piece) == list(range(len(leaves)))
    assert all(0 < len(piece) <= size for piece in pieces)
    assert divide(list(leaves), WEIGHTS, size) == pieces


@divisions
def test_what_shares_nothing_is_parted_first(divide):
    """Two kinds of sets, mixed: each piece holds one kind."""
    numbers = random.Random(0)
    kinds = [numbers.randint(0, 1) for _ in range(60)]
    kinds += [1 - kind for kind in kinds]
    leaves = [frozenset(100 * kind + numbers.randint(1, 9) for _ in range(4)) | {100 * kind} for kind in kinds]
    pieces = divide(leaves, [5] * 200, 60)
    assert [len({kinds[position] for position in piece}) for piece in pieces] == [1, 1]


@divisions
def test_pieces_keep_more_together_than_chance_does(divide):
    """Eight subjects with blocks of their own, and blocks that fit everywhere."""
    numbers = random.Random(0)
    subjects = [numbers.randrange(8) for _ in range(400)]
    leaves = [
        frozenset([*numbers.sample(range(20 * (1 + subject), 20 * (2 + subject)), 4), *numbers.sample(range(20), 2)])
        for subject in subjects
    ]
    by_chance = [list(range(start, start + 50)) for start in range(0, 400, 50)]
    assert shared(divide(leaves, [1] * 180, 50), leaves) > 1.15 * shared(by_chance, leaves)


def shared(pieces, leaves):
    """Blocks that each set has in common with the best other one of its piece."""
    return sum(max(len(leaves[one] & leaves[two]) for two in piece if two != one) for piece in pieces for one in piece)


@divisions
@pytest.mark.parametrize("leaf", [frozenset({0}), frozenset({1, 2, 3})])
def test_sets_that_are_all_equal(divide, leaf):
    pieces = divide([leaf] * 1_000, [1, 2, 3, 4], 64)
    assert sorted(position for piece in pieces for position in piece) == list(range(1_000))


def test_a_block_without_tokens():
    assert sorted(by_direction([frozenset({0}), frozenset({0, 1}), frozenset({1})], [0, 0], 1)) == [[0], [1], [2]]
