from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from contextpilot_rag.index.history import History

contexts = st.lists(st.lists(st.integers(0, 6), unique=True, max_size=5), max_size=30)


@given(contexts, st.integers(1, 8))
def test_agrees_with_a_list_of_the_last_requests(added, window):
    history = History(window)
    for request in added:
        history.add(request)
    last = added[-window:]
    assert len(history) == len(last)
    assert history.everyone.bit_count() == len(last)
    assert history.blocks == len({block for request in last for block in request})
    for one in range(7):
        assert history.count(one) == sum(one in request for request in last)
        for other in range(7):
            both = history.bits(one) & history.bits(other)
            assert both.bit_count() == sum(one in request and other in request for request in last)
        assert history.bits(one) & ~history.everyone == 0


def test_an_empty_request_has_its_place():
    history = History(2)
    for request in (["a"], [], []):
        history.add(request)
    assert (len(history), history.blocks, history.count("a")) == (2, 0, 0)


def test_memory_is_bounded_by_the_window():
    history = History(window=50)
    for number in range(5_000):
        history.add((number, place) for place in range(10))
        assert history.blocks <= 500
    assert len(history) == 50
    assert max(bits.bit_length() for bits in history._bits.values()) <= 50
