"""Tenants share nothing: neither the engine's cache, nor what was decided, nor what the answers say of it."""

from __future__ import annotations

import json
import logging
import re
import socket
import zlib

import pytest

from contextpilot_rag.proxy.rewriter import Rewriter
from contextpilot_rag.service.keyfile import TenantEntry, changing, new_key
from contextpilot_rag.testing import FakeEngine

from .harness import Raw, head_of, told
from .running import living

CHAT = "/v1/chat/completions"
TEXTS = {name: f"{name} begins. " + f"What stands in {name}, word for word. " * 20 for name in "abcd"}


def documents(names, question="Well?"):
    inside = "\n".join(f"<document>\n{TEXTS[name]}\n</document>" for name in names)
    return {"role": "user", "content": f"<documents>\n{inside}\n</documents>\n\n{question}"}


def body(*messages):
    return {"model": "m", "messages": list(messages)}


def ways(tmp_path):
    """How tenants can be told apart: settings, and the headers of two of them."""
    made = []
    with changing(tmp_path / "keys.json", create=True) as file:
        for name in ("acme", "globex"):
            key, entry = new_key()
            file.tenants[name] = TenantEntry(keys=[entry])
            made.append(key)
    keys = {"keys": tmp_path / "keys.json"}
    return {
        "authorization": ({}, *({"Authorization": f"Bearer sk-{n}"} for n in (1, 2))),
        "x-api-key": ({}, *({"x-api-key": f"sk-{n}"} for n in (1, 2))),
        "key": (keys, *({"Authorization": f"Bearer {key}"} for key in made)),
        "key beside": (keys, *({"x-contextpilot-key": key, "Authorization": "Bearer same"} for key in made)),
        "header": ({"tenant_by": "header", "tenant_header": "X-Who"}, {"X-Who": "acme"}, {"X-Who": "globex"}),
    }


@pytest.mark.parametrize("way", ["authorization", "x-api-key", "key", "key beside", "header"])
def test_a_prompt_is_cached_for_its_tenant_alone(way, tmp_path):
    given, one, other = ways(tmp_path)[way]
    with FakeEngine() as engine, living(upstreams=engine.base_url, **given) as proxy:
        for headers in (one, one, other, other):
            assert proxy.ask("POST", CHAT, body(documents("abc")), **headers).status == 200
        cached = [request.cached_tokens for request in engine.requests]
    assert cached[0] == cached[2] == 0
    assert min(cached[1], cached[3]) > 100


@pytest.mark.parametrize("begin", [(), ({"role": "user", "content": "Who gets the house?"},)])
def test_what_a_tenant_hears_does_not_tell_what_others_asked(begin):
    answers = []
    for first in (False, True):
        with FakeEngine() as engine, living(upstreams=engine.base_url, salt_secret="s") as proxy:
            if first:
                for names in ("dcba", "cab", "dcba"):
                    proxy.ask("POST", CHAT, body(*begin, documents(names)), key="sk-other")
            heard = []
            for names in ("abc", "bcad", "abc"):
                reply = proxy.ask("POST", CHAT, body(*begin, documents(names)), key="sk-mine")
                heard.append((said(reply), reply.json()["usage"], engine.requests[-1].body))
            answers.append(heard)
    assert answers[0] == answers[1]


def said(reply):
    """What the headers say, but for the upstream's port and for tokens: how long one is, is learnt from all answers."""
    found = {name: value for name, value in reply.headers.items() if name.startswith("x-contextpilot")}
    del found["x-contextpilot-upstream"], found["x-contextpilot-predicted-cached-tokens"]
    found["x-contextpilot-reason"] = re.sub(r"\d+ tokens", "so many tokens", found["x-contextpilot-reason"])
    return found


@pytest.mark.parametrize("field", ["cache_salt", "extra_key"])
@pytest.mark.parametrize(("client_salt", "key"), [("keep", "sk-1"), ("refuse", None)])
def test_what_a_client_keeps_apart_by_a_salt_of_its_own_is_apart_here_too(field, client_salt, key):
    with FakeEngine() as engine, living(upstreams=engine.base_url, client_salt=client_salt) as proxy:
        for names, salt in (("dcba", "one"), ("abcd", "two"), ("bcda", "one")):
            proxy.ask("POST", CHAT, {**body(documents(names)), field: salt}, key=key)
        sent = [request.messages[-1]["content"] for request in engine.requests]
    assert sent[1] == documents("abcd")["content"], "as retrieved"
    assert sent[2].startswith(documents("dcba")["content"][:1000]), "as it was cached for this salt"


SAFE = json.dumps(body({"role": "user", "content": "x"})).encode()
OWN = b'"cache_salt": "guessed"'


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (b"{" + OWN + b", " + SAFE[1:], 400),
        (b'{"cache_salt": null, ' + SAFE[1:], 200),
        (b'{"cache_salt": null, ' + OWN + b", " + SAFE[1:], 400),
        (b"{" + OWN + b', "cache_salt": null, ' + SAFE[1:], 400),
        (b'{"cache\\u005fsalt": "guessed", ' + SAFE[1:], 400),
        (b'{"cache\\u005fsalt": null, "cache_salt": null, ' + SAFE[1:], 400),
        (b'{"cache_salt": 1, ' + SAFE[1:], 400),
        (b'{"cache_salt": {}, ' + SAFE[1:], 400),
        (b'{"CACHE_SALT": "guessed", " cache_salt": "guessed", "x": {"cache_salt": "guessed"}, ' + SAFE[1:], 200),
        (b"\xef\xbb\xbf" + SAFE, 400),
        (SAFE.decode().encode("utf-16"), 400),
        (b"[" + SAFE + b"]", 400),
        (SAFE + b"{}", 400),
        (b"", 400),
    ],
)
@pytest.mark.parametrize("switch", ["on", "off"])
def test_no_body_gets_around_its_tenants_salt(raw, status, switch):
    with Raw() as upstream, living(upstreams=upstream.url) as proxy:
        sent = {"x-contextpilot": switch, "Content-Type": "application/json"}
        assert proxy.ask("POST", CHAT, raw, key="sk-1", **sent).status == status
        assert len(posted(upstream)) == (status == 200)
        for request in posted(upstream):
            salt = json.loads(request.body)["cache_salt"]
            assert len(salt) == 43
            assert request.body.count(salt.encode()) == 1


@pytest.mark.parametrize(
    "target",
    [
        b"/v1/chat/completions?x=/v1/models",
        b"/v1/chat/completions?",
        b"/v1/chat/completions#x",
        b"/v1/%63hat/completions",
        b"/v1%2Fchat%2fcompletions",
        b"//v1/chat/completions",
        b"/any/prefix/v1/chat/completions",
        b"http://elsewhere.example/v1/chat/completions",
        b"/v1/completions",
        b"/v1/responses",
        b"/v1/messages",
        b"/generate",
        b"/invocations",
    ],
)
@pytest.mark.parametrize("framing", ["length", "chunked"])
def test_no_path_gets_around_its_tenants_salt(target, framing):
    with Raw() as upstream, living(upstreams=upstream.url) as proxy:
        head = head_of(b"POST", target, (b"authorization", b"Bearer sk-1"), (b"content-type", b"application/json"))
        head = head.replace(b"host: x", b"host: localhost")
        if framing == "chunked":
            sent = head + b"transfer-encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(SAFE), SAFE)
        else:
            sent = head + b"content-length: %d\r\n\r\n%b" % (len(SAFE), SAFE)
        with socket.create_connection(("127.0.0.1", proxy.port), 20) as one:
            one.sendall(sent)
            assert told(one, b"}").startswith(b"HTTP/1.1 200")
        (sent,) = posted(upstream)
        assert len(json.loads(sent.body)["cache_salt"]) == 43


def posted(upstream):
    """What clients sent, without what asks how the upstream is."""
    return [request for request in upstream.received if request.line.startswith(b"POST")]


MARK = "zebra-crossing-7"


def test_logs_hold_neither_keys_nor_prompts(caplog, monkeypatch, tmp_path):
    caplog.set_level(logging.DEBUG)
    key, entry = new_key()
    with changing(tmp_path / "keys.json", create=True) as file:
        file.tenants["acme"] = TenantEntry(keys=[entry], operator=True)
    asked = {**body(documents("abc", MARK)), "metadata": MARK}
    seen = []
    with FakeEngine() as engine:
        given = {"upstreams": f"{engine.base_url} api_key=sk-upstream-{MARK}", "keys": tmp_path / "keys.json"}
        with living(**given) as proxy:

            def ask(method, path, sent=None, **headers):
                reply = proxy.ask(method, path, sent, key=key, **{"X-Other": MARK, "Cookie": MARK, **headers})
                seen.append(f"{reply.headers} {reply.body!r}")
                return reply.status

            assert ask("POST", CHAT, asked) == 200
            assert ask("POST", CHAT, b'{"' + MARK.encode()) == 400
            assert ask("POST", CHAT, zlib.compress(MARK.encode()), content_encoding="deflate") >= 400
            assert ask("POST", CHAT, {**asked, "cache_salt": MARK}) == 400
            assert ask("POST", CHAT, {**asked, "contextpilot": {"blocks": MARK}}) == 400
            assert ask("POST", CHAT, {**asked, "contextpilot": {MARK: 1}}) == 400
            assert proxy.ask("POST", CHAT, asked, key=f"cpk_{MARK}").status == 401
            for path in ("metrics", "upstreams", "ready", "health"):
                assert ask("GET", f"/contextpilot/{path}") == 200
            with monkeypatch.context() as patched:
                patched.setattr("contextpilot_rag.proxy.rewriter.written", failing)
                assert ask("POST", CHAT, asked) == 200
            with monkeypatch.context() as patched:
                patched.setattr(Rewriter, "rewrite", failing)
                assert ask("POST", CHAT, asked) == 200
            engine.stop()
            assert ask("POST", CHAT, asked) == 502
    logged = "\n".join(record.getMessage() + (record.exc_text or "") for record in caplog.records)
    assert "failed open" in logged
    for secret in (MARK, "sk-upstream", key, key.split("_")[-1]):
        assert secret not in logged
    for secret in ("sk-upstream", key, key.split("_")[-1]):  # what the client itself sent may be told to it
        assert secret not in "".join(seen)


def failing(*_, **__):
    raise ValueError("it broke")
