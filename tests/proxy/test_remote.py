"""A proxy whose index is a service: what was sent is known to whoever asks an engine where its blocks are."""

from __future__ import annotations

import asyncio
import json

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
    rewriter = Rewriter(AsyncContextPilot(index), ProxySettings(upstreams=f"http://127.0.0.1:1{line}"))
    outcome = asyncio.run(rewriter.rewrite(Call("chat", json.dumps({"messages": messages}).encode(), "", Wishes())))
    sent = tuple(json.loads(outcome.body)["messages"])
    assert outcome.alignment.sent.messages == (sent if known else None)
