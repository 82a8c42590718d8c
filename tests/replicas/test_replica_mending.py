"""Faults of a log one by one, and how each is mended; `test_converging.py` mixes them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from contextpilot_rag.replicas.entries import write_batch
from contextpilot_rag.replicas.log import Entry, Written
from contextpilot_rag.replicas.space import Names, Space
from contextpilot_rag.types import Namespace, OrderBudget, Request

from .some import HERE, STREAM, damage_snapshot, knows, mark, send
from .world import PACE, POOL


def test_what_was_sent_counts_here_at_once_and_elsewhere_once_it_was_read(some):
    one, other = some.members
    send(one, "a")
    assert knows(one, "a")
    assert not knows(other, "a")
    some.go()
    assert knows(other, "a")
    assert some.alike()


def test_entries_that_went_into_a_snapshot_before_the_first_look_are_not_missed(some):
    one, other = some.members
    send(other, "z")
    other.read()  # it follows the namespace, in which nothing stands
    send(one, "a")
    one.tell()
    one.read()
    send(one, "b")
    one.tell()
    one.read()
    one.compact_soon()
    one.read()
    assert len(some.server.entries(STREAM)) == 1
    some.go()
    assert knows(other, "a")
    assert some.alike()


def test_one_who_lags_behind_a_snapshot_reads_on_if_it_was_not_for_long(some):
    one, other = some.members
    for number in range(2 * PACE.compact_entries):
        send(one, f"a{number}")
        one.tell()
        one.read()  # which makes the snapshot
    assert other.core.reloads["gap"] == 0
    some.go(4.0)
    assert some.server.snapshot(STREAM) is not None
    assert other.core.reloads["gap"] == 0
    assert some.alike()


def test_one_who_was_away_for_longer_reads_all_anew(some):
    one, other = some.members
    send(one, "first")
    some.go()
    some.members = [one]
    for number in range(2 * PACE.compact_entries):
        send(one, f"a{number}")
        some.go(0.1)
    some.go(4.0)
    some.members = [one, other]
    some.go()
    assert other.core.reloads["gap"] == 1
    assert some.alike()


def test_strangers_who_write_first_hide_nothing(some):
    strange = write_batch(Names("other"), Space(POOL, HERE), "w", [(1, b"\xc0")])
    for _ in range(300):
        some.server.poison(STREAM, Entry("0-1", strange.mac, strange.data))
    some.go()
    send(some.members[0], "a")
    some.go(2.0)
    assert knows(some.members[1], "a")
    assert some.alike()


def test_whoever_rings_for_any_number_of_streams_keeps_nobody_from_reading(some):
    one, other = some.members
    send(one, "a")
    some.go()
    looked, read = [], some.server.snapshot

    def slow(stream):
        looked.append(stream)
        some.now += 0.02
        return read(stream)

    some.server.snapshot = slow
    some.server.append([Written(f"stream{number}", b"", b"") for number in range(100)])
    send(one, "b")
    one.tell()
    other.read()
    assert knows(other, "b")
    assert 0 < len(looked) < 20
    assert not other.core.wait_for(some.server.now(), 0)  # not all of it was read
    before = set(looked)
    looked.clear()
    other.read()
    assert not looked  # looking took as long as it may for now
    for _ in range(200):
        some.now += 0.5
        other.read()
        if other.core.wait_for(some.server.now(), 0):
            break
    assert before | set(looked) == {f"stream{number}" for number in range(100)}


def test_an_entry_that_says_nothing_at_all_is_no_gap(some):
    one, other = some.members
    for name in "abc":
        send(one, name)
        some.go()
        some.server.poison(STREAM, Entry("0-1", b"", b""))
        some.go()
    assert knows(other, "c")
    assert not one.core.reloads
    assert not other.core.reloads
    assert other.core.rejected["schema"] == 3


def test_a_log_that_comes_back_empty_is_given_what_is_known(some):
    send(some.members[0], "a")
    some.go()
    some.server.forget_all(back=False)
    some.go()
    some.members.append(some.join())
    some.go()
    assert all(knows(member, "a") for member in some.members)
    assert sum(member.core.counts["founded"] for member in some.members) == 1
    assert some.alike()


@pytest.mark.parametrize("lost", [True, False])
def test_a_snapshot_that_is_lost_or_damaged_is_written_anew_by_one_who_knows(some, lost):
    one = some.members[0]
    send(one, "a", "b")
    some.go()
    one.compact_soon()
    some.go()
    send(one, "c")
    some.go()
    if lost:
        some.server.replace_snapshot(STREAM, None)
    else:
        damage_snapshot(some.server)
    some.members.append(some.join())
    some.go(2.0)
    assert all(knows(some.members[2], name) for name in "abc")
    assert some.alike()


def test_where_nobody_knows_what_a_damaged_snapshot_said_all_begin_anew_with_the_same(some):
    one = some.members[0]
    for name in ("a", "b"):  # the last entry stays
        send(one, name)
        some.go()
    one.compact_soon()
    some.go()
    send(one, "c")
    some.go()
    damage_snapshot(some.server)
    some.members = [some.join(), some.join()]
    some.go(3.0)
    assert not knows(some.members[0], "a")
    assert some.alike()
    some.members.append(some.join())
    some.go(0.5)
    assert some.alike()
    assert not some.members[2].core.rejected


def test_what_the_log_took_and_lost_is_told_again(some):
    one, other = some.members
    one.way.appends = "swallowed"
    send(one, "a")
    some.go()
    one.way.mend()
    some.go(0.5)
    assert not knows(other, "a")
    some.go(1.5)
    assert knows(other, "a")
    assert some.alike()
    assert not one.core.outbox.size


def test_a_record_that_later_ones_have_passed_is_waited_for_no_longer(some):
    one, other = some.members
    one.way.appends = "swallowed"
    send(one, "a")
    some.go(0.1)
    one.way.mend()
    send(one, "b")
    some.go(2.0)
    assert some.alike()
    assert not one.core.outbox.size
    assert all(share.ahead is None for share in one.index._shares.values())
    assert knows(other, "b")


def test_a_bell_that_was_not_rung_is_rung_with_the_next_attempt(some):
    one, other = some.members
    one.way.appends = "silent"
    send(one, "a")
    some.go()  # it is told, and comes back
    one.way.mend()
    some.go(0.5)
    assert knows(other, "a")
    assert some.alike()
    assert not one.core.ailing


def test_what_was_forgotten_is_not_known_again_while_the_log_has_not_heard_of_it(some):
    one, other = some.members
    send(other, "a")
    some.go()
    assert knows(one, "a")
    one.way.away = True
    some.go(1.0)
    one.index.forget(HERE)
    some.now += 100.0  # what waits is taken in without the log
    one.read()
    send(one, "b")
    some.now += 100.0
    one.read()
    assert knows(one, "b")
    one.way.mend()
    one.read()  # all anew, with a snapshot or entries that know it
    assert not knows(one, "a")
    assert knows(one, "b")
    some.go()
    assert not any(knows(member, "a") for member in some.members)
    assert all(knows(member, "b") for member in some.members)
    assert some.alike()


def test_to_forget_is_told_again_where_the_log_lost_it_and_took_later_records(some):
    one, other = some.members
    send(one, "a")
    some.go()
    one.way.appends = "swallowed"
    one.index.forget(HERE)
    some.go(0.1)
    one.way.mend()
    send(one, "b")
    some.go(0.5)
    assert not knows(other, "a")
    assert not knows(one, "a")
    assert not one.index._forgetting
    assert some.alike()


def test_a_snapshot_is_written_at_once_so_that_what_is_forgotten_leaves_the_server_too(some):
    one = some.members[0]
    send(one, "secret name")
    some.go()
    one.index.forget(HERE)
    some.go(0.5)
    held = [entry.data for entry in some.server.entries(STREAM)] + [some.server.snapshot(STREAM).data]
    assert not any(b"secret name" in data for data in held)


def test_also_where_the_server_is_full_for_a_while(some):
    one, other = some.members
    send(one, "secret name")
    some.go()
    one.index.forget(HERE)
    one.tell()
    one.way.full = other.way.full = True
    some.go(0.5)
    one.way.mend()
    some.go(1.0)
    held = [entry.data for entry in some.server.entries(STREAM)] + [some.server.snapshot(STREAM).data]
    assert not any(b"secret name" in data for data in held)


@pytest.mark.parametrize("keep", [1, 2])
def test_one_who_joins_after_the_log_lost_what_stood_in_it_before_it_was_founded_knows_as_much_as_the_others(
    some, keep
):
    one, other = some.members
    send(one, "a")
    some.go()
    some.server.trim(STREAM, 0)
    for name in "bc":
        send(other, name)
        other.tell()
    some.go()
    assert one.core.counts["founded"] + other.core.counts["founded"] == 1
    some.server.trim(STREAM, keep)  # some of what stood there before it was founded, or all
    some.members.append(some.join())
    some.go(1.0)
    assert all(knows(member, name) for member in some.members for name in "abc")
    assert some.alike()


def test_a_failover_that_lost_the_newest_entries_is_noticed_also_where_others_wrote_since(some):
    one, other = some.members
    send(one, "a")
    some.go()
    send(one, "b")
    some.go()
    some.server.fail_over(1, reuse=False)
    third = some.join()
    some.members.append(third)
    third.read()
    send(third, "c")
    third.tell()
    some.go(2.0)
    assert some.alike()
    assert knows(other, "c")


def test_records_that_were_given_up_are_waited_for_no_longer(some):
    one, other = some.members
    one.way.full = True
    send(one, *[f"m{number}" for number in range(PACE.most_pending + 5)])
    some.go()
    assert one.replica.status().dropped == 5
    one.way.mend()
    some.go(1.0)
    assert some.alike()
    assert all(share.ahead is None for share in one.index._shares.values())
    assert not knows(other, "m0")
    assert knows(other, f"m{PACE.most_pending}")


def test_an_old_entry_that_is_played_again_changes_nothing(some):
    one = some.members[0]
    send(one, "a")
    some.go()
    entry = some.server.entries(STREAM)[-1]
    one.index.forget(HERE)
    some.go()
    some.server.poison(STREAM, replace(entry))
    some.members.append(some.join())
    some.go(1.0)
    assert not any(knows(member, "a") for member in some.members)
    assert some.alike()


def test_who_has_no_room_for_a_namespace_leaves_its_snapshot_to_others(some):
    one, other = some.members
    send(one, "a")
    some.go()
    one.index.empty()  # as where other namespaces take its place
    some.now += 1_000.0
    one.read()
    some.now += 3.0
    one.read()
    assert some.server.snapshot(STREAM) is None
    other.read()
    some.now += 3.0
    other.read()
    some.members = [some.join()]
    some.go(1.0)
    assert knows(some.members[0], "a")


def test_of_too_many_namespaces_those_that_have_nothing_to_tell_are_followed_no_longer(some):
    one, _ = some.members
    for number in range(5 * PACE.most_spaces):
        one.index.align(Request((mark("a"),), Namespace("t", "m", f"corpus{number}"), OrderBudget("retrieved")))
        assert len(one.core.streams) <= PACE.most_spaces + PACE.most_pending
        if number % 3 == 0:
            some.go(0.1)
    some.go(5.0)
    assert len(one.core.streams) == len(one.core.by_name) <= PACE.most_spaces + 1
    assert set(one.core.active) <= set(one.core.by_name)
