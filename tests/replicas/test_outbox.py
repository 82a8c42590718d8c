"""What waits for the log: bounded, in order, and never lost where it can be told."""

from __future__ import annotations

from itertools import chain

from hypothesis import given
from hypothesis import strategies as st

from contextpilot_rag.replicas import outbox as module
from contextpilot_rag.replicas.entries import MOST_RECORDS
from contextpilot_rag.replicas.outbox import Outbox
from contextpilot_rag.replicas.space import Space
from contextpilot_rag.types import Namespace

A, B, C = (Space("pilot", Namespace(tenant)) for tenant in "abc")


def numbers(waiting):
    return [one.number for one in waiting]


def filled(most=100, *spaces):
    box = Outbox(most)
    for space in spaces:
        box.add(space, b"data", 1.0, forgets=False)
    return box


def test_records_are_sent_in_order_and_one_entry_a_space():
    box = filled(100, A, B, A)
    assert [(space, numbers(some)) for space, some in box.to_send(10)] == [(A, [1, 3]), (B, [2])]
    assert len(box.to_send(1)) == 1


def test_what_is_not_known_to_have_arrived_is_sent_again_with_what_came_since():
    box = filled(100, A, A)
    box.to_send(10)
    box.add(A, b"later", 1.0, forgets=False)
    assert [(space, numbers(some)) for space, some in box.to_send(10)] == [(A, [1, 2, 3])]


def test_what_the_log_has_taken_waits_to_come_back_and_is_sent_no_more():
    box = filled(100, A, B)
    for space, some in box.to_send(10):
        box.sent(space, some)
    assert not box.unsent
    assert box.to_send(10) == []
    assert box.size == 2
    box.again(A)
    assert [(space, numbers(some)) for space, some in box.to_send(10)] == [(A, [1])]


def test_spaces_take_turns():
    box = filled(1_000, *[A] * (MOST_RECORDS + 1), B, C)
    [(space, some)] = box.to_send(1)
    box.sent(space, some)
    assert (space, len(some)) == (A, MOST_RECORDS)
    assert [space for space, _ in box.to_send(10)] == [B, C, A]


def test_an_entry_is_bounded_in_bytes_and_a_larger_record_goes_alone():
    box = Outbox(100)
    half = bytes(module._MOST_BYTES // 2)
    for data in (half, half, half, bytes(2 * module._MOST_BYTES), b"small"):
        box.add(A, data, 1.0, forgets=False)
    sizes = []
    while some := box.to_send(10):
        sizes.append(numbers(some[0][1]))
        box.sent(*some[0])
    assert sizes == [[1, 2], [3], [4], [5]]


def test_what_came_back_is_gone_up_to_its_number():
    box = filled(100, A, B, A, A)
    assert numbers(box.came_back(A, 3)) == [1, 3]
    assert numbers(box.of(A)) == [4]
    assert box.came_back(A, 3) == []
    assert numbers(box.came_back(A, 99)) == [4]
    assert box.of(A) == []
    assert numbers(box.of(B)) == [2]


def test_beyond_the_bound_the_oldest_of_the_same_space_is_given_up():
    box = filled(3, B, A, A, A)
    assert [(space, one.number) for space, one in box.given_up] == [(A, 2)]
    assert (box.size, numbers(box.of(A)), numbers(box.of(B))) == (3, [3, 4], [1])


def test_what_has_something_forgotten_is_given_up_last():
    box = Outbox(2)
    box.add(A, b"", 1.0, forgets=True)
    box.add(B, b"", 1.0, forgets=False)
    box.add(A, b"", 1.0, forgets=True)  # another space's record goes
    assert [(space, one.number) for space, one in box.given_up] == [(B, 2)]
    assert box.forgets(A)
    assert not box.forgets(B)
    box.add(A, b"", 1.0, forgets=False)  # itself
    box.add(A, b"", 1.0, forgets=True)  # nothing else is left
    assert [one.number for _, one in box.given_up] == [2, 4, 1]
    assert numbers(box.of(A)) == [3, 5]


def test_nothing_is_taken_in_without_the_log_where_something_is_to_be_forgotten():
    box = filled(100, A, B)
    box.add(A, b"", 1.0, forgets=True)
    assert [space for space, _ in box.overdue(2.0)] == [B]
    assert [space for space, _ in box.older(2.0)] == [A, B]
    box.came_back(A, 3)
    assert not box.forgets(A)


def test_the_oldest_record_is_known():
    box = Outbox(10)
    assert box.oldest is None
    box.add(A, b"", 5.0, forgets=False)
    box.add(B, b"", 3.0, forgets=False)
    assert box.oldest == 3.0


STEP = st.one_of(
    st.tuples(st.just("add"), st.sampled_from([A, B, C]), st.booleans()),
    st.tuples(st.just("send"), st.integers(1, 3), st.booleans()),
    st.tuples(st.just("back"), st.sampled_from([A, B, C]), st.integers(0, 60)),
    st.tuples(st.just("again"), st.sampled_from([A, B, C]), st.none()),
)


@given(st.lists(STEP, max_size=60), st.integers(1, 8))
def test_all_that_was_told_waits_came_back_or_was_given_up(steps, most):
    box, told, back = Outbox(most), {A: [], B: [], C: []}, []
    for what, one, other in steps:
        if what == "add":
            told[one].append(box.add(one, b"x", 1.0, forgets=other).number)
        elif what == "send":
            for space, some in box.to_send(one):
                assert numbers(some) == [w.number for w in box.of(space) if not w.sent]
                if other:
                    box.sent(space, some)
        elif what == "back":
            back += numbers(box.came_back(one, other))
        else:
            box.again(one)
        given_up = [w.number for _, w in box.given_up]
        waiting = {space: numbers(box.of(space)) for space in told}
        assert box.size == sum(map(len, waiting.values())) <= most
        assert all(found == sorted(found) for found in waiting.values())
        assert sorted([*back, *given_up, *chain(*waiting.values())]) == sorted(chain(*told.values()))
        unsent = {space for space in told if any(not w.sent for w in box.of(space))}
        assert unsent <= set(box._unsent)
        assert all(box.forgets(space) == any(w.forgets for w in box.of(space)) for space in told)
