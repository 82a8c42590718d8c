"""Proxies that share a log server: a conversation may come to another one with each turn."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from contextpilot_rag.errors import SettingsError
from contextpilot_rag.proxy.beside import assemble_beside
from contextpilot_rag.proxy.life import assemble
from contextpilot_rag.proxy.settings import ProxySettings
from contextpilot_rag.service.settings import ServiceSettings
from contextpilot_rag.settings import Settings
from contextpilot_rag.testing import FakeEngine
from tests.replicas.conftest import log_server as log_server  # noqa: PLC0414
from tests.service.harness import SECONDS
from tests.until import until

from .running import living, process

SECRET = "a secret of all proxies"
TEXTS = {name: f"{name} " + f"what stands in {name}. " * 40 for name in "abcdefgh"}


def documents(names):
    return "<documents>" + "".join(f"<document>{TEXTS[name]}</document>" for name in names) + "</documents>\n\nWell?"


def forwarding(log, *engines):
    """A proxy with an index of its own, which follows the log."""
    chosen = Settings(index=log.url)
    upstreams = ", ".join(engine.base_url for engine in engines)
    return living(chosen=chosen, upstreams=upstreams, salt_secret=SECRET)


def serving(log, *engines):
    """A service that forwards, too, and follows the log."""
    upstreams = ", ".join(engine.base_url for engine in engines)
    settings = ServiceSettings(port=0, upstreams=upstreams, replicate=log.url, salt_secret=SECRET)
    return living(assemble_beside(settings, ProxySettings(upstreams=upstreams), Settings()))


both_ways = pytest.mark.parametrize("make", [forwarding, serving])


def parts_of(proxy):
    return getattr(proxy.life, "proxy", proxy.life).parts


def carrier_of(proxy):
    return parts_of(proxy).rewriter.decisions._shared._replica


def memory_of(proxy):
    return parts_of(proxy).rewriter.decisions._memory


def agree(*proxies):
    """Wait until each knows what the others decided: an engine that answers in no time outruns the log."""
    for proxy in proxies:
        parts = parts_of(proxy)
        loop = parts.rewriter.decisions._shared._sink._loop._loop
        asyncio.run_coroutine_threadsafe(parts.app.drained(), loop).result(SECONDS)
    until(lambda: all(set(memory_of(proxy)._kept) == set(memory_of(proxies[0])._kept) for proxy in proxies))


class Talk:
    """A conversation whose turns go to any proxy.

    Args:
        names: the documents that it begins with.
        question: makes it one of its own.
        engine: of it, where there is one alone.
    """

    def __init__(self, names, question, engine=None):
        self.messages = [{"role": "user", "content": documents(names) + question}]
        self.engine = engine
        self.sent = []

    def turn(self, proxy):
        """Ask once more; the header that says why, and the tokens that were found in the cache."""
        reply = proxy.ask("POST", "/v1/chat/completions", {"model": "m", "messages": self.messages})
        assert reply.status == 200, reply.body
        said = reply.json()
        self.messages += [
            said["choices"][0]["message"],
            {"role": "user", "content": f"And then, {len(self.messages)}?"},
        ]
        headers = {name.lower(): value for name, value in reply.headers.items()}
        if self.engine is not None:
            now = list(self.engine.requests[-1].messages)
            assert now[: len(self.sent)] == self.sent, "what was sent before has changed"
            self.sent = now
        return headers["x-contextpilot-reason"], said["usage"]["prompt_tokens_details"]["cached_tokens"]

    def order(self):
        text = self.sent[0]["content"]
        return "".join(sorted((name for name in TEXTS if TEXTS[name] in text), key=lambda name: text.find(TEXTS[name])))


@both_ways
def test_a_conversation_may_come_to_another_proxy_with_each_turn(make, log_server):
    with FakeEngine() as engine, make(log_server, engine) as one, make(log_server, engine) as other:
        Talk("dcba", "First?", engine).turn(one)
        talk = Talk("abcd", "Second?", engine)
        talk.turn(one)
        assert talk.order() == "dcba"
        for proxy in (other, one, other, other, one):
            agree(one, other)
            before = len(talk.sent)
            why, cached = talk.turn(proxy)
            assert why == "as when it was first sent"
            assert cached > 500 + 5 * before, "all that stands before is in the cache"
        assert parts_of(other).pilot.failures == parts_of(one).pilot.failures == 0


@both_ways
def test_one_that_joins_late_or_is_started_again_goes_on(make, log_server):
    with FakeEngine() as engine:
        talk = Talk("abcd", "Second?", engine)
        with make(log_server, engine) as one:
            Talk("dcba", "First?", engine).turn(one)
            talk.turn(one)
            until(lambda: not pending(one))
        with make(log_server, engine) as late:
            assert len(memory_of(late)) >= 2
            assert talk.turn(late)[0] == "as when it was first sent"
            assert talk.order() == "dcba"


def pending(proxy):
    status = carrier_of(proxy).status
    return (status() if callable(status) else status).pending


@both_ways
def test_a_conversation_stays_at_its_engine_whichever_proxy_it_comes_to(make, log_server):
    with FakeEngine() as a, FakeEngine() as b, make(log_server, a, b) as one, make(log_server, a, b) as other:
        for number in range(4):
            talk, at = Talk("abcd"[number:] + "efgh"[:number], f"Question {number}?"), set()
            if number % 2:
                talk.messages[0]["content"] = f"Without documents, {number}?"
            for proxy in (one, other, one, other):
                before = len(a.requests), len(b.requests)
                agree(one, other)
                talk.turn(proxy)
                at.add((len(a.requests) - before[0], len(b.requests) - before[1]))
            assert len(at) == 1, f"conversation {number} went elsewhere"


@both_ways
def test_hits_are_those_of_one_proxy(make, log_server):
    def cached(proxies, engine):
        random, talks = Random(5), []
        for number in range(24):
            if number % 3 == 0:
                talks.append(Talk(random.sample("abcdefgh", 4), f"Question {number}?", engine))
            random.choice(talks).turn(random.choice(proxies))
            agree(*proxies)
        return sum(request.cached_tokens for request in engine.requests)

    with FakeEngine() as engine, make(log_server, engine) as alone:
        best = cached([alone], engine)
    log_server.kill()
    log_server.start()
    with FakeEngine() as engine, make(log_server, engine) as one, make(log_server, engine) as other:
        assert cached([one, other], engine) >= 0.95 * best


def shows(proxy, joined):
    """Whether metrics say that it has joined, or has not."""
    metrics = [proxy.ask("GET", path).body for path in ("/contextpilot/metrics", "/metrics")]
    return f"replica_joined {joined}.0".encode() in b"".join(metrics)


@both_ways
def test_with_the_log_away_each_goes_on_and_waits_for_nothing(make, log_server):
    with FakeEngine() as engine, make(log_server, engine) as one, make(log_server, engine) as other:
        Talk("dcba", "First?", engine).turn(one)
        talk = Talk("abcd", "Second?", engine)
        talk.turn(one)
        until(lambda: len(memory_of(other)) >= 2)
        assert shows(one, 1)
        log_server.kill()
        until(lambda: not carrier_of(one).joined and not carrier_of(other).joined)
        assert shows(one, 0)
        for proxy in (other, one):
            assert talk.turn(proxy)[0] == "as when it was first sent"
        lonely = Talk("efgh", "Third?", engine)
        lonely.turn(one)
        unknown = Talk("hgfe", "Fourth?")
        unknown.messages = [*lonely.messages]
        assert "nothing is remembered" in unknown.turn(other)[0]
        log_server.start()
        until(lambda: carrier_of(one).joined and carrier_of(other).joined)
        late = Talk("ba", "Fifth?", engine)
        late.turn(one)
        agree(one, other)
        assert late.turn(other)[0] == "as when it was first sent"
        assert parts_of(other).pilot.failures == parts_of(one).pilot.failures == 0


COMMANDS = [
    ("proxy", "/contextpilot/metrics", "CONTEXTPILOT_INDEX", "CONTEXTPILOT_PROXY_SALT_SECRET"),
    ("serve", "/metrics", "CONTEXTPILOT_SERVE_REPLICATE", "CONTEXTPILOT_SERVE_SALT_SECRET"),
]


@pytest.mark.parametrize(("command", "metrics", "address", "secret"), COMMANDS)
def test_a_conversation_outlives_the_process_that_began_it(command, metrics, address, secret, log_server):
    def all_told():
        lines = one.ask("GET", metrics).body.splitlines()
        return any(line.endswith(b"replica_pending_records 0.0") for line in lines)

    with FakeEngine() as engine:
        arguments = (command, "--port", "0", "--upstream", engine.base_url)
        environment = {address: log_server.url, secret: SECRET}
        with process(*arguments, **environment) as one, process(*arguments, **environment) as other:
            Talk("dcba", "First?", engine).turn(one)
            talk = Talk("abcd", "Second?", engine)
            talk.turn(one)
            until(all_told)
            one.popen.kill()
            for _ in range(2):
                assert talk.turn(other)[0] == "as when it was first sent"
            assert talk.order() == "dcba"


def test_the_log_has_no_text_and_no_key(log_server):
    with FakeEngine() as engine, forwarding(log_server, engine) as one, forwarding(log_server, engine) as other:
        body = {"model": "m", "messages": Talk("abcd", "Well?").messages}
        one.ask("POST", "/v1/chat/completions", body, key="sk-of-a-client")
        (tenant,) = memory_of(one)._of
        assert len(tenant) == 32
        until(lambda: list(memory_of(other)._of) == [tenant])
        for said in (b"Well?", b"what stands in", b"sk-of-a-client"):
            for key in log_server.client().scan_iter():
                assert said not in dumped(log_server.client(), key)


def dumped(client, key):
    kind = client.type(key)
    if kind == b"stream":
        return repr(client.xrange(key)).encode()
    return repr(client.hgetall(key)).encode() if kind == b"hash" else b""


def test_what_a_service_forgets_its_proxies_forget_everywhere(log_server):
    with FakeEngine() as engine, serving(log_server, engine) as one, serving(log_server, engine) as other:
        Talk("abcd", "Well?", engine).turn(one)
        until(lambda: len(memory_of(other)) and not pending(one))
        assert one.ask("DELETE", "/v1/namespaces").status in {200, 204}
        assert not len(memory_of(one))
        until(lambda: not len(memory_of(other)))


def test_proxies_that_share_a_log_need_a_secret():
    with pytest.raises(SettingsError, match="PROXY_SALT_SECRET"):
        assemble(ProxySettings(upstreams="http://127.0.0.1:1"), Settings(index="redis://127.0.0.1:1"))
