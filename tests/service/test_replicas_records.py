"""What replicas of a service tell each other: tickets, reports, places of prompts; and what is never believed."""

from __future__ import annotations

import json

import msgspec
import pytest

from contextpilot_rag.errors import StateError
from contextpilot_rag.remote import wire
from contextpilot_rag.replicas.sink import Arrived
from contextpilot_rag.replicas.space import Space
from contextpilot_rag.service.pool_names import pool_name, pool_named
from contextpilot_rag.service.problems import Conflict
from contextpilot_rag.service.replica_records import (
    Covered,
    Record,
    Reported,
    TalkForgotten,
    Ticketed,
    Turned,
    sound,
)
from contextpilot_rag.service.settings import ServiceSettings
from contextpilot_rag.types import Namespace
from tests.service.replicated import nodes, settle
from tests.service.test_ledger import as_given

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Record).decode
TICKET = "ticket-of-a-client"
HANDBOOK = wire.NamespaceIn(corpus="handbook")


def asked(blocks, **given):
    return wire.AlignIn(as_given(blocks), **given)


def reported(ticket, cached=10):
    return wire.ObserveIn(ticket, wire.UsageIn(30, cached))


@pytest.fixture
def both():
    return nodes(2, ServiceSettings())


def test_usage_is_reported_at_any_replica_and_counted_once(both):
    first, second = both
    answer = first.tenant().align(asked("ab", engine="e"))
    assert second.tenant().observe(reported(answer.ticket)) is None
    settle(both)
    assert second.tenant().observe(reported(answer.ticket)) == wire.ObserveOut(counted=True)
    settle(both)
    for node in both:
        assert node.tenant().observe(reported(answer.ticket)) == wire.ObserveOut(counted=False)
    assert [node.tenant().stats().observed for node in both] == [0, 1]


def learnt(node):
    (share,) = node.service.pool("tenant", "t").index._shares.values()
    return share.reports.standing()


def test_a_report_at_another_replica_teaches_all_of_them(both):
    first, second = both
    answer = first.tenant().align(asked("ab"))
    settle(both)
    before = [learnt(node) for node in both]
    assert second.tenant().observe(reported(answer.ticket)).counted
    settle(both)
    assert learnt(first) == learnt(second) not in before


def test_a_later_turn_of_a_conversation_is_reported_at_any_replica(both):
    first, second = both
    one = first.tenant().align(asked("ab", conversation=wire.TurnIn("c")))
    two = first.tenant().align(asked("bc", conversation=wire.TurnIn("c", one.turn, 3)))
    settle(both)
    assert second.tenant().observe(reported(two.ticket)) == wire.ObserveOut(counted=True)
    settle(both)
    assert first.tenant().observe(reported(two.ticket)) == wire.ObserveOut(counted=False)


def test_a_request_that_is_tried_again_elsewhere_gets_the_same_answer_and_is_counted_once(both):
    first, second = both
    first.tenant().align(asked("ab"))
    given = asked("bac", ticket=TICKET, namespace=wire.NamespaceIn(), key="k")
    one = first.tenant().align(given)
    settle(both)
    two = second.tenant().align(given)
    assert msgspec.structs.asdict(two) == msgspec.structs.asdict(one)
    assert second.tenant().stats().requests == 0
    assert second.tenant().align(given) == two, "and a third time, from what is kept"
    settle(both)
    assert second.tenant().observe(reported(TICKET)).counted
    with pytest.raises(Conflict):
        second.tenant().align(asked("x", ticket=TICKET))


def test_a_request_that_is_tried_again_elsewhere_before_that_was_told_is_no_conflict(both):
    first, second = both
    given = asked("ab", ticket=TICKET)
    answers = [node.tenant().align(given) for node in both]
    settle(both)
    assert [node.tenant().align(given) for node in both] == answers
    assert second.tenant().observe(reported(TICKET)).counted
    settle(both)
    assert not first.tenant().observe(reported(TICKET)).counted


def test_what_was_sent_in_an_order_of_its_own_can_be_reported_at_any_replica(both):
    first, second = both
    sent = first.tenant().sent(wire.SentIn(as_given("ab"), [1, 0]))
    settle(both)
    assert second.tenant().predict(asked("ba")).predicted_cached_tokens == 20
    assert second.tenant().observe(reported(sent.ticket)).counted
    second.flush()
    assert {type(_decode(data)).__name__ for _, _, data, writer in second.log.entries if writer == second.name} == {
        "Observed",
        "Reported",
    }


def test_where_a_prompt_stands_is_told_once_and_known_by_all(both):
    first, second = both
    answer = first.tenant().align(asked("ab"))
    settle(both)
    given = wire.CoverIn(answer.ticket, bytes(32), bytes(32), [0, 16, 32], 32, 16)
    assert second.tenant().cover(given, second.elsewhere._put).taken
    settle(both)
    (there,), (here,) = second.covers, first.covers
    assert (there.space, there.blocks, there.salt) == (here.space, here.blocks, here.salt)
    assert here.told == given
    assert not first.tenant().cover(given, first.elsewhere._put).taken


def test_a_corpus_that_two_share_has_a_log_of_its_own_and_conversations_stay_their_tenants(both):
    first, second = both
    for node in both:
        node.service.share({"handbook": frozenset({"acme", "globex"})})
    one = first.tenant("acme").align(asked("ab", namespace=HANDBOOK, conversation=wire.TurnIn("c")))
    settle(both)
    assert second.tenant("globex").predict(asked("ba", namespace=HANDBOOK)).predicted_cached_tokens == 20
    assert second.tenant("globex").observe(reported(one.ticket)) is None
    assert second.tenant("acme").observe(reported(one.ticket)).counted
    turn = wire.TurnIn("c", one.turn, 3)
    stranger = second.tenant("globex").align(asked("ab", namespace=HANDBOOK, conversation=turn))
    assert not stranger.location_hints
    own = second.tenant("acme").align(asked("ab", namespace=HANDBOOK, conversation=turn))
    assert own.location_hints.keys() == {1, 2}


@pytest.mark.parametrize("members", [{"acme"}, {"acme", "globex", "initech"}])
def test_who_shares_a_corpus_with_others_than_before_begins_anew_and_reads_another_log(both, members):
    first, second = both
    for node in both:
        node.service.share({"handbook": frozenset({"acme", "globex"})})
    first.tenant("acme").align(asked("ab", namespace=HANDBOOK))
    settle(both)
    second.service.share({"handbook": frozenset(members)})
    settle(both)
    for node in both:
        assert node.tenant("acme").predict(asked("ab", namespace=HANDBOOK)).predicted_cached_tokens == 0
    first.tenant("acme").align(asked("cd", namespace=HANDBOOK))
    settle(both)
    assert second.tenant("acme").predict(asked("cd", namespace=HANDBOOK)).predicted_cached_tokens == 0


def test_tenants_that_are_no_more_are_forgotten_by_all(both):
    first, second = both
    for node in both:
        node.forgot = []
        node.service.forgetting.append(lambda *what, node=node: node.forgot.append(what))
    one = first.tenant("acme").align(asked("ab", conversation=wire.TurnIn("c")))
    second.tenant("globex").align(asked("ab"))
    settle(both)
    first.service.drop(["acme"])
    settle(both)
    assert second.tenant("acme").predict(asked("ab")).predicted_cached_tokens == 0
    assert not second.tenant("acme").ledgers.knows(Namespace(), wire.TurnIn("c", one.turn, 3))
    assert first.tenant("globex").predict(asked("ab")).predicted_cached_tokens == 20
    assert ("tenant", "acme", Namespace()) in second.forgot


@pytest.mark.parametrize("what", ["namespace", "head", "all"])
def test_what_one_forgets_all_forget_and_their_watchers_hear_of_it(both, what):
    first, second = both
    heard = []
    second.service.forgetting.append(lambda *given: heard.append(given))
    spaces = [wire.NamespaceIn(corpus="c", head=head) for head in ("", "h")]
    for space in spaces:
        first.tenant().align(asked("ab", namespace=space))
    settle(both)
    second.tenant().align(asked("cd", namespace=spaces[0]))
    second.flush()
    named = {"namespace": Namespace(corpus="c"), "head": Namespace(corpus="c", head="h"), "all": None}[what]
    first.tenant().forget(named)
    settle(both)
    left = [
        [n.tenant().predict(asked("ab", namespace=space)).predicted_cached_tokens for space in spaces] for n in both
    ]
    assert left == [[20 if what == "head" else 0, 0]] * 2
    assert heard == [("tenant", "t", Namespace(corpus="c", head="h" if what == "head" else ""))]


def test_what_follows_is_what_the_keys_and_shares_say(both):
    sink = both[0].sink
    both[0].service.share({"handbook": frozenset({"acme"})})
    shared = pool_name("corpus", "handbook", ["acme"])
    follows = {
        (pool, corpus): sink.follows(Space(pool, Namespace(corpus=corpus)))
        for pool in (
            "tenant:acme",
            "tenant:nobody",
            shared,
            pool_name("corpus", "handbook", ["x"]),
            "pilot",
            "corpus:x",
        )
        for corpus in ("", "handbook")
    }
    assert {key for key, wanted in follows.items() if wanted} == {
        ("tenant:acme", ""),
        ("tenant:acme", "handbook"),
        (shared, "handbook"),
    }


def test_names_of_pools_never_meet():
    names = ["", "a", "a:b", "tenant:a", "corpus:a:00"]
    members = [(), ("a",), ("a", "b"), ("ab",)]
    made = [pool_name("tenant", name) for name in names]
    made += [pool_name("corpus", name, some) for name in names for some in members]
    assert len(set(made)) == len(made)
    assert [pool_named(pool)[1] for pool in made] == names + [name for name in names for _ in members]
    assert pool_name("corpus", "a", ["x", "y"]) == pool_name("corpus", "a", {"y", "x"})


GOOD = [
    Ticketed("t", "", TICKET, "w-1", bytes(16), "e", 2),
    Reported("t", TICKET),
    Covered("t", TICKET, bytes(16), bytes(16), [0, 16], 16, 16, None),
    Turned("", "c", "answer", None, [b"k", "k", 7], [1, 2, 3], 4),
    TalkForgotten("", None),
]
BAD = [
    Ticketed("t" * 257, "", TICKET),
    Ticketed("t", "", "t" * 65),
    Ticketed("t", "", TICKET, blocks=65_537),
    Reported("t", "t" * 65),
    Covered("t", TICKET, bytes(16), bytes(16), [-1], 16, 16),
    Covered("t", TICKET, bytes(16), bytes(16), [0], 16, 0),
    Turned("", "c", "a", None, [b"k"], [0], 2),
    Turned("", "c", "a", None, [b"k"], [1, 2], 3),
    Turned("", "c", "a", None, [1.5], [1], 2),
    Turned("", "c", "a", None, ["k" * 65], [1], 2),
    Turned("", "c", "a", None, [2**63], [1], 2),
    TalkForgotten("", "n" * 257),
]


@pytest.mark.parametrize("record", GOOD, ids=lambda record: type(record).__name__)
def test_a_record_is_read_as_it_was_written_and_by_one_who_knows_less_of_it(record):
    assert sound(_decode(_encode(record))) == record
    later = [*json.loads(msgspec.json.encode(record)), "a field of a later version"]
    assert type(msgspec.json.decode(msgspec.json.encode(later), type=type(record))) is type(record)


@pytest.mark.parametrize("record", BAD, ids=range(len(BAD)))
def test_a_record_that_cannot_be_is_refused(record):
    with pytest.raises((StateError, msgspec.ValidationError)):
        sound(_decode(_encode(record)))


def test_what_is_not_understood_is_counted_and_what_stands_beside_it_is_taken_in(both):
    first, second = both
    first.tenant().align(asked("ab"))
    ((space, name, data, _), *_) = first.outbox
    records = [
        Arrived("x-1", _encode(["something new", 1]), own=False),
        Arrived("x-2", b"\xc1", own=False),
        Arrived("x-3", _encode(BAD[0]), own=False),
        Arrived(name, data, own=False),
    ]
    second.sink._done = lambda work, otherwise: run(work)
    assert second.sink.apply(space, records) == 3
    assert second.tenant().predict(asked("ab")).predicted_cached_tokens == 20


def run(work):
    """To its end; it waits for nothing but, if it has taken long, for its next turn."""
    while True:
        try:
            work.send(None)
        except StopIteration as ended:
            return ended.value
