"""The order hint over the wire: the wordings that a pilot has, and none of a text that nobody gave or that is kept."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contextpilot_rag import ContextPilot
from contextpilot_rag.remote import wire
from contextpilot_rag.remote.wire_plan import PlanIn, PlanOut, PlanRequestIn
from contextpilot_rag.service.core import Service
from contextpilot_rag.service.plan_work import Batch
from contextpilot_rag.service.problems import Rejected, Unusable
from contextpilot_rag.service.settings import ServiceSettings
from contextpilot_rag.service.tickets import mark_of
from tests.strategies import texts

WORDINGS = ["order", "best", "title", "sentence", True, False]
SLICES, STEPS = "Slices count from zero. They are copies.", "A step may be negative. It is a stride."


def tenant():
    return Service(ServiceSettings()).tenant("")


def by_text(*some):
    return [wire.BlockIn(text=text) for text in some]


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.lists(texts, min_size=1, max_size=4, unique=True), min_size=2, max_size=4),
    st.text(max_size=20),
    st.sampled_from(WORDINGS),
)
def test_messages_and_hints_are_those_of_a_pilot(requests, question, wording):
    served, pilot = tenant(), ContextPilot(min_gain=0)
    for some in requests:
        request = wire.AlignIn(by_text(*some), budget=wire.BudgetIn(min_gain=0), question=question, order_hint=wording)
        sent, own = served.align(request), pilot.align(some, question, order_hint=wording)
        assert (sent.order_hint, sent.content) == (own.order_hint, own.user_message)


@pytest.mark.parametrize(
    ("wording", "hint"),
    [
        (True, "Order of relevance, best first: [2] > [1]"),
        ("best", "Most relevant: [2]"),
        ("title", f'Most relevant: [2], which begins: "{STEPS}"'),
        ("sentence", 'Most relevant: [2], which says: "A step may be negative."'),
        (False, None),
    ],
)
def test_a_request_sent_again_gets_its_hint_again_and_a_ticket_keeps_no_words(wording, hint):
    served = tenant()
    served.align(wire.AlignIn(by_text(SLICES, STEPS)))
    request = wire.AlignIn(by_text(STEPS, SLICES), ticket="0123456789abcdef", order_hint=wording)
    assert served.align(request).order_hint == served.align(request).order_hint == hint
    kept = served.tickets.get("0123456789abcdef")
    assert kept is not None
    assert kept.answer is not None
    assert "step" not in msgspec.json.encode(kept.answer).decode()


def test_words_of_blocks_are_told_only_where_the_texts_are_there():
    ids = [wire.BlockIn(id=name, tokens=90) for name in "ab"]
    for wording in ("title", "sentence"):
        with pytest.raises(Unusable, match=r"blocks\[0\]: give its text, or leave out order_hint"):
            tenant().align(wire.AlignIn(ids, order_hint=wording))
    served = tenant()
    served.align(wire.AlignIn(ids))
    assert served.align(wire.AlignIn(ids[::-1], order_hint="best")).order_hint == "Most relevant: [2]"


def test_whoever_does_not_ask_for_a_hint_gets_none():
    served = tenant()
    served.align(wire.AlignIn(by_text(SLICES, STEPS)))
    answer = served.align(wire.AlignIn(by_text(STEPS, SLICES), question="Why?"))
    assert (answer.order, answer.order_hint) == ([1, 0], None)
    assert answer.content == f"<documents>\n[1] {SLICES}\n\n[2] {STEPS}\n</documents>\n\nWhy?"


def test_clients_that_know_no_wordings_say_what_they_said():
    plain = wire.AlignIn([wire.BlockIn(id="a", tokens=9)])
    assert msgspec.json.encode(plain) == b'{"blocks":[{"id":"a","tokens":9}]}'
    assert mark_of(plain) == mark_of(msgspec.json.decode(b'{"blocks":[{"id":"a","tokens":9}]}', type=wire.AlignIn))


def planned(**options):
    requests = [PlanRequestIn([wire.BlockIn(id=name, tokens=90) for name in names]) for names in ("ab", "ba")]
    given = msgspec.json.encode({"requests": requests, **options})
    return msgspec.json.decode(Batch.read(given, ServiceSettings()).result(float), type=PlanOut).alignments


def test_plans_have_the_wordings_that_need_no_texts():
    assert [one.order_hint for one in planned(order_hint="best")] == [None, "Most relevant: [2]"]
    assert [one.order_hint for one in planned(order_hint=False)] == [None, None]
    assert [one.order_hint for one in planned()] == [None, None]
    for wording in (True, "order"):
        assert planned(order_hint=wording)[1].order_hint == "Order of relevance, best first: [2] > [1]"
    with pytest.raises(Rejected, match="order_hint"):
        planned(order_hint="title")
    assert msgspec.json.encode(PlanIn([])) == b'{"requests":[]}'
