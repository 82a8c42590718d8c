"""A proxy whose index is a service: what was sent is known to whoever asks an engine where its blocks are."""

from __future__ import annotations

import asyncio
import json
from dataclasses import fields

import pytest

from contextpilot_rag import AsyncContextPilot
from contextpilot_rag.proxy.rewriter import Rewriter
from contextpilot_rag.proxy.rewriting import Call
from contextpilot_rag.proxy.settings import ProxySettings
from contextpilot_rag.proxy.words import Wishes

NOWHERE = "http://127.0.0.1:9"


@pytest.mark.parametrize(
    ("index", "line", "known"), [(NOWHERE, "", True), (None, "", False), (None, " events=tcp://127.0.0.1:9", True)]
)
def test_messages_are_kept_for_those_who_follow_the_engine(index, line, known):
    items = "\n".join(f"<document>{name} says this. </document>" for name in "ABC")
    messages = [{"role": "user", "content": f"<documents>\n{items}\n</documents>\n\nWhat?"}]
    settings = ProxySettings(upstreams=f"http://127.0.0.1:1{line}")
    pilot = AsyncContextPilot(index, engines=None if line else settings.engines)
    try:
        raw = json.dumps({"messages": messages}).encode()
        outcome = asyncio.run(Rewriter(pilot, settings).rewrite(Call("chat", raw, "", Wishes())))
    finally:
        pilot.blocking.close()
    sent = tuple(json.loads(outcome.body)["messages"])
    assert outcome.alignment.sent.messages == (sent if known else None)


def test_what_waits_for_an_answer_holds_no_texts():
    blocks = [f"{name} says this. " * 30 for name in "ABC"]
    wrapped = "<documents>\n" + "\n".join(f"<document>{text}</document>" for text in blocks) + "\n</documents>\n\nWhat?"
    for messages, field in (
        ([{"role": "user", "content": wrapped}], {}),
        ([{"role": "user", "content": "What?"}], {"contextpilot": {"blocks": blocks}}),
    ):
        raw = json.dumps({"messages": messages, **field}).encode()
        rewriter = Rewriter(AsyncContextPilot(), ProxySettings(upstreams="http://127.0.0.1:1"))
        alignment = asyncio.run(rewriter.rewrite(Call("chat", raw))).alignment
        assert not any("says this" in str(getattr(alignment, one.name)) for one in fields(alignment))
        assert len(alignment.request.blocks) == 3
