"""Conversations whose turns are answered by any of several replicas, whatever the log does in between."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from contextpilot_rag.remote import wire
from contextpilot_rag.service.core import Service
from contextpilot_rag.service.ledger import Delta, Ledgers
from contextpilot_rag.service.settings import ServiceSettings
from contextpilot_rag.types import Namespace
from tests.service.replicated import Node, SharedLog, nodes, settle
from tests.service.test_ledger import TURN, Talk, as_given, refs

asked = st.lists(st.sampled_from("abcdef"), unique=True, max_size=4)
which = st.integers(0, 2)
node = st.integers(0, 2)


class Moving(Talk):
    """A client that may drop its old messages; its labels go on."""

    low = 0

    def turn(self):
        after = next((turn for turn, _ in reversed(self.turns) if turn), None)
        return TURN(self.name, after, max(self.has(), default=self.low) + 1)

    def drop_old(self):
        self.low = max(self.has(), default=self.low)
        self.turns = []


class Moves(RuleBasedStateMachine):
    hints = 0  # over all runs: the machine must reach what it is about

    @initialize(conversations=st.sampled_from([1, 3, 5]), blocks=st.sampled_from([1, 50_000]))
    def begin(self, conversations, blocks):
        self.now = 0.0
        self.limits = ServiceSettings(
            tenant_conversations=conversations, conversation_seconds=100, tenant_tickets=3, tenant_blocks=blocks
        )
        self.tickets = (f"ticket-{number:010}" for number in itertools.count())
        self.talks = [Moving("one", "m"), Moving("one", "n"), Moving("two", "m")]
        self.log = SharedLog()
        self.nodes = [self.new() for _ in range(3)]

    def new(self):
        return Node(self.log, self.limits, clock=lambda: self.now)

    def request(self, talk, blocks, ticket=None):
        return wire.AlignIn(as_given(blocks), talk.namespace, conversation=talk.turn(), ticket=ticket)

    def take(self, talk, blocks, answer):
        talk.take(blocks, answer)
        Moves.hints += len(answer.location_hints)

    @rule(which=which, node=node, blocks=asked)
    def answered(self, which, node, blocks):
        talk = self.talks[which]
        self.take(talk, blocks, self.nodes[node].tenant().align(self.request(talk, blocks)))

    @rule(which=which, node=node, blocks=asked, other=node, known=st.booleans(), first=st.booleans())
    def asked_twice(self, which, node, blocks, other, known, first):
        """Of two replicas, with one ticket; the client keeps either answer, and goes on."""
        talk = self.talks[which]
        given = self.request(talk, blocks, next(self.tickets))
        one = self.nodes[node].tenant().align(given)
        if known:
            settle(self.nodes)
        two = self.nodes[other].tenant().align(given)
        if known and talk.turn().after is None:
            assert two.order == one.order
        self.take(talk, blocks, one if first else two)

    @rule(which=which, blocks=asked, asked=node | st.none())
    def failed_open(self, which, blocks, asked):
        talk = self.talks[which]
        if asked is not None:
            self.nodes[asked].tenant().align(self.request(talk, blocks))
        first = max(talk.has(), default=talk.low) + 1
        talk.turns.append((None, dict(enumerate(blocks, first))))

    @rule(which=which, turns=st.integers(1, 3))
    def taken_back(self, which, turns):
        del self.talks[which].turns[-turns:]

    @rule(which=which)
    def started_afresh(self, which):
        self.talks[which].drop_old()

    @rule(which=which, turns=st.integers(2, 4))
    def goes_round(self, which, turns):
        for turn in range(turns):
            self.answered(which, turn % 3, list("abcdef")[turn % 3 : turn % 3 + 3])
            settle(self.nodes)

    @rule(node=node, most=st.integers(1, 4) | st.none())
    def told(self, node, most):
        self.nodes[node].flush(most)

    @rule(node=node, most=st.integers(1, 5) | st.none())
    def read(self, node, most):
        self.nodes[node].read(most)

    @rule(node=node, other=node)
    def missed_some(self, node, other):
        """A replica lacks what the log does not have any more, and takes over what another knows."""
        if node != other:
            self.nodes[node].reload(self.nodes[other])

    @rule(node=node)
    def log_was_lost(self, node):
        """What one knows is what all begin with; what was told and had not been read by it is gone."""
        self.log.entries.clear()
        for one in self.nodes:
            one.position = 0
        for place, one in enumerate(self.nodes):
            if place != node:
                one.reload(self.nodes[node])

    @rule(node=node, other=node)
    def restarted(self, node, other):
        """What it had told and the log had not taken is lost."""
        self.nodes[node] = self.new()
        if other != node:
            self.nodes[node].reload(self.nodes[other])

    @rule(seconds=st.sampled_from([1, 60, 120]))
    def time_passes(self, seconds):
        self.now += seconds

    @rule(which=which, node=node, everywhere=st.booleans())
    def forgotten(self, which, node, everywhere):
        name = self.talks[which].name
        self.nodes[node].tenant().forget_talks(None if everywhere else Namespace(model="m"), name)


@pytest.mark.no_cover
def test_whichever_replica_answers_hints_point_at_what_the_client_has_and_labels_never_meet():
    Moves.hints = 0
    machine = Moves.TestCase
    machine.settings = settings(max_examples=120, stateful_step_count=40, deadline=None)
    machine().runTest()
    assert Moves.hints > 100


@settings(max_examples=60, deadline=None)
@given(turns=st.lists(st.tuples(which, node, asked), max_size=12))
def test_what_one_service_would_have_known_is_known_by_all_replicas(turns):
    several, one = nodes(3, ServiceSettings()), Service(ServiceSettings())
    talks = [[Moving("one", "m"), Moving("one", "n"), Moving("two", "m")] for _ in range(2)]
    for which, node, blocks in turns:
        answers = []
        for talk, tenant in ((talks[0][which], several[node].tenant()), (talks[1][which], one.tenant("t"))):
            given = wire.AlignIn(as_given(blocks), talk.namespace, conversation=talk.turn())
            answers.append(tenant.align(given))
            talk.take(blocks, answers[-1])
        settle(several)
        left, right = answers
        assert (left.order, left.labels, left.location_hints) == (right.order, right.labels, right.location_hints)
        assert left.predicted_cached_tokens == right.predicted_cached_tokens


def ask(node, talk, blocks):
    answer = node.tenant().align(wire.AlignIn(as_given(blocks), talk.namespace, conversation=talk.turn()))
    talk.take(blocks, answer)
    return answer


def test_what_was_forgotten_at_one_is_forgotten_at_all_and_what_came_before_does_not_bring_it_back():
    first, second = both = nodes(2, ServiceSettings())
    talk, other = Moving("one", "m"), Moving("one", "m")
    ask(first, talk, "ab")
    settle(both)
    ask(second, talk, "bc")
    ask(second, other, "bc")  # begins the conversation anew
    second.flush()  # in the log, and not read by the first when somebody has it forgotten there
    assert first.tenant().forget_talks(None, "one") == 1
    first.read()
    assert len(first.tenant().ledgers) == 0
    settle(both)
    assert [len(node.tenant().ledgers) for node in both] == [0, 0]
    assert not ask(first, talk, "a").location_hints


def test_what_was_forgotten_does_not_come_back_by_a_snapshot_that_was_written_before():
    first, second = both = nodes(2, ServiceSettings())
    talk = Moving("one", "m")
    ask(first, talk, "ab")
    settle(both)
    second.tenant().forget_talks()
    second.reload(first)  # which has not heard of it yet
    assert len(second.tenant().ledgers) == 0
    settle(both)
    assert [len(node.tenant().ledgers) for node in both] == [0, 0]
    assert not ask(second, talk, "a").location_hints


def test_what_begins_after_it_was_forgotten_is_kept():
    first, second = both = nodes(2, ServiceSettings())
    talk = Moving("one", "m")
    ask(first, talk, "ab")
    settle(both)
    first.tenant().forget_talks(Namespace(model="m"), None)
    later = Moving("one", "m")
    ask(first, later, "ab")
    first.flush()
    first.read(1)  # that it is to be forgotten, which stands before what was asked since
    assert ask(first, later, "ab").location_hints
    settle(both)
    assert ask(second, later, "ab").location_hints
    settle(both)
    assert ask(first, later, "ab").location_hints


def test_a_conversation_keeps_no_more_than_the_answers_that_can_still_be_named():
    both = nodes(2, ServiceSettings())
    talk = Moving("one", "m")
    for turn in range(8):
        ask(both[turn % 2], talk, [f"block {turn}"])
        settle(both)
    for node in both:
        ((_, ledger),) = node.tenant().ledgers.items()
        assert (len(ledger.answers), ledger.blocks) == (2, 8)


def test_of_two_answers_at_two_replicas_either_may_be_the_one_that_was_kept():
    both = nodes(2, ServiceSettings())
    for kept in (0, 1):
        talk = Moving(f"talk {kept}", "m")
        given = wire.AlignIn(as_given("ab"), talk.namespace, conversation=talk.turn())
        answers = [one.tenant().align(given) for one in both]
        settle(both)
        talk.take("ab", answers[kept])
        for one in both:
            again = one.tenant().align(wire.AlignIn(as_given("ab"), talk.namespace, conversation=talk.turn()))
            assert again.location_hints.keys() == {1, 2}


@pytest.mark.parametrize(
    ("labels", "next_label"),
    [({"c": 2}, 3), ({"a": 3}, 4), ({"c": 3}, 3), ({"c": 3, "d": 3}, 4), ({}, 1)],
    ids=["a label that stands there", "a block that stands there", "below", "twice", "nothing, and below"],
)
def test_a_turn_that_cannot_be_is_not_taken_in(labels, next_label):
    ledgers, space = Ledgers(10, 100, lambda: 0.0), Namespace()
    ledgers.turn(space, TURN("c"), refs("ab"), "t1")
    assert not ledgers.apply(Delta(space, "c", "t2", "t1", labels, next_label))
    assert not ledgers.apply(Delta(space, "c", "t2", "unknown", {"c": 3}, 4))
    labelled = ledgers.turn(space, TURN("c", "t1", 3), refs("ca"), "t3")
    assert (labelled.labels, labelled.again) == ((3, 1), (1,)), "and what is known stays"
