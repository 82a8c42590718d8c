"""Groups: none too large, each context in one."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from contextpilot_rag.batches.grouping import grouped


@given(st.lists(st.integers(0, 9), max_size=80), st.integers(1, 30), st.integers(1, 20), st.permutations(range(10)))
def test_no_group_is_too_large_and_neighbours_stand_together(parts, size, lot, leaves):
    sizes = Counter(parts)
    grouping = grouped(leaves, sizes, size)
    found, earlier = [], Counter(dict.fromkeys([part for part in sizes if sizes[part] > size], 0))
    for start in range(0, len(parts), lot):
        some = np.array(parts[start : start + lot], np.int64)
        found += grouping.of(some, dict(earlier)).tolist()
        earlier.update(part for part in some.tolist() if part in earlier)
    counts = Counter(found)
    assert sorted(counts) == list(range(grouping.count))
    assert max(counts.values(), default=0) <= size
    groups = {part: {group for at, group in zip(parts, found, strict=True) if at == part} for part in sizes}
    order = [group for part in leaves if part in groups for group in sorted(groups[part])]
    assert order == sorted(order)
    for part, count in sizes.items():  # what fits is not torn apart
        assert len(groups[part]) == -(-count // size)


def test_groups_are_as_equal_as_parts_allow():
    grouping = grouped(range(20), dict.fromkeys(range(20), 1), 16)
    assert np.bincount(grouping.groups).tolist() == [10, 10]
