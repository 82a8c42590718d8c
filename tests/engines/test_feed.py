"""What a feed does about each thing that can happen to messages."""

from __future__ import annotations

import pytest

from contextpilot_rag.engines.feed import CHECK, HELD, PAUSE, RECENT, Feed
from contextpilot_rag.engines.kv import Batch, Cleared, Removed, Stored
from tests.engines.feeding import Heard, answer, batch, following


def test_a_gap_is_closed_by_a_replay_and_what_arrived_meanwhile_comes_after_it():
    feed, heard = following()
    heard(feed.live(1.0, 5, batch(5)))
    assert not feed.in_step
    heard(feed.live(1.0, 6, batch(6)))
    assert heard.asks == [(2, 2)]  # once, from the last that it has
    answer(feed, heard, [(number, batch(number)) for number in range(6)])
    assert heard.numbers == list(range(7))
    assert not heard.lost
    assert heard.in_step == [True, True]
    assert feed.counts.gaps == 1


def test_it_is_in_step_when_the_past_is_told_and_not_before():
    feed, heard = Feed(replay=True), Heard()
    heard(feed.connected(0.0))
    ((ask, start),) = heard.asks
    assert start == 0
    for number in range(3):
        heard(feed.replayed(0.0, ask, number, batch(number)))
        assert not feed.in_step, "what follows may be as old as this"
    heard(feed.live(0.0, 3, batch(3)))
    heard(feed.replay_over(0.0, ask))
    assert (heard.numbers, heard.in_step) == ([0, 1, 2, 3], [True])
    heard(feed.check(1.0))
    heard(feed.live(1.0, 4, batch(4)))
    assert feed.in_step, "a check is no doubt"
    assert heard.in_step == [True]


def test_doubled_messages_and_replays_that_overlap_are_told_once():
    feed, heard = following()
    for number in (2, 0, 1):
        heard(feed.live(1.0, number, batch(number)))
    heard(feed.check(1.0))
    answer(feed, heard, [(number, batch(number)) for number in (0, 1, 2, 2, 3, 2, 3)])
    heard(feed.live(1.0, 3, batch(3)))
    assert heard.numbers == [0, 1, 2, 3]
    assert feed.counts.duplicates == 4
    assert feed.counts.restarts == feed.counts.lost == 0


@pytest.mark.parametrize("replay", [True, False])
def test_one_late_message_is_no_restart_also_if_it_is_very_old(replay):
    feed, heard = following(range(RECENT + 10), replay)
    heard(feed.live(1.0, 0, batch(0)))
    assert not heard.lost
    assert not heard.asks


@pytest.mark.parametrize("replay", [True, False])
def test_numbers_that_begin_anew_are_a_restart(replay):
    feed, heard = following(range(6), replay)
    heard(feed.live(1.0, 1, batch(1, life=1)))
    assert len(heard.lost) == 1
    answer(feed, heard, [(number, batch(number, life=1)) for number in range(2)])
    heard(feed.live(1.0, 2, batch(2, life=1)))
    assert heard.numbers == ([0, 1, 2] if replay else [1, 2])
    assert feed.complete is replay
    assert feed.counts.restarts == 1


def test_a_restart_while_nobody_listened_is_seen_even_where_the_numbers_go_on():
    feed, heard = following(range(3))
    heard(feed.disconnected(1.0))
    heard(feed.connected(2.0))
    heard(feed.live(2.0, 3, batch(3, life=1)))
    assert heard.numbers == [0, 1, 2]  # nothing until it is clear whether it is the same engine
    answer(feed, heard, [(number, batch(number, life=1)) for number in range(4)])
    assert [one for _, one in heard.told] == [batch(number, life=1) for number in range(4)]
    assert feed.counts.restarts == 1


def test_a_restart_of_an_engine_that_has_published_nothing_yet_is_seen_by_the_next_check():
    feed, heard = following(range(3))
    heard(feed.tick(CHECK + 1))
    answer(feed, heard, [])
    assert len(heard.lost) == 1
    assert feed.in_step
    assert feed.complete


def test_a_short_break_of_the_connection_costs_nothing():
    feed, heard = following(range(3))
    heard(feed.disconnected(1.0))
    heard(feed.connected(2.0))
    answer(feed, heard, [(number, batch(number)) for number in range(5)])
    assert heard.numbers == [0, 1, 2, 3, 4]
    assert not heard.lost


def test_a_break_of_the_connection_without_replays_loses_all():
    feed, heard = following(range(3), replay=False)
    heard(feed.disconnected(1.0))
    assert len(heard.lost) == 1
    heard(feed.connected(2.0))
    heard(feed.live(3.0, 9, batch(9)))
    assert heard.numbers == [9]
    assert feed.in_step
    assert not feed.complete


def test_a_last_message_that_was_dropped_is_fetched_after_a_while():
    feed, heard = following(range(3))
    heard(feed.tick(CHECK / 2))
    assert not heard.asks
    heard(feed.tick(CHECK))
    answer(feed, heard, [(number, batch(number)) for number in range(4)])
    assert heard.numbers == [0, 1, 2, 3]


def test_what_is_not_kept_any_more_is_lost_and_the_rest_is_told():
    feed, heard = following(range(3))
    heard(feed.live(1.0, 9, batch(9)))
    answer(feed, heard, [(number, batch(number)) for number in range(5, 9)])
    assert len(heard.lost) == 1
    assert heard.numbers == [5, 6, 7, 8, 9]


def test_a_replay_without_answer_is_said_once_and_left_alone_for_a_while():
    feed, heard = following(range(3))
    heard(feed.live(1.0, 9, batch(9)))
    heard(feed.tick(5.0))
    assert heard.numbers == [0, 1, 2]
    heard(feed.tick(12.0))
    assert (heard.unanswered, heard.numbers, len(heard.lost), len(heard.asks)) == (1, [9], 1, 1)
    heard(feed.live(13.0, 11, batch(11)))
    assert (heard.numbers, len(heard.lost), len(heard.asks)) == ([11], 2, 1)
    heard(feed.live(12.0 + PAUSE, 13, batch(13)))
    assert len(heard.asks) == 2


def test_a_check_without_answer_loses_nothing():
    feed, heard = following(range(3))
    heard(feed.tick(CHECK))
    heard(feed.tick(CHECK + 10))
    assert heard.unanswered == 1
    assert not heard.lost
    assert feed.in_step


def test_a_replay_that_breaks_off_is_asked_for_from_where_it_was():
    feed, heard = following(range(3))
    heard(feed.live(1.0, 9, batch(9)))
    ask, _ = heard.asks.pop()
    for number in range(2, 6):
        heard(feed.replayed(1.0, ask, number, batch(number)))
    heard(feed.tick(20.0))
    assert heard.asks == [(ask + 1, 5)]
    answer(feed, heard, [(number, batch(number)) for number in range(9)], 20.0)
    assert heard.numbers == list(range(10))
    assert not heard.lost


def test_an_engine_that_keeps_nothing_is_not_asked_for_ever():
    feed, heard = following(range(0))
    heard(feed.live(1.0, 5, batch(5)))
    answer(feed, heard, [])
    heard(feed.live(1.0, 6, batch(6)))
    assert heard.numbers == [5, 6]
    assert feed.counts.replays < 6


def test_another_epoch_is_a_restart_whatever_the_number():
    feed, heard = following(range(3), epoch="a")
    heard(feed.live(1.0, 3, batch(3, epoch="b")))
    assert len(heard.lost) == 1


def test_a_message_that_is_not_understood_is_a_hole():
    feed, heard = following(range(3))
    heard(feed.live(1.0, 3, None))
    heard(feed.live(1.0, 4, None))
    heard(feed.live(1.0, 5, batch(5)))
    assert len(heard.lost) == 1  # after the first there was nothing more to lose
    assert heard.numbers == [5]


def test_what_is_held_is_bounded_and_what_did_not_fit_is_fetched():
    feed, heard = following(range(3))
    for number in range(4, HELD + 100):
        heard(feed.live(1.0, number, batch(number)))
    assert len(feed._held) == HELD
    answer(feed, heard, [(number, batch(number)) for number in range(5)], most=1)
    answer(feed, heard, [(number, batch(number)) for number in range(HELD + 100)])
    assert feed.counts.replays == 3
    assert heard.numbers == list(range(HELD + 100))
    assert not heard.lost


def test_what_is_held_is_bounded_in_tokens(monkeypatch):
    monkeypatch.setattr("contextpilot_rag.engines.feed.HELD_TOKENS", 100)
    feed, heard = following(range(3))
    long = Batch((Stored((7,), None, tuple(range(40)), 40),))
    for number in range(4, 10):
        heard(feed.live(1.0, number, long))
    assert len(feed._held) == 2
    answer(
        feed, heard, [*((number, batch(number)) for number in range(4)), *((number, long) for number in range(4, 10))]
    )
    assert heard.numbers == list(range(10))


def test_answers_to_an_earlier_replay_are_left_alone():
    feed, heard = following(range(3))
    heard(feed.live(1.0, 9, batch(9)))
    ask, _ = heard.asks.pop()
    heard(feed.disconnected(2.0))
    heard(feed.connected(3.0))
    assert not feed.replayed(3.0, ask, 3, batch(3))
    assert not feed.replay_over(3.0, ask)
    assert feed.asking == ask + 1


def test_an_engine_whose_clock_was_put_back_is_asked_and_goes_on():
    feed, heard = following(range(3))
    earlier = Batch((), at=-5.0)
    heard(feed.live(1.0, 3, earlier))
    assert heard.numbers == [0, 1, 2]
    answer(feed, heard, [*((number, batch(number)) for number in range(3)), (3, earlier)])
    heard(feed.live(1.0, 4, Batch((), at=-4.0)))
    assert heard.numbers == [0, 1, 2, 3, 4]
    assert not heard.lost


def test_a_clock_put_back_without_replays_loses_all():
    feed, heard = following(range(3), replay=False)
    heard(feed.live(1.0, 3, Batch((), at=-5.0)))
    assert (len(heard.lost), heard.numbers) == (1, [3])


def test_without_times_an_unknown_number_is_asked_about():
    feed, heard = following(range(RECENT + 10), at=False)
    heard(feed.live(1.0, 0, batch(0, at=False)))
    assert not heard.lost
    answer(feed, heard, [(RECENT + 9, batch(RECENT + 9, at=False))])
    assert not heard.lost
    heard(feed.live(2.0, 0, batch(0, life=1, at=False)))
    answer(feed, heard, [(0, batch(0, life=1, at=False))])
    assert len(heard.lost) == 1
    assert heard.told == [(0, batch(0, life=1, at=False))]


def far(number):
    """Of an engine that is none: the number and the time are far from what can be."""
    return number, Batch((Removed((number,)),), at=1e300)


def test_one_message_from_far_ahead_does_not_make_it_deaf():
    feed, heard = following(range(3))
    kept = [(number, batch(number)) for number in range(3)]
    heard(feed.live(1.0, *far(2**63)))
    answer(feed, heard, kept)
    assert heard.lost == ["what was missed is not kept there"]
    for number in range(3, 40):
        kept.append((number, batch(number)))
        heard(feed.live(2.0, *kept[-1]))
        answer(feed, heard, kept)
    assert heard.numbers == list(range(40))
    assert feed.in_step
    assert feed.complete
    assert feed.counts.replays < 12


def test_nor_where_nobody_can_be_asked():
    feed, heard = following(range(3), replay=False)
    heard(feed.live(1.0, *far(2**63)))
    for number in range(3, 40):
        heard(feed.live(2.0, number, batch(number)))
    assert heard.numbers == list(range(heard.numbers[0], 40))
    assert heard.numbers[0] < 3 + 20
    assert feed.in_step


def test_old_messages_that_come_all_at_once_are_asked_about_once_in_a_while():
    feed, heard = following(range(RECENT + 500))
    asked = feed.counts.replays
    for _ in range(5):  # a proxy that sends again what it has kept
        for number in range(400):
            heard(feed.live(1.0, number, batch(number)))
            answer(feed, heard, [(number, batch(number)) for number in range(RECENT + 400, RECENT + 500)])
    assert feed.counts.replays - asked == 1
    assert heard.lost == []
    assert heard.numbers == list(range(RECENT + 500))


def test_old_messages_do_not_put_off_a_check():
    feed, heard = following(range(RECENT + 10))
    asked = feed.counts.replays
    for second in range(int(CHECK) + 2):
        heard(feed.live(float(second), 0, batch(0)))
        heard(feed.tick(float(second)))
    assert feed.counts.replays == asked + 1


def test_what_is_held_is_bounded_also_in_names_of_kv_blocks(monkeypatch):
    monkeypatch.setattr("contextpilot_rag.engines.feed.HELD_TOKENS", 100)
    feed, _ = following()
    for number in range(10, 30):
        feed.live(1.0, number, Batch((Removed(tuple(range(20))), Cleared())))
    assert len(feed._held) == 4
