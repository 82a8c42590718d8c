"""Whatever is said: nothing is lost, nothing else changes, what was sent stays; each tenant is as if it were alone."""

from __future__ import annotations

import asyncio
import itertools
import json
import re
from random import Random

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from contextpilot_rag import AsyncContextPilot
from contextpilot_rag.dedup.units import normal
from contextpilot_rag.index.local import LocalIndex
from contextpilot_rag.proxy.finding.find import find
from contextpilot_rag.proxy.formats.table import FORMATS
from contextpilot_rag.proxy.problems import Refused
from contextpilot_rag.proxy.restoring import expand_body
from contextpilot_rag.proxy.rewriter import Rewriter
from contextpilot_rag.proxy.rewriting import Call
from contextpilot_rag.proxy.settings import ProxySettings
from tests.proxy.talking import Conversation, Talker

SECRET = "a secret that is long enough for anybody"
HINT = re.compile(r"\n\nOrder of relevance, best first: [^\n]*")


class Broken(LocalIndex):
    def align(self, request):
        raise RuntimeError("broken")


class World:
    """Conversations of some tenants through one proxy.

    Args:
        seed: of all that is chosen.
    """

    def __init__(self, seed):
        random = self.random = Random(seed)
        self.broken = random.random() < 0.1
        self.dedup = random.choice(["off", "blocks", "blocks+chunks", "blocks+chunks"])
        self.normalise = random.random() < 0.7
        self.order = random.choice(["balanced", "throughput", "throughput", "retrieved"])
        self.lists = random.choice(["", "numbered", "headed", "numbered,headed"])
        self.labels = random.choice(["keep", "renumber"])
        self.most = random.choice([3, 10_000, 10_000])
        self.tenants = random.choice([["", "a", "b"], [""], ["a", "b"]])
        self.cloud = random.choice(["", "", "openai", "anthropic"])
        self.order_hint = random.choice([False, "order", "order"])
        apis = ["messages"] if self.cloud == "anthropic" else ["chat", "chat", "responses", "messages", "completions"]
        main, talker = random.choice(apis), Talker(random)
        gives = ["", "", "", "", "message", "body", "named"]
        self.conversations = [
            Conversation(talker, random.choice([main, main, *apis]), random.choice(gives))
            for _ in range(random.randint(3, 6))
        ]

    def rewriter(self):
        return self.made(Broken() if self.broken else None)

    def made(self, index=None, **more):
        """A rewriter as this world has them."""
        pilot = AsyncContextPilot(
            index,
            dedup=self.dedup,
            normalise=self.normalise,
            order=self.order,
            order_hint=self.order_hint,
            min_gain=0.0,
            salt_secret=SECRET,
        )
        chosen = {"lists": self.lists, "labels": self.labels, "max_memory": self.most, "salt_secret": SECRET}
        return Rewriter(pilot, ProxySettings(upstreams="http://127.0.0.1:1", **chosen), **more)

    @property
    def known(self):
        return frozenset(filter(None, self.lists.split(",")))


async def talk(world, turns):
    """Go through the conversations, and check each request."""
    rewriter, calls, before = world.rewriter(), [], {}
    for _ in range(turns):
        one = world.random.choice(world.conversations)
        one.go_on()
        raw = json.dumps(one.body(), **one.how).encode()
        for tenant in world.random.sample(world.tenants, world.random.randint(1, len(world.tenants))):
            call = Call(one.api, raw, tenant, cloud=world.cloud)
            outcome = await asked(rewriter, call)
            calls.append((call, outcome if isinstance(outcome, str) else outcome.body))
            if isinstance(outcome, str):
                assert one.gives
                continue
            assert "the proxy failed" not in outcome.report.reason
            sent = json.loads(outcome.body)
            assert bool(sent.pop("cache_salt", None)) == bool(tenant and not world.cloud)
            if b'"contextpilot"' in raw:
                assert_given(one.api, json.loads(raw), sent, world)
            else:
                assert_kept(one.api, json.loads(raw), sent, world, moved=outcome.report.changed)
                assert sent != json.loads(raw) or (tenant and not world.cloud) or outcome.body == raw
            if one.api != "completions" and one.gives != "body" and world.most > 3:
                now = [plainly(message) for message in all_of(whole(one.api, json.loads(raw), sent, world.cloud))]
                earlier = before.get((id(one), tenant), [])
                assert now[: len(earlier)] == earlier
                before[id(one), tenant] = now
    if world.most > 3:
        for tenant in world.tenants:
            alone = world.rewriter()
            for call, sent in calls:
                if call.tenant == tenant:
                    again = await asked(alone, call)
                    assert (again if isinstance(again, str) else again.body) == sent


async def asked(rewriter, call):
    """What becomes of a request, or why it is refused."""
    try:
        return await rewriter.rewrite(call)
    except Refused as refused:
        return str(refused)


def assert_kept(api, body, sent, world, *, moved):
    """A request without blocks of its own is the same but for the order of the first group, and all is restored."""
    asked = FORMATS[api].read(body)
    texts = {text.path: text for message in asked.messages for text in message.texts}
    assert set(changes(body, whole(api, body, sent, world.cloud))) <= set(texts)
    restored = sent if world.dedup == "off" else expand_body(api, sent, world.known)
    restored = whole(api, body, restored, world.cloud)
    first = True
    for path, text in texts.items():
        full = at(restored, path)
        groups = find(text, world.known)
        if text.role == "assistant":
            assert full == text.text
        elif groups and first:
            first = False
            assert any(is_arranged(text.text, groups[0], one) for one in {full, *(unhinted(full) if moved else ())})
        else:
            assert normal(full) == normal(text.text)
        if is_json(text.text) and text.role == "tool" and not moved:
            assert is_json(at(whole(api, body, sent, world.cloud), path))


def assert_given(api, body, sent, world):
    """A request with blocks of its own has all of them, and all else."""
    given = list(body.pop("contextpilot", {}).get("blocks", []))
    asked = FORMATS[api].read(body)
    for message in asked.messages:
        if isinstance(message.value, dict) and "contextpilot" in message.value:
            given += message.value["contextpilot"]["blocks"]
    assert '"contextpilot"' not in json.dumps(sent)
    read = FORMATS[api].read(expand_body(api, sent, world.known))
    full = "\0\0".join(normal(text.text) for message in read.messages for text in message.texts)
    for block in given:
        assert normal(block if isinstance(block, str) else block["text"]).strip() in full
    as_sent = {text.path: text.text for message in FORMATS[api].read(sent).messages for text in message.texts}
    for text in (text for message in asked.messages for text in message.texts):
        assert normal(text.text).strip() in full
        assert text.role != "tool" or not is_json(text.text) or is_json(as_sent[text.path])


def unhinted(full):
    """A text without an order hint, with and without the blank line that may have been put behind it."""
    found = HINT.search(full)
    if found is not None:
        before, after = full[: found.start()], full[found.end() :]
        yield before + after
        yield before + after.removeprefix("\n\n")


def is_arranged(text, group, got):
    """Whether a text is the same with a group's items in any order; labels may have stayed in their places."""
    items = [text[slice(*item.span)] for item in group.items]
    if sorted(normal(got)) != sorted(normal(text)):
        return False
    edges = [0, *itertools.chain.from_iterable(item.span for item in group.items), len(text)]
    gaps = [text[begin:end] for begin, end in zip(edges[::2], edges[1::2], strict=True)]

    def forms(item, place):
        yield items[item]
        span, label = group.items[item].label_span, group.items[place].label
        if span is not None:
            begin = span[0] - group.items[item].span[0]
            yield items[item][:begin] + label + items[item][begin + span[1] - span[0] :]

    def goes_on(place, start, left):
        if not got.startswith(gaps[place], start):
            return False
        start += len(gaps[place])
        if place == len(items):
            return start == len(got)
        return any(
            got.startswith(form, start) and goes_on(place + 1, start + len(form), left - {item})
            for item in left
            for form in set(forms(item, place))
        )

    # Where parts of later groups were restored in another form, at least all words are there.
    return goes_on(0, 0, frozenset(range(len(items)))) or words(got) == words(text)


def words(text):
    return sorted(re.sub(r'index="\d+"', 'index=""', normal(text)).split())


def whole(api, body, sent, cloud):
    """What a cloud was told taken away again: its texts in one piece, as the client has them."""
    sent = json.loads(json.dumps(sent))
    if cloud == "openai":
        sent.pop("prompt_cache_key", None)
    if cloud != "anthropic" or api != "messages":
        return sent
    assert marks(sent) <= max(4, marks(body))
    if "system" in sent:
        sent["system"] = pieced(body["system"], sent["system"])
    for before, message in zip(body["messages"], sent["messages"], strict=True):
        message["content"] = pieced(before["content"], message["content"])
    return sent


def pieced(before, sent):
    if isinstance(sent, str) or (isinstance(before, str) and sent is None):
        return sent
    if isinstance(before, str) or len(before) < len(sent):
        assert all(part["type"] == "text" and part["text"].strip() for part in sent)
        text = "".join(part["text"] for part in sent)
        return text if isinstance(before, str) else [{**before[0], "text": text}]
    return [
        {name: value for name, value in part.items() if name != "cache_control" or name in old}
        for old, part in zip(before, sent, strict=True)
    ]


def marks(value):
    if isinstance(value, dict):
        return ("cache_control" in value) + sum(map(marks, value.values()))
    return sum(map(marks, value)) if isinstance(value, list) else 0


def all_of(body):
    """System prompt and messages."""
    messages = body.get("messages", body.get("input"))
    return [body.get("system"), body.get("instructions"), *messages]


def plainly(message):
    """A message without marks; one that is a single text as that text."""
    if not isinstance(message, dict) or not isinstance(message.get("content"), list):
        return message
    parts = [{name: part[name] for name in part if name != "cache_control"} for part in message["content"]]
    alone = len(parts) == 1 and parts[0].get("type") == "text"
    return {**message, "content": parts[0]["text"] if alone else parts}


def changes(one, other, path=()):
    """Paths to what differs."""
    if isinstance(one, dict) and isinstance(other, dict) and list(one) == list(other):
        for name in one:
            yield from changes(one[name], other[name], (*path, name))
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for place, (inner, outer) in enumerate(zip(one, other, strict=True)):
            yield from changes(inner, outer, (*path, place))
    elif one != other:
        yield path


def at(body, path):
    for step in path:
        body = body[step]
    return body


def is_json(text):
    try:
        return isinstance(json.loads(text), dict | list)
    except ValueError:
        return False


@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 2**32))
def test_whatever_is_said_nothing_is_lost_and_what_was_sent_stays(seed):
    asyncio.run(talk(World(seed), 14))
