from __future__ import annotations

import random
from array import array
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contextpilot_rag.engines.chain import ROOT, chain, extended
from contextpilot_rag.engines.kv import Cleared, Removed, Stored, salt_extra
from contextpilot_rag.engines.orphans import Orphans
from contextpilot_rag.engines.resident import MAX_SHELVES, Resident


def resident(most=1_000, most_orphans=1_000):
    return Resident(1, most, most_orphans)


def stored(hashes, parent, tokens, **more):
    """Two tokens for each KV block."""
    return Stored(tuple(hashes), parent, tuple(tokens), 2, **more)


A = chain(range(8), 2)  # four KV blocks


def test_names_what_is_stored_and_forgets_what_is_removed():
    one = resident()
    one.apply(stored([10, 11, 12], None, range(6)))
    assert one.run(A) == 3
    assert one.has_all(A[:3])
    one.apply(stored([13], 12, (6, 7)))
    one.apply(Removed((11,)))
    assert (one.run(A), one.copies) == (1, 3)
    one.apply(stored([11], 10, (2, 3)))
    assert one.run(A) == 4


def test_what_is_stored_twice_is_removed_twice():
    one = resident()
    for _ in range(3):
        one.apply(stored([10], None, (0, 1)))
    for left in (2, 1, 0):
        assert one.run(A) == 1
        one.apply(Removed((10,)))
        assert one.copies == left
    assert one.run(A) == 0
    one.apply(Removed((10,)))
    assert one.ignored == 1


def test_copies_are_counted_where_they_are():
    one = resident()
    one.apply(stored([10], None, (0, 1)))
    one.apply(stored([10], None, (0, 1), medium="CPU"))
    one.apply(Removed((10,), medium="DISK"))
    one.apply(Removed((10,), group=1))
    one.apply(Removed((10,)))
    one.apply(Removed((10,)))
    assert one.run(A) == 1
    assert not one.left
    one.apply(Removed((10,), medium="CPU"))
    assert one.run(A) == 0
    assert list(one.left) == [A[0]]
    assert one.ignored == 3


@pytest.mark.parametrize(
    "event",
    [
        stored([10], None, (0, 1), sliding=True),
        stored([10], None, (0, 1, 2)),
        stored([10], None, (0, -1)),
        stored([10], None, (0, 1), extra=("x", "y")),
    ],
)
def test_what_no_prompt_could_find_is_ignored(event):
    one = resident()
    one.apply(event)
    assert (len(one.there), len(one.orphans), one.ignored) == (0, 0, 1)


def test_bytes_as_hashes():
    one = resident()
    one.apply(stored([b"x", b"y"], None, range(4)))
    one.apply(Removed((b"y",)))
    assert one.run(A) == 1


def test_cleared_is_all_of_it_and_remembered():
    one = resident()
    one.apply(stored([10, 11], None, range(4)))
    one.apply(stored([20], 19, (5, 5), medium="CPU"))
    one.apply(Cleared())
    assert (len(one.there), len(one.orphans), one.copies) == (0, 0, 0)
    assert set(one.left) == set(A[:2])
    one.assume(A[:2])
    assert not one.there, "what was told to be gone is not taken as there"


def test_orphans_are_named_when_their_parent_is_known():
    one = resident()
    one.apply(stored([13], 12, (6, 7)))
    one.apply(stored([11, 12], 10, range(2, 6)))
    one.apply(Removed((12,)))
    assert (len(one.orphans), one.run(A)) == (3, 0)
    one.apply(stored([10], None, (0, 1)))
    assert (len(one.orphans), one.run(A)) == (0, 2)
    assert A[3] in one.there


def test_an_orphan_that_is_removed_is_dropped_with_those_before_it_that_were_kept_for_it():
    one = resident()
    one.apply(stored([11, 12, 13], 10, range(2, 8)))
    one.apply(Removed((12, 11)))
    assert len(one.orphans) == 3
    one.apply(Removed((13,)))
    assert (len(one.orphans), one.ignored) == (0, 0)


def test_orphans_are_bounded():
    one = resident(most_orphans=10)
    for number in range(1, 101):
        one.apply(stored([number], 1_000 + number, (number, 0)))
    assert (len(one.orphans), one.orphans.dropped) == (10, 90)


def test_kv_blocks_are_bounded_and_the_oldest_go():
    one = resident(most=100)
    for number in range(1_000):
        one.apply(stored([number], None, (number, 0)))
        assert one.copies == len(one.there) <= 100
    assert one.has_all(chain((number, 0), 2)[0] for number in range(910, 1_000))
    assert one.forgotten == 900


def test_shelves_are_bounded():
    one = resident()
    for number in range(200):
        one.apply(stored([number], None, (number, 0), medium=f"medium-{number}"))
    assert len(one.there) == MAX_SHELVES


def test_what_is_assumed_is_bounded_and_gives_way_to_what_is_told():
    one = resident(most_orphans=3)
    one.assume(A)
    assert [key in one.there for key in A] == [False, True, True, True]
    one.apply(stored([10, 11], None, range(4)))
    one.doubt(A)
    assert [key in one.there for key in A] == [True, True, False, False]
    one.apply(Removed((11,)))
    assert one.run(A) == 1


def test_adopting_names_orphans_and_what_comes_before_them():
    one = resident()
    one.apply(stored([12, 13], 11, range(4, 8)))
    one.adopt(11, A[:2])
    assert one.run(A) == 4
    one.apply(Removed((11,)))
    assert one.run(A) == 1
    one.apply(Removed((13,)))
    assert A[2] in one.there
    assert A[3] not in one.there


def test_a_parent_that_was_removed_since_is_not_there_when_its_orphans_are_adopted():
    one = resident()
    one.apply(stored([12, 13], 11, range(4, 8)))
    one.apply(Removed((11,)))
    one.adopt(11, A[:2])
    assert [key in one.there for key in A] == [False, False, True, True]


def test_a_mistaken_adoption_is_revoked():
    one = resident()
    one.apply(stored([30], None, (9, 9)))
    one.apply(stored([12], 11, range(4, 6)))
    one.adopt(11, A[:2])
    one.apply(stored([13], 12, (6, 7)))
    one.revoke(11)
    one.doubt(A)
    assert not one.has_all(A[1:2])
    assert set(one.there) == set(chain((9, 9), 2))
    assert one.copies == 1
    one.apply(Removed((13, 12, 11, 30)))
    assert (one.copies, one.ignored) == (0, 3)


def test_an_adoption_is_revoked_when_the_engine_tells_otherwise():
    one = resident()
    one.apply(stored([12, 13], 11, range(4, 8)))
    one.adopt(11, A[:2])
    one.apply(stored([11], None, (7, 7)))
    assert not one.has_all(A[2:3])
    assert one.run(chain((7, 7), 2)) == 1
    assert (one.revoked, one.copies) == (1, 1)


def test_what_follows_a_name_that_stands_for_several_is_nobodys():
    one, tokens = resident(), range(8)
    mine, theirs = chain(tokens, 2, "a"), chain(tokens, 2, "b")
    one.apply(stored([10, 11], None, tokens[:4], extra=(salt_extra("a"), "")))
    one.apply(stored([10, 11, 12], None, tokens[:6], extra=(salt_extra("b"), "", "")))
    assert (one.run(mine), one.run(theirs)) == (2, 1)
    one.apply(stored([13], 12, tokens[6:]))
    one.apply(stored([12], 11, tokens[4:6]))
    assert (one.run(mine), one.run(theirs)) == (2, 1)
    one.apply(Removed((11,)))
    assert (one.run(mine), one.run(theirs)) == (1, 1)
    one.apply(Removed((10,)))
    assert (one.run(mine), one.run(theirs)) == (0, 0)
    one.apply(Removed((12, 12, 13)))
    assert (one.copies, len(one.there)) == (0, 0)


def test_runs_are_ends_of_prompts():
    orphans = Orphans(100)
    names = [orphans.add(number, number - 1, array("Q", (number, 0)), "", ("GPU", 0)) for number in range(5, 9)]
    assert orphans.runs([b"1", b"2", *names])[0] == [(2, 4)]
    assert orphans.runs([b"1", *names[:2]])[0] == [(1, 4)], "more may follow: an answer"
    assert orphans.runs(names)[0] == [], "nothing stands before it"
    assert orphans.runs([b"1", b"2", *names[1:]])[0] == [], "other tokens stand before it"
    assert orphans.runs([*names, b"1"])[0] == orphans.runs([])[0] == []
    again = [orphans.add(number + 100, number + 99, array("Q", (number, 0)), "", ("GPU", 0)) for number in range(5, 9)]
    assert again == names
    assert sorted(orphans.runs([b"1", b"2", *names])[0]) == [(2, 4), (2, 104)]


def test_one_that_was_removed_and_came_again_is_where_those_behind_it_are():
    orphans, shelf = Orphans(100), ("CPU", 1)
    orphans.add(5, 4, array("Q", (5, 0)), "", shelf)
    assert orphans.shelf_before(4) == shelf
    assert not orphans.remove(4, shelf)
    assert orphans.shelf_before(4) is None
    orphans.add(4, 3, array("Q", (4, 0)), "", shelf)
    orphans.take(4)
    assert orphans.shelf_before(4) == shelf


def test_an_orphan_that_was_removed_is_known_to_be_gone_when_there_is_no_room_for_it():
    orphans, shelf = Orphans(2), ("GPU", 0)
    for number in (4, 5):
        orphans.add(number, number - 1, array("Q", (number, 0)), "", shelf)
    assert orphans.remove(4, shelf)
    assert len(orphans) == 2
    orphans.add(9, 8, array("Q", (9, 0)), "", shelf)
    assert (len(orphans), 4 in orphans, orphans.shelf_before(4), orphans.shelf_before(8)) == (2, False, None, shelf)


@given(st.integers(0, 10_000), st.integers(2, 40))
@settings(max_examples=150, deadline=None)
def test_in_any_order_the_same_is_there(seed, count):
    """Parents come before or after those behind them, and are only removed when these have come."""
    numbers = random.Random(seed)
    parents = [None if number == 0 or numbers.random() < 0.1 else numbers.randrange(number) for number in range(count)]
    names = []
    for number, parent in enumerate(parents):
        names.append(extended(ROOT if parent is None else names[parent], (number, number)))
    media = ["GPU", "GPU", "CPU"]
    stores = [(number, numbers.choice(media)) for number in range(count) for _ in range(numbers.choice([1, 1, 2]))]
    numbers.shuffle(stores)
    to_come = Counter(parents[number] for number, _ in stores)
    copies: Counter[tuple[int, str]] = Counter()
    one = resident()
    for number, medium in stores:
        one.apply(stored([number], parents[number], (number, number), medium=medium))
        copies[number, medium] += 1
        to_come[parents[number]] -= 1
        for other, place in [where for where in copies if not to_come[where[0]] and numbers.random() < 0.3]:
            one.apply(Removed((other,), medium=place))
            copies[other, place] -= 1
        copies = +copies
    assert set(one.there) == {names[number] for number, _ in copies}
    assert one.copies == sum(copies.values())
    assert (len(one.orphans), one.ignored) == (0, 0)
