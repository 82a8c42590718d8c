"""An index that is fed by a log does what every index does, and is equal to all that have read the same."""

from __future__ import annotations

import random
import sys
import threading
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contextpilot_rag import Alignment, BlockRef, LocalIndex, Namespace, OrderBudget, Request, Usage
from contextpilot_rag.errors import InputError
from contextpilot_rag.index.fed import FedIndex
from tests.index.conformance import IndexConformance
from tests.index.fed import Delivered, Follower, read, written

SPACE, OTHER = Namespace("acme"), Namespace("other", "m", "c")
BLOCKS = [BlockRef(f"block {number}", 40 + 7 * number) for number in range(12)]
HEADS = ("", "one", "two")


class TestAtOnce(IndexConformance):
    def make(self):
        return Delivered(1)


class TestEveryThirdCall(IndexConformance):
    def make(self):
        return Delivered(3)


class TestNow(IndexConformance):
    """Now and then."""

    def make(self):
        return Delivered(7)


class TestAway(IndexConformance):
    """A log that never answers."""

    def make(self):
        return Delivered(0)


class TestAlone(IndexConformance):
    def make(self):
        return FedIndex()


OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "capacity_tokens": st.sampled_from([300, 900, 5_000]),
        "max_blocks": st.sampled_from([6, 40]),
        "kv_block_tokens": st.just(16),
        "single": st.sampled_from([True, False]),
    },
)
REQUESTS = st.tuples(
    st.lists(st.sampled_from(BLOCKS), max_size=6, unique=True),
    st.sampled_from([SPACE, OTHER]),
    st.sampled_from(HEADS),
    st.sampled_from([OrderBudget(), OrderBudget("throughput", protect_top=1), OrderBudget("retrieved")]),
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("align"), st.integers(0, 2), REQUESTS),
        st.tuples(st.just("align"), st.integers(0, 2), REQUESTS),
        st.tuples(st.just("answer"), st.integers(0, 2), st.tuples(st.integers(0, 40), st.integers(0, 40))),
        st.tuples(st.just("fail"), st.integers(0, 2), st.integers(0, 40)),
        st.tuples(st.just("forget"), st.integers(0, 2), st.sampled_from([SPACE, OTHER, replace(SPACE, head="one")])),
        st.tuples(st.just("tell"), st.integers(0, 2), st.integers(1, 4)),
        st.tuples(st.just("read"), st.integers(0, 2), st.integers(1, 9)),
        st.tuples(st.just("read"), st.integers(0, 2), st.just(99)),
    ),
    max_size=60,
)


def work(followers: list[Follower], steps) -> None:
    """What is asked of each, in this order; whoever answers was asked there."""
    aligned: list[list[Alignment]] = [[] for _ in followers]
    for what, who, more in steps:
        follower = followers[who % len(followers)]
        mine = aligned[who % len(followers)]
        if what == "align":
            blocks, space, head, budget = more
            mine.append(follower.index.align(Request(tuple(blocks), replace(space, head=head), budget)))
        elif what == "answer" and mine:
            which, cached = more
            alignment = mine[which % len(mine)]
            tokens = alignment.request.tokens
            follower.index.observe(alignment, Usage(tokens + 30, min(tokens, cached * 16), 5))
        elif what == "fail" and mine:
            follower.index.failed(mine[more % len(mine)])
        elif what == "forget":
            follower.index.forget(more)
        elif what == "tell":
            follower.tell(more)
        elif what == "read":
            follower.read(more)


def settle(followers: list[Follower]) -> None:
    """All is told, and all is read; what is read makes some tell something more."""
    while any(follower.waiting or follower.position < len(follower.log) for follower in followers):
        for follower in followers:
            follower.tell()
            follower.read()


def known(index: FedIndex) -> list[list[bytes]]:
    return [written(index, space) for space in (SPACE, OTHER)]


def by_head(dump: list[list[bytes]]) -> list[list[tuple[bytes, ...]]]:
    """The order in which heads are written is each index's own: the one used last there comes last."""
    return [sorted(_groups(parts)) for parts in dump]


def _groups(parts: list[bytes]) -> list[tuple[bytes, ...]]:
    groups: list[list[bytes]] = []
    for part in parts:
        if type(read([part])[0]).__name__ == "NamespacePart":
            groups.append([])
        groups[-1].append(part)
    return [tuple(group) for group in groups]


@settings(max_examples=150, deadline=None)
@given(OPTIONS, STEPS)
def test_who_has_read_the_same_is_the_same_byte_for_byte(options, steps):
    log: list = []
    followers = [Follower(name, log, **options) for name in "abc"]
    work(followers, steps)
    settle(followers)
    late = Follower("d", log, **options)
    late.read()
    first = by_head(known(followers[0].index))
    for follower in [*followers[1:], late]:
        assert by_head(known(follower.index)) == first
    for follower in followers:
        assert all(share.ahead is None for share in follower.index._shares.values())
        assert not follower.index._early
        assert not follower.index._forgetting


@settings(max_examples=150, deadline=None)
@given(OPTIONS, STEPS, STEPS)
def test_who_joins_late_by_a_copy_goes_on_as_the_very_same(options, before, after):
    log: list = []
    followers = [Follower(name, log, **options) for name in "ab"]
    work(followers, before)
    settle(followers)
    late = Follower("c", log, **options)
    for space in (SPACE, OTHER):
        late.index.replace_space(space, read(written(followers[0].index, space)))
    late.position = len(log)
    assert by_head(known(late.index)) == by_head(known(followers[0].index))
    work([*followers, late], after)
    settle([*followers, late])
    for head in HEADS:
        for space in (SPACE, OTHER):
            namespace = replace(space, head=head)
            for seed in range(6):
                request = Request(tuple(random.Random(seed).sample(BLOCKS, 5)), namespace)
                assert len({follower.index.predict(request) for follower in (*followers, late)}) == 1
    assert without_tails(late.index) == without_tails(followers[0].index)


def without_tails(index: FedIndex) -> list[list[tuple[bytes, ...]]]:
    kinds = ("HistoryPart", "Standing")
    found = []
    for parts in known(index):
        kept = [part for part in parts if type(read([part])[0]).__name__ not in kinds]
        found.append(sorted(_groups(kept)))
    return found


@settings(max_examples=60, deadline=None)
@given(STEPS)
def test_one_alone_that_hears_at_once_decides_as_an_index_without_a_log(steps):
    fed, local = Delivered(1), LocalIndex()
    aligned = []
    for what, _, more in steps:
        if what == "align":
            blocks, space, head, budget = more
            request = Request(tuple(blocks), replace(space, head=head), budget)
            one, other = fed.align(request), local.align(request)
            assert (one, one.expected_cached_tokens) == (other, other.expected_cached_tokens)
            aligned.append((one, other))
        elif what == "answer" and aligned:
            which, cached = more
            one, other = aligned[which % len(aligned)]
            usage = Usage(one.request.tokens + 30, min(one.request.tokens, cached * 16), 5)
            fed.observe(one, usage)
            local.observe(other, usage)
        elif what == "fail" and aligned:
            one, other = aligned[more % len(aligned)]
            fed.failed(one)
            local.failed(other)
        elif what == "forget":
            fed.forget(more)
            local.forget(more)
    assert fed.stats() == local.stats()


def test_what_was_sent_counts_here_before_the_log_brings_it_and_nowhere_else():
    log: list = []
    one, other = Follower("a", log), Follower("b", log)
    one.index.align(Request(tuple(BLOCKS[:3])))
    again = Request(tuple(BLOCKS[2::-1]))
    assert (one.index.predict(again), other.index.predict(again)) == (again.tokens, 0)
    one.tell()
    other.read()
    assert (one.index.predict(again), other.index.predict(again)) == (again.tokens, again.tokens)
    one.read()
    assert one.index.predict(again) == again.tokens


def test_an_answer_that_comes_before_the_record_is_back_is_told_after_it():
    log: list = []
    one, other = Follower("a", log), Follower("b", log)
    alignment = one.index.align(Request(tuple(BLOCKS[:3])))
    one.index.observe(alignment, Usage(500, 0))
    assert one.told == 1
    settle([one, other])
    assert one.told == 2
    assert known(one.index) == known(other.index)
    one.index.observe(alignment, Usage(500, 0))  # somebody reports twice
    settle([one, other])
    assert known(one.index) == known(other.index)


def test_what_is_forgotten_is_not_known_again_by_what_was_told_before():
    log: list = []
    one, other = Follower("a", log), Follower("b", log)
    request = Request(tuple(BLOCKS[:3]))
    other.index.align(request)
    other.tell()
    one.index.align(request)
    one.index.forget()
    one.read()
    assert one.index.predict(request) == 0
    one.index.align(Request(tuple(BLOCKS[4:6])))
    settle([one, other])
    for follower in (one, other):
        assert follower.index.predict(request) == 0
        assert follower.index.predict(Request(tuple(BLOCKS[4:6]))) > 0


def test_moreup_records_are_waited_for_no_longer():
    one = Follower("a", [])
    alignment = one.index.align(Request(tuple(BLOCKS[:3])))
    one.index.observe(alignment, Usage(500, 0))
    assert alignment.ticket is not None
    one.index.included(Namespace(), [alignment.ticket])
    assert not one.index._early
    assert one.index.predict(alignment.request) == 0


def test_what_cannot_be_told_is_refused_before_anything_changes():
    one = Follower("a", [])
    with pytest.raises(InputError):
        one.index.align(Request((BlockRef(("a", 1), 10),)))
    with pytest.raises(InputError):
        one.index.align(Request((BlockRef("a", 10),), Namespace(head="h" * 1_000)))
    assert not one.index.namespaces()
    assert not one.waiting


def test_threads_that_forget_while_the_log_is_read_leave_all_equal():
    log: list = []
    followers = [Follower(name, log) for name in "ab"]
    stop = threading.Event()

    def work(number: int) -> None:
        numbers, index = random.Random(number), followers[number % 2].index
        for _ in range(150):
            space = numbers.choice([SPACE, OTHER, replace(SPACE, head="one")])
            index.align(Request(tuple(numbers.sample(BLOCKS, 3)), space))
            if numbers.random() < 0.1:
                index.forget(space)

    def deliver(follower: Follower) -> None:
        while not stop.is_set():
            follower.tell(2)
            follower.read(3)

    switching = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        readers = [threading.Thread(target=deliver, args=(follower,)) for follower in followers]
        workers = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in (*readers, *workers):
            thread.start()
        for thread in workers:
            thread.join()
        stop.set()
        for thread in readers:
            thread.join()
    finally:
        sys.setswitchinterval(switching)
    settle(followers)
    assert known(followers[0].index) == known(followers[1].index)
    for follower in followers:
        assert not follower.index._forgetting
        assert all(share.ahead is None for share in follower.index._shares.values())


def test_an_engine_that_lost_its_cache_empties_the_trees_here_and_tells_nobody():
    log: list = []
    one, other = Follower("a", log), Follower("b", log)
    request = Request(tuple(BLOCKS[:3]))
    one.index.align(request)
    settle([one, other])
    told = one.told
    one.index.empty()
    assert (one.index.predict(request), one.told) == (0, told)
    settle([one, other])
    assert other.index.predict(request) == request.tokens
    one.index.align(request)
    settle([one, other])
    assert one.index.predict(request) == request.tokens


def test_a_report_on_what_was_forgotten_says_nothing_of_what_was_sent_since():
    """Not even where that has not come back yet, so that the others do not have it either."""
    log: list = []
    one, other = Follower("a", log), Follower("b", log)
    alignment = one.index.align(Request(tuple(BLOCKS[:3])))
    settle([one, other])
    one.index.forget()
    one.index.observe(alignment, Usage(500, 0))
    one.tell()
    one.index.align(Request(tuple(BLOCKS[:2])))
    one.read()
    settle([one, other])
    assert known(one.index) == known(other.index)
    assert written(one.index, Namespace()) == written(other.index, Namespace()) != []
