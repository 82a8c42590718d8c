"""Replicas converge, whatever happens to their log and on the way to it: a state machine without threads or time."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from contextpilot_rag.index.records import Sent
from contextpilot_rag.replicas.entries import write_batch
from contextpilot_rag.replicas.log import Entry, Snapshot
from contextpilot_rag.replicas.space import Names, Space
from contextpilot_rag.types import Alignment, BlockRef, Namespace, OrderBudget, Request, Usage

from .world import BUDGETS, COMMON, NAMESPACES, PACE, POOL, SPACES, Member, Server, stream_of

MOST = 4
WHO = st.integers(0, MOST - 1)
NAMED = st.sampled_from(NAMESPACES)
CONTEXT = st.permutations(COMMON).flatmap(lambda all_: st.integers(1, len(all_)).map(lambda size: tuple(all_[:size])))
SETTINGS: tuple[dict[str, Any], ...] = (
    {},
    {"capacity_tokens": 400},
    {"capacity_tokens": 900, "kv_block_tokens": 16, "single": True},
    {"max_blocks": 12, "single": True},
)
WAYS = st.sampled_from(["done", "unknown", "held", "silent", "half", "swallowed"])


def space_of(namespace: Namespace) -> Namespace:
    return replace(namespace, head="")


class Replicas(RuleBasedStateMachine):
    """Marks are blocks that are sent once, in one namespace, and first: so it can be told whether they are known."""

    @initialize(number=st.integers(2, MOST), given=st.sampled_from(SETTINGS), entries=st.sampled_from([100_000, 12]))
    def begin(self, number: int, given: dict[str, Any], entries: int) -> None:
        self.short = entries < 100
        self.server = Server(entries)
        self.now = 1_000.0
        self.given = given
        self.members = [self.member() for _ in range(number)]
        self.sent: dict[Namespace, set[Any]] = {namespace: set() for namespace in NAMESPACES}
        self.marks: dict[Namespace, set[bytes]] = {namespace: set() for namespace in NAMESPACES}
        self.mark = 0
        self.silently = False  # something was lost, and nobody has to notice as long as nothing more is told

    def member(self) -> Member:
        return Member(self.server, lambda: self.now, self.given)

    def one(self, who: int) -> Member:
        return self.members[who % len(self.members)]

    # What replicas are asked

    @rule(who=WHO, namespace=NAMED, contexts=st.lists(CONTEXT, min_size=1, max_size=3), budget=st.sampled_from(BUDGETS))
    def align(self, who: int, namespace: Namespace, contexts: list[tuple[BlockRef, ...]], budget: OrderBudget) -> None:
        member = self.one(who)
        for blocks in contexts:
            self.sent[namespace].update(block.key for block in blocks)
            alignment = member.index.align(Request(blocks, namespace, budget))
            assert sorted(alignment.order) == list(range(len(blocks)))
            assert alignment.request.blocks == blocks
            member.waiting.append(alignment)

    @rule(who=WHO, namespace=NAMED, many=st.integers(1, 12))
    def align_marked(self, who: int, namespace: Namespace, many: int) -> None:
        member = self.one(who)
        for _ in range(many):
            self.mark += 1
            mark = b"mark%012d" % self.mark
            self.sent[namespace].add(mark)
            self.marks[namespace].add(mark)
            request = Request((BlockRef(mark, 50), BlockRef("with", 30)), namespace, BUDGETS[2])
            member.waiting.append(member.index.align(request))
            member.marks[namespace].add(mark)

    @rule(who=WHO, namespace=NAMED, blocks=CONTEXT)
    def plan_sent(self, who: int, namespace: Namespace, blocks: tuple[BlockRef, ...]) -> None:
        self.sent[namespace].update(block.key for block in blocks)
        self.one(who).index.sent(Alignment(Request(blocks, namespace), tuple(reversed(range(len(blocks))))))

    @rule(
        who=WHO,
        other=st.none() | WHO,
        place=st.integers(0, 100),
        what=st.sampled_from(["hit", "miss", "part", "none", "answered", "failed"]),
        again=st.booleans(),
    )
    def answer(self, who: int, other: int | None, place: int, what: str, again: bool) -> None:
        member = self.one(who)
        if not member.waiting:
            return
        place %= len(member.waiting)
        alignment = member.waiting[place] if again else member.waiting.pop(place)
        index = member.index if other is None else self.one(other).index
        if what == "failed":
            index.failed(alignment)
        elif what == "answered":
            index.answered(alignment)
        else:
            predicted = alignment.predicted_cached_tokens
            cached = {"hit": predicted + 20, "miss": 0, "part": predicted // 2, "none": None}[what]
            index.observe(alignment, Usage(alignment.request.tokens + 40, cached, 30))

    @rule(who=WHO, namespace=st.none() | NAMED)
    def forget(self, who: int, namespace: Namespace | None) -> None:
        self.one(who).forget(namespace, self.marks)

    @rule(who=WHO, namespace=NAMED, seconds=st.sampled_from([0.0, 2.0, 100.0]), told=st.booleans(), away=st.booleans())
    def forget_what_is_on_its_way(self, who: int, namespace: Namespace, seconds: float, told: bool, away: bool) -> None:
        """Told, and not heard of again yet; then perhaps alone, so long that what waits is taken in without a log."""
        member = self.one(who)
        self.align_marked(who, namespace, 1)
        if told:
            member.tell()
        member.way.away = away
        member.forget(namespace, self.marks)
        self.now += seconds
        member.read()
        self.what_was_forgotten_does_not_come_back()
        member.way.mend()
        member.read()

    @rule(who=WHO, namespace=NAMED)
    def swallow(self, who: int, namespace: Namespace) -> None:
        member = self.one(who)
        self.change_way(who, away=False, full=False, appends="swallowed")
        self.align_marked(who, namespace, 1)
        member.tell()
        member.way.mend()

    # What replicas do

    @rule(who=WHO, times=st.integers(1, 3))
    def tell(self, who: int, times: int) -> None:
        for _ in range(times):
            self.one(who).tell()

    @rule(who=WHO, times=st.integers(1, 3))
    def read(self, who: int, times: int) -> None:
        for _ in range(times):
            self.one(who).read()

    @rule()
    def all_step(self) -> None:
        for _ in range(2):
            for member in self.members:
                member.tell()
            for member in self.members:
                member.read()

    @rule(seconds=st.sampled_from([0.1, 0.6, 1.5, 6.0, 31.0, 100.0]))
    def pass_time(self, seconds: float) -> None:
        self.now += seconds

    @rule(who=WHO)
    def compact(self, who: int) -> None:
        self.one(who).compact_soon()

    # What happens to them

    @rule(who=WHO)
    def kill(self, who: int) -> None:
        del self.members[who % len(self.members)]
        if not self.members:
            self.members.append(self.member())

    @precondition(lambda self: len(self.members) < MOST)
    @rule()
    def join(self) -> None:
        self.members.append(self.member())

    @rule(who=WHO)
    def fork(self, who: int) -> None:
        self.one(who).fork()

    # What happens to the log, and on the way to it

    @rule(who=WHO, away=st.booleans(), full=st.booleans(), appends=WAYS)
    def change_way(self, who: int, away: bool, full: bool, appends: str) -> None:
        way = self.one(who).way
        way.away, way.full, way.appends = away, full, appends
        if appends == "swallowed":
            self.something_lost()

    @rule(who=WHO)
    def mend_way(self, who: int) -> None:
        self.one(who).way.mend()

    @precondition(lambda self: self.server.floating)
    @rule(place=st.integers(0, 20), stays=st.booleans(), done=st.booleans())
    def release(self, place: int, stays: bool, done: bool) -> None:
        floating = self.server.floating
        place %= len(floating)
        entries = floating[place] if stays else floating.pop(place)
        if done:
            self.server.append(entries)

    @rule(back=st.booleans())
    def lose_everything(self, back: bool) -> None:
        self.server.forget_all(back=back)
        self.something_lost()
        self.break_connections()

    @rule(calls=st.integers(1, 6), reuse=st.booleans())
    def fail_over(self, calls: int, reuse: bool) -> None:
        self.server.fail_over(calls, reuse=reuse)
        self.something_lost()
        self.break_connections()

    @rule(
        space=st.sampled_from(SPACES),
        what=st.sampled_from(["secret", "random", "flipped", "moved", "replayed"]),
        place=st.integers(0, 30),
        bit=st.integers(0, 10_000),
    )
    def poison(self, space: Namespace, what: str, place: int, bit: int) -> None:
        stream, server = stream_of(space), self.server
        if what == "secret":
            key = [b"poison%010d" % bit]
            written = write_batch(Names("other"), Space(POOL, space), "w", [(10**6, encode(Sent("", key, [50])))])
            return server.poison(stream, Entry("0-1", written.mac, written.data))
        if what == "random":
            rand = random.Random(bit)
            return server.poison(stream, Entry("0-1", rand.randbytes(16), rand.randbytes(40)))
        entries = server.entries(stream)
        if not entries:
            return None
        entry = entries[place % len(entries)]
        if what == "flipped":
            data = bytearray(entry.data)
            data[bit // 8 % len(data)] ^= 1 << bit % 8
            return server.poison(stream, replace(entry, data=bytes(data)))
        if what == "moved":
            return server.poison(stream_of(SPACES[(SPACES.index(space) + 1) % len(SPACES)]), entry)
        return server.poison(stream, entry)

    @rule(space=st.sampled_from(SPACES), bit=st.integers(0, 10_000))
    def damage_snapshot(self, space: Namespace, bit: int) -> None:
        stream = stream_of(space)
        snapshot = self.server.snapshot(stream)
        if snapshot is not None:
            data = bytearray(snapshot.data)
            data[bit // 8 % len(data)] ^= 1 << bit % 8
            self.server.replace_snapshot(stream, Snapshot(snapshot.position, snapshot.mac, bytes(data)))
            self.something_lost()

    @rule(space=st.sampled_from(SPACES))
    def lose_snapshot(self, space: Namespace) -> None:
        followed = [space in {known.namespace for known in member.core.streams} for member in self.members]
        if not all(followed):
            return  # whom the bell tells of a stream for the first time takes it for a new one
        self.server.replace_snapshot(stream_of(space), None)
        self.something_lost()

    @rule(space=st.sampled_from(SPACES), keep=st.integers(0, 3))
    def trim(self, space: Namespace, keep: int) -> None:
        self.server.trim(stream_of(space), keep)
        self.something_lost()
        self.silently = True

    def something_lost(self) -> None:
        """What was told is not promised to be known any more."""
        for member in self.members:
            member.log_lost()

    def break_connections(self) -> None:
        for member in self.members:
            member.way.broken = {"append", "read", "listen"}

    # What is always true

    @invariant()
    def nothing_is_known_of_what_was_never_sent(self) -> None:
        for member in self.members:
            for namespace in NAMESPACES:
                strange = [block for block in COMMON if block.key not in self.sent[namespace]]
                assert not strange or not member.predict(namespace, strange)
                others = [mark for other in NAMESPACES if other != namespace for mark in sorted(self.marks[other])[-5:]]
                assert not member.known(namespace, set(others))

    @invariant()
    def what_was_forgotten_does_not_come_back(self) -> None:
        if self.short:
            self.something_lost()
        for member in self.members:
            member.update_forgets()
            for namespace, marks in member.must_not_know():
                assert not member.known(namespace, marks)

    @invariant()
    def what_waits_is_bounded(self) -> None:
        for member in self.members:
            outbox = member.core.outbox
            assert outbox.size <= PACE.most_pending
            assert outbox.size == sum(len(box) for box in outbox._boxes.values())
            assert len(member.index._applied) < 5_000
            for namespace, share in member.index._shares.items():
                if share.ahead is not None:
                    waiting = member.names_waiting(space_of(namespace))
                    assert set(share.ahead._waiting) <= waiting

    # And in the end

    def teardown(self) -> None:
        if hasattr(self, "server"):
            self.heal()

    def heal(self) -> None:
        for member in self.members:
            member.way.mend()
        for entries in self.server.floating:
            self.server.append(entries)
        self.server.floating.clear()
        if self.silently:
            for space in SPACES:
                self.align_marked(0, space, 1)
        self.two_seconds()
        self.nothing_is_known_of_what_was_never_sent()
        self.what_was_forgotten_does_not_come_back()
        self.what_waits_is_bounded()
        for member in self.members:
            member.at_rest()
        self.all_equal(self.members)
        self.members.append(self.member())
        self.two_seconds()
        self.all_equal(self.members)

    def two_seconds(self) -> None:
        for _ in range(20):
            for member in self.members:
                member.tell()
                member.read()
            self.now += 0.1

    def all_equal(self, members: list[Member]) -> None:
        first = members[0]
        rand = random.Random(1)
        requests = [
            (namespace, rand.sample(COMMON, rand.randint(1, len(COMMON)))) for namespace in NAMESPACES for _ in range(4)
        ]
        for member in members[1:]:
            for space in SPACES:
                assert member.dump(space) == first.dump(space)
            for namespace, blocks in requests:
                assert member.predict(namespace, blocks) == first.predict(namespace, blocks)


def encode(record: Any) -> bytes:
    import msgspec

    return msgspec.msgpack.encode(record)


TestReplicas = pytest.mark.timeout(300)(Replicas.TestCase)
TestReplicas.settings = settings(
    max_examples=200,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
