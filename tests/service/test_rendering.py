"""The user message over HTTP is the one that a pilot in the process makes."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contextpilot_rag import ContextPilot, expand
from contextpilot_rag.remote import wire
from contextpilot_rag.service.core import Service
from contextpilot_rag.service.settings import ServiceSettings
from tests.service.harness import serving
from tests.strategies import texts

LONG = [f"Paragraph {number} of the handbook, which is long enough to be worth a hint." for number in range(6)]


def blocks(some):
    return [wire.BlockIn(text=text) for text in some]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(texts, min_size=1, max_size=5, unique=True), min_size=1, max_size=4), st.text(max_size=30))
def test_it_is_the_same_as_a_pilots(requests, question):
    tenant, pilot = Service(ServiceSettings()).tenant(""), ContextPilot()
    for some in requests:
        sent = tenant.align(wire.AlignIn(blocks(some), question=question))
        assert sent.content == pilot.align(some, question).user_message


@pytest.mark.parametrize("hinted", [False, True])
def test_a_conversation_is_the_same_as_a_pilots_and_loses_nothing(hinted):
    tenant, pilot = Service(ServiceSettings()).tenant(""), ContextPilot(order_hint=hinted)
    tenant.align(wire.AlignIn(blocks([LONG[1], LONG[0]])))
    pilot.align([LONG[1], LONG[0]])  # so that the first turn's order changes
    talk = pilot.conversation()
    after, label, messages = None, 1, []
    for some in ([0, 1, 2], [2, 3, 0], [4, 1, 5]):
        turn = wire.TurnIn("c", after, label)
        asked = {"conversation": turn, "question": "Why?", "order_hint": hinted}
        sent = tenant.align(wire.AlignIn(blocks(LONG[one] for one in some), **asked))
        assert sent.content == talk.align([LONG[one] for one in some], "Why?").user_message
        talk.answer("So.")
        messages += [{"role": "user", "content": sent.content}, {"role": "assistant", "content": "So."}]
        after, label = sent.turn, max(label, *(one + 1 for one in sent.labels))
    assert ("Order of relevance" in messages[0]["content"]) is hinted
    assert "(given above)" in messages[2]["content"]
    whole = [message["content"] for message in expand(messages)]
    assert all(LONG[one] in whole[4] for one in (4, 1, 5))


def test_sent_again_it_is_made_again_and_texts_are_not_kept():
    tenant = Service(ServiceSettings()).tenant("")
    request = wire.AlignIn(blocks(LONG[:2]), question="Why?", ticket="0123456789abcdef")
    first = tenant.align(request)
    assert first.content is not None
    assert tenant.align(request) == first
    kept = tenant.tickets.get("0123456789abcdef")
    assert kept is not None
    assert kept.answer is not None
    assert kept.answer.content is None


def test_over_http_a_block_without_its_text_is_named():
    with serving() as served:
        body = {"blocks": [{"text": LONG[0]}, {"id": "a", "tokens": 5}], "question": "Why?"}
        for path in ("/v1/align", "/v1/predict"):
            refused = served.ask("POST", path, body)
            assert refused.status == 422
            assert b"blocks[1]: give its text" in refused.body
        body["blocks"].pop()
        assert served.ask("POST", "/v1/align", body).json()["content"].endswith("</documents>\n\nWhy?")
