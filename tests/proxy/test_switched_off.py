"""Requests that switch the proxy off, and whose blocks nothing but their field holds."""

from __future__ import annotations

import asyncio
import json

import pytest

from contextpilot_rag import AsyncContextPilot
from contextpilot_rag.proxy.problems import Unusable
from contextpilot_rag.proxy.rewriter import Rewriter
from contextpilot_rag.proxy.rewriting import Call
from contextpilot_rag.proxy.settings import ProxySettings
from contextpilot_rag.proxy.words import Wishes

TEXTS = {name: f"{name} says this, word for word, and at some length. " * 8 for name in "ABCD"}
OFF = Wishes(off=True)


class Asked:
    def __init__(self):
        self.rewriter = Rewriter(
            AsyncContextPilot(dedup="blocks+chunks", min_gain=0.0), ProxySettings(upstreams="http://127.0.0.1:1")
        )

    def __call__(self, body, wishes=Wishes()):  # noqa: B008
        outcome = asyncio.run(self.rewriter.rewrite(Call("chat", json.dumps(body).encode(), "", wishes)))
        return json.loads(outcome.body), outcome.report


def field(names, **more):
    return {"blocks": [{"id": name, "text": TEXTS[name]} for name in names], **more}


def asking(names, **more):
    return {"model": "m", "messages": [{"role": "user", "content": "What?"}], "contextpilot": field(names, **more)}


def order_in(text):
    return "".join(sorted((name for name in TEXTS if TEXTS[name].strip() in text), key=text.index))


@pytest.mark.parametrize("more", [{}, {"order": "throughput"}])
def test_blocks_of_a_field_stand_as_they_were_given(more):
    asked = Asked()
    asked(asking("ABC"))
    sent, report = asked(asking("DBCA", **more), OFF)
    assert "contextpilot" not in sent
    assert order_in(sent["messages"][0]["content"]) == "DBCA"
    assert (report.changed, report.blocks, report.reason) == (False, 4, "switched off by the request")


def test_of_single_messages_too_and_in_full():
    messages = [
        {"role": "user", "content": "What?", "contextpilot": field("AB")},
        {"role": "assistant", "content": "This."},
        {"role": "user", "content": "And?", "contextpilot": field("BC")},
    ]
    sent, report = Asked()({"model": "m", "messages": messages}, OFF)
    assert [order_in(message["content"]) for message in sent["messages"]] == ["AB", "", "BC"]
    assert report.replaced == 0


def test_what_was_decided_before_stays():
    asked = Asked()
    asked(asking("ABC"))
    sent, report = asked(asking("DBCA"))
    assert report.changed
    assert order_in(asked(asking("DBCA"), OFF)[0]["messages"][0]["content"]) == "DBCA"
    assert asked(asking("DBCA"))[0] == sent


def test_a_field_that_cannot_be_is_refused_all_the_same():
    with pytest.raises(Unusable):
        Asked()({**asking("A"), "contextpilot": {"blcks": []}}, OFF)
