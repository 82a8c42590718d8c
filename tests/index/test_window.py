from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextpilot_rag.errors import SettingsError
from contextpilot_rag.index.window import Window


def test_the_longest_cached_prefix_goes_first_and_of_equals_the_oldest():
    window = Window(size=3)
    for item in (1, 5, 5):
        window.add([item])
    assert [window.pop(sum) for _ in range(3)] == [[5], [5], [1]]
    assert len(window) == 0
    with pytest.raises(IndexError, match="nobody waits"):
        window.pop(sum)


def test_nobody_is_overtaken_more_often_than_allowed():
    window = Window(size=2, max_overtaken=2)
    window.add((0, "poor"))
    order = []
    for number in range(4):
        window.add((10, number))
        order.append(window.pop(lambda item: item[0])[1])
    assert order == [0, 1, "poor", 2]


def test_nobody_waits_longer_than_allowed():
    window = Window(size=9, max_wait=1.0)
    window.add((0, "poor"), now=0.0)
    assert window.due_at() == 1.0
    window.add((10, "rich"), now=0.5)
    assert window.pop(lambda item: item[0], now=1.0)[1] == "poor"
    assert window.due_at() == 1.5
    window.pop(lambda item: item[0], now=1.0)
    assert window.due_at() is None
    assert Window(1).due_at() is None


def test_who_comes_in_late_has_waited_since_it_came():
    window = Window(size=9, max_overtaken=2, max_wait=1.0)
    for item in ((0, "second"), (9, "rich"), (8, "rich, too")):
        window.add(item, now=0.5)
    assert [window.pop(lambda item: item[0])[1] for _ in range(2)] == ["rich", "rich, too"]
    window.add((5, "first"), now=0.1)
    assert window.due_at() == 1.1
    window.add((7, "last"), now=0.6)
    assert [window.pop(lambda item: item[0])[1] for _ in range(3)] == ["first", "second", "last"]


def test_full_at_its_size():
    window = Window(size=1)
    assert not window.full
    window.add("x")
    assert window.full


def test_who_gives_up_is_gone():
    window = Window(size=2)
    stays, goes = ["a"], ["a"]  # equal, but not the same request
    window.add(goes)
    window.add(stays)
    window.discard(goes)
    assert len(window) == 1
    assert window.pop(len) is stays
    window.discard(goes)


@pytest.mark.parametrize(
    "arguments",
    [
        {"size": 0},
        {"size": 2.5},
        {"size": "x"},
        {"size": 1, "max_overtaken": -1},
        {"size": 1, "max_wait": -0.1},
        {"size": 1, "max_wait": float("nan")},
    ],
)
def test_impossible_windows(arguments):
    with pytest.raises(SettingsError, match="a window needs"):
        Window(**arguments)


@given(st.lists(st.integers(0, 3), min_size=1, max_size=40), st.integers(1, 8), st.integers(0, 5))
def test_everybody_goes_once_and_nobody_is_overtaken_too_often(gains, size, max_overtaken):
    window = Window(size, max_overtaken)
    arrivals = list(enumerate(gains))
    sent = []
    for arrival in arrivals:
        window.add(arrival)
        if window.full:
            sent.append(window.pop(lambda item: item[1]))
    while len(window):
        sent.append(window.pop(lambda item: item[1]))
    assert sorted(sent) == arrivals
    for place, (number, _) in enumerate(sent):
        assert sum(later > number for later, _ in sent[:place]) <= max_overtaken
