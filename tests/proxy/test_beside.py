"""``serve --upstream``: the service and the proxy in one process, on one index and with the same keys."""

from __future__ import annotations

import pytest

from contextpilot_rag import Block, ContextPilot, Namespace, cli
from contextpilot_rag.proxy.beside import assemble_beside
from contextpilot_rag.proxy.served import ServedIndex
from contextpilot_rag.proxy.settings import ProxySettings
from contextpilot_rag.service.core import Service
from contextpilot_rag.service.keyfile import TenantEntry, changing, new_key
from contextpilot_rag.service.settings import ServiceSettings
from contextpilot_rag.settings import Settings
from contextpilot_rag.testing import FakeEngine
from contextpilot_rag.types import BlockRef, Request, Usage
from tests.index.conformance import IndexConformance

from .running import living, process

TEXTS = {name: f"{name} " + f"what stands in {name}. " * 40 for name in "abcd"}


@pytest.fixture
def keys(tmp_path):
    """A file of keys, and the keys of two tenants."""
    made = {}
    with changing(tmp_path / "keys.json", create=True) as file:
        for name in ("acme", "globex"):
            made[name], entry = new_key()
            file.tenants[name] = TenantEntry(keys=[entry])
    return tmp_path / "keys.json", made


def beside(engine, **given):
    settings = ServiceSettings(**{"port": 0, "upstreams": engine.base_url, **given})
    return assemble_beside(settings, ProxySettings(upstreams=settings.upstreams), Settings())


def documents(names):
    return "<documents>" + "".join(f"<document>{TEXTS[name]}</document>" for name in names) + "</documents>\n\nWell?"


def body(names):
    return {"model": "m", "messages": [{"role": "user", "content": documents(names)}]}


def order(engine):
    """The documents of the latest prompt, as the engine got them."""
    text = engine.requests[-1].messages[-1]["content"]
    return "".join(sorted("abcd", key=lambda name: text.find(TEXTS[name]) % 10**6))


class TestServedIndex(IndexConformance):
    """As every other index, over a service that is called and not asked over HTTP."""

    def make(self):
        return ServedIndex(Service(ServiceSettings()))


def test_a_tenant_of_a_namespace_is_the_services():
    service = Service(ServiceSettings())
    index = ServedIndex(service)
    blocks = (BlockRef(b"a" * 16, 100), BlockRef(b"b" * 16, 100))
    alignment = index.align(Request(blocks, Namespace(tenant="acme", model="m")))
    assert service.tenant("acme").stats().requests == 1
    (known,) = service.tenant("acme").namespaces()
    assert known == Namespace(model="m")
    index.observe(alignment, Usage(200, 100, 1))
    assert service.tenant("acme").stats().observed == 1
    assert index.cache_salt(Namespace(tenant="acme"), None) == service.tenant("acme").salt(Namespace())
    assert index.align(Request(blocks[::-1], Namespace(tenant="globex", model="m"))).order == (0, 1)


def test_what_is_the_services_is_not_forwarded_and_all_else_is():
    with FakeEngine() as engine, living(beside(engine)) as served:
        assert served.ask("GET", "/healthz").json() == {"state": "ready"}
        assert served.ask("GET", "/v1/stats").json()["requests"] == 0
        assert served.ask("PUT", "/v1/align").status == 405
        assert served.ask("GET", "/v1/models").json()["data"][0]["id"] == "fake-engine"
        assert served.ask("GET", "/contextpilot/ready").status == 200
        assert served.ask("POST", "/v1/chat/completions", body("ab")).status == 200
        assert [request.kind for request in engine.requests] == ["chat"]


def test_clients_of_the_index_and_of_the_proxy_share_it_within_a_tenant(keys, monkeypatch):
    path, of = keys
    monkeypatch.setenv("CONTEXTPILOT_INDEX_TIMEOUT", "20")
    with FakeEngine() as engine, living(beside(engine, keys=path)) as served:
        assert served.ask("POST", "/v1/chat/completions", body("dcba"), key=of["acme"]).status == 200
        assert order(engine) == "dcba"
        (space,) = served.life.hub.service.tenant("acme").namespaces()
        assert space.model == "m"
        blocks = [Block(f"<document>{TEXTS[name]}</document>") for name in "abcd"]  # a block is all of its bytes
        for tenant, found in (("acme", [3, 2, 1, 0]), ("globex", [0, 1, 2, 3])):
            with ContextPilot(served.address, api_key=of[tenant], namespace=space, index_timeout=20.0) as pilot:
                assert list(pilot.align(blocks, "Well?").order) == found
        assert served.ask("POST", "/v1/chat/completions", body("abcd"), key=of["globex"]).status == 200
        assert order(engine) == "abcd"
        assert served.ask("POST", "/v1/chat/completions", body("bcda"), key=of["globex"]).status == 200
        assert order(engine) == "abcd", "what a client of the index was told before"
        first, other, again = (request.cache_salt for request in engine.requests)
        assert None not in {first, other}
        assert first != other == again
        assert served.ask("POST", "/v1/chat/completions", body("abcd")).status == 401


def test_what_both_believe_cached_is_cached_for_both(keys):
    path, of = keys
    given = {"blocks": [TEXTS[name] for name in "abc"]}
    with FakeEngine() as engine, living(beside(engine, keys=path)) as served:
        for model in ("m", "n"):
            asked = {"model": model, "messages": [{"role": "user", "content": "Well?"}]}
            served.ask("POST", "/v1/chat/completions", {**asked, "contextpilot": given}, key=of["acme"])
            space = Namespace(model=model)
            with ContextPilot(served.address, api_key=of["acme"], namespace=space, index_timeout=20.0) as pilot:
                prompt = pilot.align([Block(TEXTS[name]) for name in "cab"], "Well?")
            assert prompt.predicted_cached_tokens > 400
            engine.chat({"model": model, "messages": prompt.messages(), **prompt.extra_body})
            assert engine.requests[-1].cached_tokens > 400


def test_a_process_serves_and_forwards():
    with FakeEngine() as engine:
        given = ("serve", "--port", "0", "--upstream", engine.base_url)
        with process(*given, lines=4) as served:
            assert f"contextpilot-rag: ready on {served.address}\n" in served.lines
            assert f"contextpilot-rag proxy: {served.address}/v1 -> {engine.base_url}\n" in served.lines
            assert served.ask("POST", "/v1/chat/completions", body("ab")).status == 200
            assert served.ask("GET", "/readyz").status == 200
            assert served.stop()[0] == 0


def test_what_cannot_be_an_upstream_is_refused():
    assert cli.main(["serve", "--upstream", "nowhere"]) == 1
