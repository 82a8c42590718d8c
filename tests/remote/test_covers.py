"""Telling a service where prompts stand: off the hot path, of known requests only, and open to failure."""

from __future__ import annotations

import pytest
from openai import OpenAI

from contextpilot_rag import AsyncContextPilot, BlockRef, ContextPilot, Engine, RemoteIndex, Request
from contextpilot_rag.engines import follower as follower_module
from contextpilot_rag.engines.chain import chain, content
from contextpilot_rag.engines.coverer import Coverer
from contextpilot_rag.engines.covering import Covering
from contextpilot_rag.engines.engine import EngineFacts
from contextpilot_rag.errors import IndexFailed, IndexRefused, SettingsError
from contextpilot_rag.remote.wire import MAX_KV_BLOCKS
from contextpilot_rag.testing import FakeEngine
from contextpilot_rag.types import Alignment, Usage
from tests.remote.service import any_tenant, fresh_key
from tests.remote.stub import honestly, reply, stub
from tests.until import until

TOKENS = list(range(18))
FOUND = Covering(
    chain(TOKENS, 4), tuple(content(TOKENS[at : at + 4]) for at in range(0, 16, 4)), (2, 8, 16), len(TOKENS), 4
)
REQUEST = Request((BlockRef("a", 6), BlockRef("b", 8)))
SOON = 20.0


@pytest.fixture(autouse=True)
def _hurry(monkeypatch):
    monkeypatch.setattr(follower_module, "CHECK_SECONDS", 0.2)
    monkeypatch.setattr(follower_module, "SOON", 0.05)


def broken_at(path):
    """What answers honestly, but for one thing."""

    def answer(sock, asked):
        if path in asked.head:
            return sock.sendall(reply(b'{"title": "broken", "status": 500}', status="500 Internal Server Error"))
        if "/v1/observe" in asked.head:
            return sock.sendall(reply(b'{"counted": true}'))
        return honestly(sock, asked)

    return answer


@pytest.fixture(scope="module")
def fake():
    with FakeEngine(events=True, block_size=16) as engine:
        yield engine


@pytest.fixture(scope="module")
def listening(fake):
    with any_tenant(engines=f"{fake.base_url} events={fake.events_url} replay={fake.replay_url}") as running:
        yield running


def test_aligned_and_sent_requests_can_be_covered_once_before_and_after_their_report(listening):
    with RemoteIndex(listening.address, api_key=fresh_key(), timeout=20) as index:
        for report_first in (True, False):
            aligned = index.align(REQUEST)
            planned = Alignment(Request(REQUEST.blocks), (1, 0))
            index.sent(planned)
            for alignment in (aligned, planned):
                if report_first:
                    index.observe(alignment, Usage(18, 0))
                assert index.cover(alignment, FOUND, 0)
                assert not index.cover(alignment, FOUND, 0)
                if not report_first:
                    index.observe(alignment, Usage(18, 0))
        assert index.stats().observed == 4


def test_what_the_service_does_not_know_is_no_failure(service, listening):
    with RemoteIndex(service.address, api_key=fresh_key(), timeout=20) as index:
        assert not index.cover(index.align(REQUEST), FOUND), "it follows nobody"
        assert not index.cover(Alignment(REQUEST, (0, 1)), FOUND), "it was never told of this"
        assert not index.cover(Alignment(REQUEST, (0, 1), ticket="x" * 22), FOUND)
    many = Covering((b"k" * 16,) * (MAX_KV_BLOCKS + 1), (), (0,), 1, 1)
    with RemoteIndex(listening.address, api_key=fresh_key(), timeout=20) as index:
        alignment = index.align(REQUEST)
        assert not index.cover(alignment, many), "so many are not sent"
        with pytest.raises(IndexRefused, match="422 ends"):
            index.cover(alignment, Covering(FOUND.keys, FOUND.contents, (1,), 18, 4))


def test_only_digests_leave_the_process():
    with stub(broken_at("/v1/cover")) as gone:
        with RemoteIndex(gone.address, timeout=5, patience=5) as index:
            alignment = index.align(REQUEST)
            with pytest.raises(IndexRefused, match="500 broken"):
                index.cover(alignment, FOUND, 4)
        asked = gone.asked[-1]
        assert asked.head.startswith("POST /v1/cover ")
        assert set(asked.json) == {"ticket", "keys", "contents", "ends", "tokens", "block_size", "cached_tokens"}


def test_a_pilot_fails_open_and_counts(fake):
    """The service breaks at this alone; requests go out, in order, as ever."""

    with (
        stub(broken_at("/v1/cover")) as gone,
        ContextPilot(gone.address, engines=[fake.base_url], index_timeout=5) as pilot,
    ):
        until(lambda: all(engine.block_size for engine in pilot.engines))
        for _ in range(3):
            ask(pilot, fake)
            assert pilot.engines.drained()
        assert pilot.failures == 3
        (engine,) = pilot.engines
        assert pilot.engines.counts(engine.name).covered == 3


def ask(pilot, fake):
    prompt = pilot.align([("a", "Slices count from zero. " * 9), ("b", "A step may be negative. " * 9)], "Why?")
    with OpenAI(base_url=fake.base_url, api_key="none", max_retries=0) as client:
        answer = client.chat.completions.create(
            model="fake-engine", messages=prompt.messages(), max_tokens=1, extra_body=prompt.extra_body
        )
    pilot.observe(prompt, answer)
    return prompt


def test_a_pilots_engines_are_those_it_was_given_and_it_chooses_none(listening, fake):
    given = f"{fake.base_url} name=mine events=tcp://127.0.0.1:1 replay=tcp://127.0.0.1:2"
    with ContextPilot(listening.address, engines=[given], api_key=fresh_key(), index_timeout=20) as pilot:
        until(lambda: all(engine.kind == "vllm" for engine in pilot.engines))
        prompt = ask(pilot, fake)
        assert prompt.engine is None
        assert pilot.engines.drained()
        (engine,) = pilot.engines
        assert (engine.name, engine.alive, engine.block_size, engine.why) == ("mine", True, 16, "")
        assert pilot.engines.counts("mine").covered == 1
        assert pilot.engines.url(prompt) == fake.base_url
        assert pilot.route(None, 10) is None
        pilot.engines.failed(prompt)
        pilot.engines.add(Engine("http://127.0.0.1:9", name="later", events="tcp://127.0.0.1:9"))
        with pytest.raises(SettingsError, match="already"):
            pilot.engines.add(Engine("http://127.0.0.1:9", name="later"))
        until(lambda: [engine.alive for engine in pilot.engines] == [True, False])
        pilot.engines.remove("later")
        assert len(pilot.engines) == len(list(pilot.engines)) == 1
        assert pilot.failures == 0


async def test_an_async_pilot_does_the_same(listening, fake):
    key = fresh_key()
    async with AsyncContextPilot(listening.address, engines=[fake.base_url], api_key=key, index_timeout=20) as pilot:
        until(lambda: all(engine.block_size for engine in pilot.engines))
        prompt = await pilot.align(["Slices count from zero. " * 9], "Why?")
        await pilot.observe(prompt, {"usage": {"prompt_tokens": None}}, prompt.messages())
        assert pilot.engines.drained()
        assert pilot.engines.counts(next(iter(pilot.engines)).name).covered == 1
        assert pilot.failures == 0


def test_engines_come_from_the_environment(listening, fake, monkeypatch):
    monkeypatch.setenv("CONTEXTPILOT_ENGINES", fake.base_url)
    with ContextPilot(RemoteIndex(listening.address, api_key=fresh_key(), timeout=20)) as pilot:
        assert len(pilot.engines) == 1


class Index:
    """An index that is told where prompts stand."""

    def __init__(self, error=None, *, left_alone=False):
        self.error, self.left_alone, self.told = error, left_alone, []

    def cover(self, alignment, covering, cached_tokens=None):
        self.told.append((alignment, covering, cached_tokens))
        if self.error is not None:
            raise self.error
        return True


def test_a_service_that_is_left_alone_is_left_alone():
    failed, answered = [], []
    alignment = Alignment(REQUEST, (0, 1), ticket="t" * 22)
    for index in (Index(left_alone=True), Index(IndexFailed("gone")), Index()):
        coverer = Coverer([Engine("http://a:1", name="a")], index, failed.append, lambda: answered.append(1))
        coverer.cover(alignment, "salt", FOUND, 4)
        assert index.told == ([] if index.left_alone else [(alignment, FOUND, 4)])
    assert [str(error) for error in failed] == ["gone"]
    assert answered == [1]


def test_what_a_coverer_knows_of_engines():
    coverer = Coverer([Engine("http://a:1", name="a", block_size=8), Engine("http://b:1", name="b")], Index(), print)
    for name in ("a", "b", "nobody"):
        coverer.facts(name, EngineFacts(kind="vllm", block_size=16, capacity_tokens=100))
        coverer.alive(name, name == "a", "it does not answer")
        coverer.level(name, "usage")
    assert [coverer.block_size(name) for name in ("a", "b", "nobody")] == [8, 16, None]
    assert [(one.name, one.alive, one.why, one.level) for one in coverer.engines()] == [
        ("a", True, "", "usage"),
        ("b", False, "it does not answer", "usage"),
    ]
