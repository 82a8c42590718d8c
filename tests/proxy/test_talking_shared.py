"""Conversations whose turns go through any of several proxies, whatever the log does with what these decide."""

from __future__ import annotations

import asyncio
import json

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from contextpilot_rag.proxy.decisions import Others
from contextpilot_rag.proxy.rewriting import Call

from .replicated import Node
from .talking import Conversation, Talker
from .test_talking import SECRET, World, all_of, asked, assert_given, assert_kept, plainly, whole


class Shared(World):
    """A world of several proxies; each has an index of its own, which knows nothing of the others'."""

    def __init__(self, seed, count):
        super().__init__(seed)
        self.order, self.tenants = "throughput", self.tenants[:2]
        talker = Talker(self.random)  # of one opening, so that orders change
        talker.plain = talker.plain[:6]
        more = [
            Conversation(talker, self.conversations[0].api, self.random.choice(["", "", "message"])) for _ in "12345"
        ]
        for one in more:
            one.system = "Be brief."
        self.conversations += more
        self.log = []
        self.nodes = [Node(self.log, f"n{number}") for number in range(count)]
        self.rewriters = [self.one(node) for node in self.nodes]

    def one(self, node):
        return self.made(others=Others(node, secret=SECRET))

    async def deliver(self, *, everything=False):
        """Each log brings some of what was told, or all: late, doubled, and in whatever order one's own were sent."""
        for node in self.nodes:
            node.flush(self.random, everything=everything)
        for node in self.nodes:
            many = len(self.log) if everything else self.random.randint(0, 3)
            await node.read(many, doubled=self.random.random() < 0.3)


async def talk(world, turns, *, settled):
    """Go through the conversations, and check each request; what was sent stays, where all was told in between."""
    for rewriter in world.rewriters:
        await rewriter.start()
    before = {}
    for _ in range(turns):
        one = world.random.choice(world.conversations)
        one.go_on()
        raw = json.dumps(one.body(), **one.how).encode()
        call = Call(one.api, raw, world.random.choice(world.tenants), cloud=world.cloud)
        outcome = await asked(world.random.choice(world.rewriters), call)
        await world.deliver(everything=settled)
        if isinstance(outcome, str):
            assert one.gives
            continue
        assert "the proxy failed" not in outcome.report.reason
        sent = json.loads(outcome.body)
        sent.pop("cache_salt", None)
        if b'"contextpilot"' in raw:
            assert_given(one.api, json.loads(raw), sent, world)
        else:
            assert_kept(one.api, json.loads(raw), sent, world, moved=outcome.report.changed)
        if settled and one.api != "completions" and one.gives in ("", "message") and world.most > 3:
            now = [plainly(message) for message in all_of(whole(one.api, json.loads(raw), sent, world.cloud))]
            earlier = before.get((id(one), call.tenant), [])
            assert now[: len(earlier)] == earlier
            before[id(one), call.tenant] = now
    await world.deliver(everything=True)
    await world.deliver(everything=True)
    if world.most > 3:
        first, *others = (node.orders() for node in world.nodes)
        assert all(one == first for one in others)


@settings(max_examples=25, suppress_health_check=list(HealthCheck))
@given(st.integers(0, 10**9), st.integers(2, 3))
def test_what_comes_late_twice_or_in_another_order_loses_and_doubles_no_block(seed, count):
    asyncio.run(talk(Shared(seed, count), 25, settled=False))


@settings(max_examples=25, suppress_health_check=list(HealthCheck))
@given(st.integers(0, 10**9), st.integers(2, 3))
def test_what_was_sent_stays_whichever_proxy_the_next_turn_comes_to(seed, count):
    asyncio.run(talk(Shared(seed, count), 25, settled=True))
