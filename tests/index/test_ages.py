from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from contextpilot_rag.index.ages import Ages

SECONDS = 64.0


@given(st.lists(st.floats(0, 50), max_size=60))
def test_tells_each_count_once_it_is_old_and_not_much_later(gaps):
    ages, now, used = Ages(SECONDS), 0.0, {}
    gone = 0
    for uses, gap in enumerate(gaps, start=1):
        now += gap
        gone = max(gone, ages.expired(now) or 0)
        assert all(used[old] < now - SECONDS for old in range(1, gone + 1)), "nothing young is told"
        assert not [old for old, when in used.items() if when < now - SECONDS - 1.01 and old > gone], "nor too late"
        used[uses] = now
        ages.note(now, uses)


def test_memory_is_bounded_whatever_the_traffic():
    ages = Ages(SECONDS)
    for step in range(100_000):
        ages.expired(step / 100)
        ages.note(step / 100, step)
    assert len(ages._noted) <= 66
