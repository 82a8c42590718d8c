from __future__ import annotations

from unittest.mock import patch

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from contextpilot_rag.index import members
from contextpilot_rag.index.members import Members
from tests.index.forests import WEIGHTS, some_sets

few = st.frozensets(st.integers(0, 5), max_size=3)
many_sets = st.lists(few, min_size=1, max_size=14)


def shared(one, other):
    return sum(WEIGHTS[block] for block in one & other)


def overlaps(sets, wanted):
    return [shared(wanted, blocks) for blocks in sets]


@settings(max_examples=40)
@given(many_sets, few, st.integers(0, 3))
def test_overlaps_with_rare_and_popular_blocks(sets, wanted, spare):
    """Blocks that at least two sets hold: the others are shared by nobody."""
    with patch.object(members, "_RARE", 3):
        found = Members(len(sets) + spare, sets, WEIGHTS)
    counts = {block: sum(block in blocks for blocks in sets) for block in range(6)}
    wanted = frozenset(block for block in wanted if counts[block] > 1)
    assert found.overlaps(wanted).tolist() == overlaps(sets, wanted) + [0] * spare
    out = np.full(len(sets) + spare, 7, np.float32)
    assert found.overlaps(wanted, out) is out
    assert out.tolist() == overlaps(sets, wanted) + [0] * spare
    both = set(found._rows) & set(found._lists)
    assert not both


@settings(max_examples=40)
@given(many_sets, st.integers(0, 3), st.sampled_from([0, 640]))
def test_the_table_is_all_overlaps_of_two(sets, spare, few_rows):
    with patch.object(members, "_RARE", 2), patch.object(members, "_FEW_ROWS", few_rows):
        table = Members(len(sets) + spare, sets, WEIGHTS).table(sets)
    for one, blocks in enumerate(sets):
        for other, more in enumerate(sets):
            assert one == other or table[one, other] == shared(blocks, more)
        assert not table[one, len(sets) :].any()


@settings(max_examples=40)
@given(many_sets, st.data())
def test_sets_that_change_and_places_that_go(sets, data):
    with patch.object(members, "_RARE", 2):
        found = Members(len(sets), sets, WEIGHTS)
    known = [block for block in range(6) if sum(block in blocks for blocks in sets) > 1]
    now = [blocks & frozenset(known) for blocks in sets]
    for _ in range(6):
        place = data.draw(st.integers(0, len(now) - 1))
        new = data.draw(st.frozensets(st.sampled_from(known))) if known else frozenset()
        found.remove(place, now[place] - new)
        found.add(place, new - now[place])
        now[place] = new
        if data.draw(st.booleans()):
            kept = data.draw(st.lists(st.integers(0, len(now) - 1), unique=True, min_size=1).map(sorted))
            found.keep(kept)
            now = [now[place] for place in kept]
        for wanted in now:
            assert found.overlaps(wanted).tolist() == overlaps(now, wanted)


def test_hundreds_of_sets_with_the_real_limits():
    sets, weights = some_sets(seed=1, count=300, blocks=120, size=8)
    found = Members(len(sets), sets, weights)
    assert found._rows
    assert any(found._lists.values())
    table = found.table(sets)
    for one, blocks in enumerate(sets):
        expected = [sum(weights[block] for block in blocks & more) for more in sets]
        row = found.overlaps(blocks)
        expected[one] = row[one] = table[one, one] = 0
        assert row.tolist() == table[one].tolist() == expected
