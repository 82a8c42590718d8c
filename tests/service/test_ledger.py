"""Conversations whose answers get lost, whose turns are taken back, whose service begins again from an old state."""

from __future__ import annotations

import itertools

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from contextpilot_rag import BlockRef, Namespace
from contextpilot_rag.errors import StateError
from contextpilot_rag.remote import wire
from contextpilot_rag.service import saved
from contextpilot_rag.service.core import Service
from contextpilot_rag.service.ledger import Ledgers
from contextpilot_rag.service.settings import ServiceSettings

DECODER = msgspec.msgpack.Decoder(saved.SavedPart)
TURN = wire.TurnIn


class Talk:
    """What a client has of one conversation."""

    def __init__(self, name, model):
        self.name = name
        self.namespace = wire.NamespaceIn(model=model)
        self.turns = []  # (the answer's turn or None, {label: block})

    def has(self):
        return {label: block for _, labels in self.turns for label, block in labels.items()}

    def turn(self):
        after = next((turn for turn, _ in reversed(self.turns) if turn), None)
        return TURN(self.name, after, max(self.has(), default=0) + 1)

    def take(self, blocks, answer):
        """Check an answer against what the client has, and keep it."""
        has, new = self.has(), {}
        assert sorted(answer.order) == list(range(len(blocks)))
        assert len(set(answer.labels)) == len(answer.labels)
        for position, label in zip(answer.order, answer.labels, strict=True):
            if label in answer.location_hints:
                assert has.get(label) == blocks[position], "a hint points at what the client does not have"
            else:
                assert label not in has, "a label stands twice"
                new[label] = blocks[position]
        assert set(answer.location_hints) <= set(answer.labels)
        self.turns.append((answer.turn, new))

    def fail_open(self, blocks):
        first = max(self.has(), default=0) + 1
        self.turns.append((None, dict(enumerate(blocks, first))))


def as_given(blocks):
    return [wire.BlockIn(id=block, tokens=10) for block in blocks]


asked = st.lists(st.sampled_from("abcdef"), unique=True, max_size=4)
which = st.integers(0, 2)


class Talks(RuleBasedStateMachine):
    hints = 0  # over all runs: the machine must reach what it is about

    @initialize(conversations=st.sampled_from([1, 3, 4, 5]), blocks=st.sampled_from([1, 50_000]))
    def begin(self, conversations, blocks):
        self.now = 0.0
        self.limits = ServiceSettings(
            tenant_conversations=conversations, conversation_seconds=100, tenant_tickets=3, tenant_blocks=blocks
        )
        self.tickets = (f"ticket-{number:010}" for number in itertools.count())
        self.talks = [Talk("one", "m"), Talk("one", "n"), Talk("two", "m")]
        self.snapshots = []
        self.restart(0)

    def request(self, talk, blocks, ticket):
        return wire.AlignIn(as_given(blocks), talk.namespace, conversation=talk.turn(), ticket=ticket)

    def ask(self, talk, blocks, ticket):
        return self.service.tenant("t").align(self.request(talk, blocks, ticket))

    @rule(which=which, blocks=asked)
    def answered(self, which, blocks):
        talk, ticket = self.talks[which], next(self.tickets)
        answer = self.ask(talk, blocks, ticket)
        talk.take(blocks, answer)
        Talks.hints += len(answer.location_hints)

    @rule(which=which, blocks=asked, other=which, again=asked, back=st.integers(0, 3) | st.none())
    def lost_and_tried_again(self, which, blocks, other, again, back):
        """The answer never arrives; others ask, or the service begins again; then the same ticket is sent once more."""
        talk, ticket = self.talks[which], next(self.tickets)
        self.ask(talk, blocks, ticket)
        if other != which:
            self.answered(other, again)
        if back is not None:
            self.restart(back)
        talk.take(blocks, self.ask(talk, blocks, ticket))

    @rule(
        which=which,
        blocks=asked,
        back=st.integers(0, 3) | st.none(),
        others=st.permutations("abcdef"),
        first=st.booleans(),
    )
    def answered_twice(self, which, blocks, back, others, first):
        """Both answers to one ticket arrive, as it was forgotten in between. The client keeps either, and goes on."""
        talk, ticket = self.talks[which], next(self.tickets)
        given = self.request(talk, blocks, ticket)
        one = self.service.tenant("t").align(given)
        if back is not None:
            self.restart(back)
        for _ in range(self.limits.tenant_tickets):
            self.service.tenant("t").align(wire.AlignIn(as_given(others), talk.namespace))
        two = self.service.tenant("t").align(given)
        talk.take(blocks, one if first else two)
        self.answered(which, blocks[::-1])

    @rule(which=which, blocks=asked)
    def sent_twice(self, which, blocks):
        """While its ticket is known, a turn gets the same answer again."""
        talk, ticket = self.talks[which], next(self.tickets)
        given = self.request(talk, blocks, ticket)
        one, two = (self.service.tenant("t").align(given) for _ in range(2))
        assert one == two
        talk.take(blocks, two)

    @rule(which=which, blocks=asked, asked=st.booleans())
    def failed_open(self, which, blocks, asked):
        if asked:
            self.ask(self.talks[which], blocks, next(self.tickets))
        self.talks[which].fail_open(blocks)

    @rule(which=which)
    def two_turns(self, which):
        self.answered(which, list("abc"))
        self.answered(which, list("cad"))

    @rule(which=which, turns=st.integers(1, 3))
    def taken_back(self, which, turns):
        del self.talks[which].turns[-turns:]

    @rule(seconds=st.sampled_from([1, 60, 120]))
    def time_passes(self, seconds):
        self.now += seconds

    @rule(which=which)
    def forgotten(self, which):
        self.service.tenant("t").ledgers.forget(name=self.talks[which].name)

    @rule()
    def saved(self):
        self.snapshots.append([msgspec.msgpack.encode(part) for part in saved.dump(self.service)])

    @rule(back=st.integers(0, 3))
    def restart(self, back):
        """From a state of before, or from none. What was saved after it is no more."""
        del self.snapshots[max(0, len(self.snapshots) - back) :]
        self.service = Service(self.limits, clock=lambda: self.now)
        if self.snapshots:
            saved.load(map(DECODER.decode, self.snapshots[-1]), self.service)


@pytest.mark.no_cover
def test_hints_point_at_what_the_client_has_and_labels_never_meet():
    Talks.hints = 0
    machine = Talks.TestCase
    machine.settings = settings(max_examples=120, stateful_step_count=40, deadline=None)
    machine().runTest()
    assert Talks.hints > 50


def refs(text):
    return [BlockRef(letter, 10) for letter in text]


def filled():
    ledgers = Ledgers(10, 100, lambda: 0.0)
    space = Namespace(model="m", head="h")
    ledgers.turn(space, TURN("c"), refs("ab"), "t1")
    ledgers.turn(space, TURN("c", "t1", 3), refs("bc"), "t2")
    return ledgers, space


def service_with(ledgers):
    service = Service(ServiceSettings())
    service.tenant("t").ledgers = ledgers
    return service


def test_a_conversation_goes_on_after_a_restart():
    ledgers, space = filled()
    service = Service(ServiceSettings())
    saved.load(saved.dump(service_with(ledgers)), service)
    labelled = service.tenant("t").ledgers.turn(space, TURN("c", "t2", 4), refs("cda"), "t3")
    assert (labelled.labels, labelled.again) == ((3, 4, 1), (3, 1))


def test_a_state_of_before_gives_every_block_in_full():
    ledgers, space = filled()
    parts = list(saved.dump(service_with(ledgers)))
    ledgers.turn(space, TURN("c", "t2", 4), refs("d"), "t3")
    service = Service(ServiceSettings())
    saved.load(parts, service)
    labelled = service.tenant("t").ledgers.turn(space, TURN("c", "t3", 5), refs("ad"), "t4")
    assert (labelled.labels, labelled.again) == ((5, 6), ())


def test_what_was_forgotten_or_dropped_meanwhile_is_not_saved():
    ledgers = Ledgers(1_000, 100, lambda: 0.0)
    for number in range(200):
        ledgers.turn(Namespace(), TURN(f"c{number}"), refs("abc"), "t1")
    parts = saved.dump(service_with(ledgers))
    first = next(parts)
    assert 0 < len(first.ledgers) < 200
    ledgers.forget()
    assert not list(parts)


def test_one_conversation_cannot_take_more_than_all_may():
    ledgers = Ledgers(1, 100, lambda: 0.0)
    after, label = None, 1
    for number in range(50):
        blocks = [BlockRef((number, place), 10) for place in range(10)]
        ledgers.turn(Namespace(), TURN("c", after, label), blocks, f"t{number}")
        after, label = f"t{number}", label + 10
        assert ledgers._blocks == sum(ledger.blocks for _, ledger in ledgers.items()) <= 200
    parts = [part for part in saved.dump(service_with(filled()[0])) if isinstance(part, saved.LedgersPart)]
    small = Service(ServiceSettings(tenant_conversations=1))
    parts[0].ledgers[0].keys, parts[0].ledgers[0].labels = list(map(str, range(300))), list(range(1, 301))
    saved.load(parts, small)
    assert len(small.tenant("t").ledgers) == 0


@pytest.mark.parametrize(("column", "value"), [("labels", [1]), ("keys", ["a", 1.5]), ("waiting_labels", [])])
def test_a_conversation_that_is_wrong_is_an_error_and_nothing_stays(column, value):
    parts = list(saved.dump(service_with(filled()[0])))
    setattr(parts[-1].ledgers[0], column, value)
    service = Service(ServiceSettings())
    with pytest.raises(StateError, match="no label for each block"):
        saved.load([*saved.dump(service_with(filled()[0])), *parts], service)
    assert not len(service.tenant("t").ledgers)


@given(st.lists(st.tuples(st.sampled_from(["turn", "forget"]), st.sampled_from("ab"), st.sampled_from(["", "h", "i"]))))
def test_those_of_a_namespace_are_found_as_among_all(steps):
    ledgers = Ledgers(3, 100, lambda: 0.0)
    for number, (do, corpus, head) in enumerate(steps):
        namespace = Namespace(corpus=corpus, head=head)
        if do == "turn":
            ledgers.turn(namespace, TURN(f"c{number % 4}"), refs("ab"), f"t{number}")
        else:
            ledgers.forget(namespace, f"c{number % 4}" if number % 2 else None)
        for space in map(Namespace, [""] * 2, [""] * 2, "ab"):
            of_it = [item for item in ledgers.items() if item[0][0].corpus == space.corpus]
            assert ledgers.items(space) == of_it
            assert (space in ledgers.spaces()) == bool(of_it)
