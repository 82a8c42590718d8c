"""Splitting: who goes where, and that lots need not know of each other."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from contextpilot_rag import BlockRef
from contextpilot_rag.batches.contexts import Contexts
from contextpilot_rag.batches.splitting import DEPTH, SplitTree, descend, merge_surveys, survey
from contextpilot_rag.types import Request

from .drawn import WEIGHTS, batches


def contexts_of(batch):
    return Contexts.of(Request(tuple(BlockRef(name, WEIGHTS[name]) for name in dict.fromkeys(ids))) for ids in batch)


def hash_of(contexts):
    return dict(zip(contexts.keys, contexts.hashes.tolist(), strict=True))


@given(batches, st.data())
def test_a_context_goes_to_the_heaviest_block_that_it_holds_or_to_the_rest(batch, data):
    contexts = contexts_of(batch)
    known = hash_of(contexts)
    if not known:
        return
    names = data.draw(st.lists(st.sampled_from(sorted(known)), min_size=1, unique=True))
    parts = np.array(data.draw(st.lists(st.sampled_from([0, 5]), min_size=len(batch), max_size=len(batch))))
    tree = SplitTree()
    split = tree.split(0, np.array([known[name] for name in names], np.uint64))
    found = descend(contexts, parts, {0: split})
    for ids, before, after in zip(batch, parts.tolist(), found.tolist(), strict=True):
        ranks = [rank for rank, name in enumerate(names) if name in ids]
        assert after == (before if before == 5 else split.first + min(ranks, default=len(names)))
        if before == 0 and ranks:
            assert tree.above(after) == [known[names[min(ranks)]]]


@given(batches, st.integers(1, 40), st.data())
def test_lots_are_surveyed_apart_and_their_summaries_are_of_all_of_them(batch, cut, data):
    parts = np.array(data.draw(st.lists(st.sampled_from([0, 1]), min_size=len(batch), max_size=len(batch))))
    contexts = contexts_of(batch)
    left_out = data.draw(st.sampled_from([[], list(hash_of(contexts).values())[:1]]))
    above = {0: left_out}
    lots = [survey(contexts_of(batch[run]), parts[run], above, 100) for run in (slice(cut), slice(cut, None))]
    found = merge_surveys(lots, 100).get(0)
    exact = Counter()
    for ids, part in zip(batch, parts.tolist(), strict=True):
        exact.update(name for name in set(ids) if part == 0 and hash_of(contexts)[name] not in left_out)
    weights = {} if found is None else dict(zip(found.blocks.tolist(), found.weights.tolist(), strict=True))
    assert weights == {hash_of(contexts)[name]: WEIGHTS[name] * times for name, times in exact.items()}


def test_leaves_stand_depth_first_in_the_order_of_their_blocks():
    tree = SplitTree()
    tree.split(0, np.array([7, 9], np.uint64))
    tree.split(1, np.array([8], np.uint64))
    tree.split(3, np.array([7], np.uint64))
    assert tree.leaves() == [4, 5, 2, 6, 7]
    assert [tree.above(part) for part in tree.leaves()] == [[8, 7], [7], [9], [7], []]


def test_nothing_is_split_for_ever():
    tree, part = SplitTree(), 0
    for _ in range(DEPTH):
        assert tree.may_split(part)
        part = tree.split(part, np.array([1], np.uint64)).first
    assert not tree.may_split(part)
