"""Who waits for what other proxies decided just now, and who does not."""

from __future__ import annotations

import asyncio
import json
from random import Random

import pytest

from contextpilot_rag import AsyncContextPilot
from contextpilot_rag.proxy.decisions import Others
from contextpilot_rag.proxy.rewriter import Rewriter
from contextpilot_rag.proxy.rewriting import Call
from contextpilot_rag.proxy.settings import ProxySettings

from .replicated import Node

TEXTS = {name: f"{name} " + f"what stands in {name}. " * 20 for name in "abcd"}
EVERYTHING = {"random": Random(0), "everything": True}


class Waited(Node):
    """A node that has joined, and what it was asked to wait for; meanwhile what others told arrives."""

    joined = True
    waits = 0
    other = None
    broken = False

    def carry(self, pool, sink):
        super().carry(pool, sink)
        self.loop = asyncio.get_running_loop()

    def catch_up(self, seconds):
        self.waits += 1
        assert seconds <= 0.02
        if self.broken:
            raise RuntimeError("no threads")
        if self.other is not None:
            self.other.flush(**EVERYTHING)
            asyncio.run_coroutine_threadsafe(self.read(100, doubled=False), self.loop).result(10)
        return True


def said(names, *rest, explicit=False):
    inside = "".join(f"<document>{TEXTS[name]}</document>" for name in names)
    first = {"role": "user", "content": f"<documents>{inside}</documents>\n\nWell?"}
    if explicit:
        first = {"role": "user", "content": "Well?", "contextpilot": {"blocks": [TEXTS[name] for name in names]}}
    messages = [first]
    for place, text in enumerate(rest):
        messages.append({"role": "user" if place % 2 else "assistant", "content": text})
    return Call("chat", json.dumps({"model": "m", "messages": messages}).encode(), "t")


async def two(upstreams="http://127.0.0.1:1"):
    log = []
    nodes = [Waited(log, "one"), Waited(log, "two")]
    nodes[0].other, nodes[1].other = nodes[1], nodes[0]
    rewriters = []
    for node in nodes:
        pilot = AsyncContextPilot(salt_secret="s", min_gain=0.0)
        settings = ProxySettings(upstreams=upstreams, salt_secret="s")
        rewriters.append(Rewriter(pilot, settings, others=Others(node, secret="s")))
        await rewriters[-1].start()
    return nodes, rewriters


@pytest.mark.parametrize("explicit", [False, True])
async def test_only_a_conversation_that_goes_on_and_is_not_known_waits_and_once(explicit):
    nodes, (one, other) = await two()
    await one.rewrite(said("dcba", explicit=explicit))
    await one.rewrite(said("abcd", explicit=explicit))
    going_on = said("abcd", "Yes.", "And then?", explicit=explicit)
    kept = (await one.rewrite(going_on)).body
    assert nodes[0].waits == 0, "what it decided itself it knows"
    outcome = await other.rewrite(going_on)
    assert (nodes[1].waits, outcome.body) == (1, kept)
    assert outcome.report.reason == "as when it was first sent"
    await other.rewrite(said("abc", explicit=explicit))
    await other.rewrite(
        Call("chat", json.dumps({"model": "m", "messages": [{"role": "user", "content": "Hi"}]}).encode())
    )
    assert nodes[1].waits == 1, "what is new has nothing to wait for"


async def test_new_blocks_of_a_conversation_that_goes_on_have_nothing_to_wait_for():
    nodes, (one, _) = await two()
    blocks = {"blocks": [TEXTS[name] for name in "ab"]}
    messages = [{"role": role, "content": "Well?"} for role in ("user", "assistant", "user")]
    await one.rewrite(Call("chat", json.dumps({"model": "m", "messages": messages, "contextpilot": blocks}).encode()))
    assert nodes[0].waits == 0


async def test_what_nobody_knows_is_waited_for_no_longer_than_may_be_and_goes_as_it_is():
    nodes, (one, _) = await two()
    nodes[0].other = None
    outcome = await one.rewrite(said("abcd", "Yes.", "And then?"))
    assert "nothing is remembered" in outcome.report.reason
    assert 1 <= nodes[0].waits <= 5


@pytest.mark.parametrize("upstreams", ["http://127.0.0.1:1", "http://127.0.0.1:1, http://127.0.0.1:2"])
async def test_where_the_log_is_away_or_waiting_fails_a_request_goes_on(upstreams):
    nodes, (one, other) = await two(upstreams)
    nodes[0].joined = False
    assert "nothing is remembered" in (await one.rewrite(said("abcd", "Yes.", "And then?"))).report.reason
    assert nodes[0].waits == 0
    nodes[1].broken = True
    assert "nothing is remembered" in (await other.rewrite(said("abcd", "Yes.", "And then?"))).report.reason
    assert nodes[1].waits == 1


async def test_a_conversation_without_blocks_goes_where_another_proxy_sent_it():
    nodes, (one, other) = await two("http://127.0.0.1:1 name=a, http://127.0.0.1:2 name=b")
    hello = {"role": "user", "content": "Hello"}
    first = await one.rewrite(Call("chat", json.dumps({"model": "m", "messages": [hello]}).encode(), "t"))
    await one.answered(first, None, "b")
    more = [hello, {"role": "assistant", "content": "Hi"}, {"role": "user", "content": "And?"}]
    going_on = Call("chat", json.dumps({"model": "m", "messages": more}).encode(), "t")
    assert (await other.rewrite(going_on)).engine == "b"
    assert (await other.rewrite(Call("chat", going_on.raw, "another"))).engine is None
    nodes[0].flush(**EVERYTHING)


async def test_an_engine_that_others_know_and_this_one_does_not_is_none():
    _, (one, _) = await two("http://127.0.0.1:1 name=a, http://127.0.0.1:2 name=b")
    _, (other, _) = await two("http://127.0.0.1:1 name=c, http://127.0.0.1:2 name=d")
    hello = Call("chat", json.dumps({"model": "m", "messages": [{"role": "user", "content": "Hello"}]}).encode(), "t")
    first = await one.rewrite(hello)
    await other.answered(first, None, "b")
    assert (await other.rewrite(hello)).engine is None


async def test_of_two_that_decide_at_once_the_first_in_the_log_stays_for_both_and_no_block_is_lost():
    nodes, (one, other) = await two()
    for rewriter, names in ((one, "dcba"), (other, "badc")):
        await rewriter.rewrite(said(names))
    sent = [(await rewriter.rewrite(said("abcd"))).body for rewriter in (one, other)]
    assert sent[0] != sent[1]
    for node in reversed(nodes):  # the second is first in the log
        node.flush(**EVERYTHING)
    for node in nodes:
        await node.read(100, doubled=True)
    turns = [(await rewriter.rewrite(said("abcd", "Yes.", "And then?"))).body for rewriter in (one, other)]
    assert turns[0] == turns[1]
    first = [json.loads(body)["messages"][0] for body in (turns[0], sent[1])]
    assert first[0] == first[1]
    assert all(text in first[0]["content"] for text in TEXTS.values())
    assert len(first[0]["content"]) == len(json.loads(sent[0])["messages"][0]["content"])


async def test_keys_in_the_log_cannot_be_found_by_trying():
    """Whoever does not have the secret cannot tell which conversation a key is of."""
    _, (one, _) = await two()
    pilot = AsyncContextPilot(salt_secret="s")
    node = Waited([], "n")
    stranger = Rewriter(pilot, ProxySettings(upstreams="http://127.0.0.1:1"), others=Others(node, secret="guess"))
    hello = said("abcd")
    assert (await one.rewrite(hello)).chain != (await stranger.rewrite(hello)).chain
