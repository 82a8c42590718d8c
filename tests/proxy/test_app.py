"""App: what was done is said, what is refused is refused clearly, and what breaks inside passes."""

import asyncio
import gzip
import json
import socket
import threading

import pytest

from contextpilot_rag.engines.engine import Engine
from contextpilot_rag.proxy.app import ProxyApp
from contextpilot_rag.proxy.held import Held
from contextpilot_rag.proxy.problems import NoKey, Unusable
from contextpilot_rag.proxy.relay import BrokenOffError
from contextpilot_rag.proxy.rewriting import Outcome
from contextpilot_rag.proxy.settings import ProxySettings
from contextpilot_rag.proxy.upstreams import Upstreams
from contextpilot_rag.proxy.words import Report
from contextpilot_rag.testing import FakeEngine
from contextpilot_rag.types import Usage

from .harness import CHUNKED, SECONDS, Passing, Raw, chunk, ended, head_of, plain, proxying, told

CHAT = "/v1/chat/completions"
JSON = [("content-type", "application/json")]


def test_what_was_done_stands_in_the_answers_headers():
    report = Report(3, changed=True, replaced=2, left_out=500, predicted_cached_tokens=70, labels=("2", "1"))

    class Changing(Passing):
        async def rewrite(self, call):
            return Outcome(b'{"changed": 1}', report)

    with Raw() as upstream, proxying(Engine(upstream.url, name="gpu"), rewriting=Changing()) as proxy:
        reply = proxy.ask("POST", CHAT, b"{}", [*JSON, ("x-contextpilot-order", "balanced")])
        assert {name: value for name, value in reply.pairs if name.startswith("x-contextpilot")} == {
            "x-contextpilot-order": "changed",
            "x-contextpilot-blocks": "3",
            "x-contextpilot-replaced": "2",
            "x-contextpilot-left-out": "500",
            "x-contextpilot-predicted-cached-tokens": "70",
            "x-contextpilot-labels": "2, 1",
            "x-contextpilot-upstream": "gpu",
        }
        assert upstream.last.body == b'{"changed": 1}'
        assert upstream.last.headers[b"content-length"] == b"14"
        assert b"x-contextpilot" not in upstream.last.head
        assert proxy.ask("GET", "/v1/models").headers.keys() == {"content-length"}


@pytest.mark.parametrize(
    ("headers", "body", "reason"),
    [
        ([*JSON, ("content-encoding", "gzip")], gzip.compress(b"{}", mtime=0), "its body is compressed"),
        ([("content-type", "text/plain")], b"{}", "its body is not said to be JSON"),
        (JSON, b" " * 101, "its body is longer than 100 bytes"),
        (JSON, b" " * 200_000, "its body is longer than 100 bytes"),
    ],
)
def test_what_is_not_looked_into_passes_and_the_answer_says_why(headers, body, reason):
    with Raw() as upstream, proxying(upstream.url, max_inspected=100) as proxy:
        reply = proxy.ask("POST", CHAT, body, headers)
        assert reply.headers["x-contextpilot-reason"] == reason
        assert "x-contextpilot-order" not in reply.headers
        assert upstream.last.body == body
        assert proxy.rewriting.calls == []


def test_a_request_that_is_switched_off_still_gets_its_salt_from_the_other_half():
    with Raw() as upstream, proxying(upstream.url) as proxy:
        proxy.ask("POST", CHAT, b"{}", [*JSON, ("x-contextpilot", "off")])
        assert proxy.rewriting.calls[0].wishes.off
        assert upstream.last.body == b"{}"


def acme(headers):
    return "acme", list(headers)


class Salting(Passing):
    def salt(self, tenant):
        return f"salt of {tenant}"


@pytest.mark.parametrize("size", [200, 200_000, 3_000_000])
def test_a_body_that_is_too_long_to_be_looked_into_is_given_the_tenants_salt(size):
    body = b' {"n": 1.50, "prompt": "' + b"x" * size + b'"}'
    with (
        Raw() as upstream,
        proxying(upstream.url, rewriting=Salting(), tenant_of=acme, max_inspected=100) as proxy,
    ):
        proxy.ask("POST", CHAT, body, JSON)
        assert upstream.last.body == b' {"cache_salt":"salt of acme",' + body[2:]
        with proxy.connect() as client:
            client.sendall(b"POST /v1/completions HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n")
            client.sendall(b"content-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n")
            client.sendall(chunk(body[:50]) + chunk(body[50:]) + b"0\r\n\r\n")
            assert ended(client).startswith(b"HTTP/1.1 200")
        assert upstream.last.body == b' {"cache_salt":"salt of acme",' + body[2:]
        refused = proxy.ask("POST", CHAT, b"[" + b" " * size + b"]", JSON)
        assert refused.status == 400


@pytest.mark.parametrize("path", ["/generate", "/inference/v1/generate", "/v1/chat/completions/batch", "/invocations"])
def test_prompts_in_formats_that_are_not_read_get_the_tenants_salt_too(path):
    salt = b'"cache_salt":"salt of acme"'
    long = b' {"text": "' + b"x" * 100_000 + b'"}'
    with Raw() as upstream, proxying(upstream.url, rewriting=Salting(), tenant_of=acme) as proxy:
        for body, received in (
            (b'{"text": "a"}', b"{" + salt + b',"text": "a"}'),
            (long, b" {" + salt + b"," + long[2:]),
            (b"{ }", b"{" + salt + b" }"),
            (b"[1]", b"[1]"),
            (b"", b""),
        ):
            assert "x-contextpilot-reason" not in proxy.ask("POST", path, body, JSON).headers
            assert upstream.last.body == received
        proxy.ask("POST", path, b'{"a": 1}', [("content-type", "text/csv")])
        assert upstream.last.body == b'{"a": 1}'
        proxy.ask("PATCH", path, b'{"a": 1}', JSON)
        assert upstream.last.body == b'{"a": 1}'
        proxy.ask("PUT", path, b'{"a": 1}', JSON)
        assert upstream.last.body == b"{" + salt + b',"a": 1}'


def test_blanks_that_come_first_do_not_keep_a_body_from_its_salt():
    body = b'{"text": "' + b"x" * 100_000 + b'"}'
    head = b"POST /generate HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\nconnection: close\r\n"
    with (
        Raw() as upstream,
        proxying(upstream.url, rewriting=Salting(), tenant_of=acme) as proxy,
        proxy.connect() as client,
    ):
        client.sendall(head + b"content-length: %d\r\n\r\n \n" % (len(body) + 2))
        proxy.ask("GET", "/health")  # by now the blanks are read
        client.sendall(body)
        assert ended(client).startswith(b"HTTP/1.1 200")
        assert upstream.last.body == b' \n{"cache_salt":"salt of acme",' + body[1:]


def test_no_more_bodies_are_held_than_may_be(monkeypatch):
    monkeypatch.setattr("contextpilot_rag.proxy.app.Held", lambda: Held(1_000))
    asked, answer, end = (threading.Event() for _ in range(3))

    def slow(request, one):
        if b"slow" in request.body:
            asked.set()
            answer.wait(SECONDS)
            one.sendall(CHUNKED + chunk(b"data: 1\n\n"))
            end.wait(SECONDS)
            return b"0\r\n\r\n"
        return plain()

    body = b'{"what": "slow", "n": "' + b"x" * 600 + b'"}'
    with Raw(slow) as upstream, proxying(upstream.url) as proxy, proxy.connect() as client:
        client.sendall(head_of(b"POST", CHAT.encode(), *((a.encode(), b.encode()) for a, b in JSON)))
        client.sendall(b"content-length: %d\r\n\r\n" % len(body) + body)
        assert asked.wait(SECONDS)
        refused = proxy.ask("POST", CHAT, b" " * 600 + b"{}", JSON)
        assert (refused.status, refused.headers["retry-after"]) == (503, "1")
        assert proxy.ask("POST", CHAT, b"{}", JSON).status == 200
        assert proxy.ask("POST", "/v1/files", b" " * 600, JSON).status == 200, "it is not held"
        answer.set()
        assert told(client, b"data: 1").startswith(b"HTTP/1.1 200")
        assert proxy.ask("POST", CHAT, b" " * 600 + b"{}", JSON).status == 200, "the answer begins, the body is gone"
        end.set()
        told(client, b"0\r\n\r\n")
    assert proxy.app._held.bytes == 0


def test_a_body_of_unknown_length_takes_the_room_that_it_needs(monkeypatch):
    monkeypatch.setattr("contextpilot_rag.proxy.app.Held", lambda: Held(1_000))
    asked, answer = threading.Event(), threading.Event()

    def slow(request, one):
        if b"slow" in request.body:
            asked.set()
            answer.wait(SECONDS)
        return plain()

    with Raw(slow) as upstream, proxying(upstream.url, max_inspected=900) as proxy, proxy.connect() as client:
        client.sendall(head_of(b"POST", CHAT.encode(), (b"transfer-encoding", b"chunked")) + b"\r\n")
        client.sendall(chunk(b'{"what": "slow"}') + b"0\r\n\r\n")
        assert asked.wait(SECONDS)
        assert proxy.ask("POST", CHAT, b" " * 800 + b"{}", JSON).status == 200
        answer.set()
        told(client, b"}")


def test_what_the_request_says_reaches_the_other_half():
    def tenant_of(headers):
        return "acme", [pair for pair in headers if pair[0] != b"authorization"]

    with Raw() as upstream, proxying(upstream.url, tenant_of=tenant_of) as proxy:
        sent = [*JSON, ("Authorization", "Bearer ours"), ("x-contextpilot-labels", "renumber")]
        assert proxy.ask("POST", "/v1/responses", b'{"a": 1}', sent).status == 200
        call = proxy.rewriting.calls[0]
        assert (call.api, call.raw, call.tenant, call.wishes.labels) == ("responses", b'{"a": 1}', "acme", "renumber")
        assert b"authorization" not in upstream.last.headers


def test_an_engines_key_is_shown_where_the_client_shows_none():
    with Raw() as upstream, proxying(Engine(upstream.url, api_key="ours")) as proxy:
        proxy.ask("GET", "/v1/models")
        assert upstream.last.headers[b"authorization"] == b"Bearer ours"
        proxy.ask("GET", "/v1/models", None, [("Authorization", "Bearer theirs")])
        assert [value for name, value in upstream.last.pairs if name == b"authorization"] == [b"Bearer theirs"]


def test_who_may_not_ask_hears_it_in_the_words_of_its_client():
    def tenant_of(headers):
        raise NoKey("no key", headers={"www-authenticate": "Bearer"})

    with Raw() as upstream, proxying(upstream.url, tenant_of=tenant_of) as proxy:
        reply = proxy.ask("POST", CHAT, b"{}", JSON)
        assert (reply.status, reply.headers["www-authenticate"]) == (401, "Bearer")
        assert json.loads(reply.body)["error"]["type"] == "authentication_error"
        reply = proxy.ask("POST", "/v1/messages", b"{}", JSON)
        assert json.loads(reply.body) == {
            "type": "error",
            "error": {"type": "authentication_error", "message": "no key"},
        }
        assert upstream.received == []
        proxy.settled()
        assert proxy.counts.all == [("chat", 401, "refused"), ("messages", 401, "refused")]


def test_what_the_other_half_refuses_is_refused():
    class Refusing(Passing):
        async def rewrite(self, call):
            raise Unusable("unknown field", "contextpilot.blocks")

    with Raw() as upstream, proxying(upstream.url, rewriting=Refusing()) as proxy:
        reply = proxy.ask("POST", CHAT, b"{}", JSON)
        assert reply.status == 400
        assert json.loads(reply.body)["error"] == {
            "message": "unknown field",
            "type": "invalid_request_error",
            "param": "contextpilot.blocks",
            "code": 400,
        }
        assert upstream.received == []


def test_what_breaks_inside_is_counted_and_the_original_passes(caplog):
    class Broken(Passing):
        async def rewrite(self, call):
            raise ZeroDivisionError

        async def answered(self, outcome, usage, engine):
            raise ZeroDivisionError

        def failed(self, outcome):
            raise ZeroDivisionError

    with Raw() as upstream, proxying(upstream.url, rewriting=Broken()) as proxy:
        for body in (b'{"a":  1}', b"[]"):
            reply = proxy.ask("POST", CHAT, body, JSON)
            assert (reply.status, upstream.last.body) == (200, body)
            assert "failed" in reply.headers["x-contextpilot-reason"]
        upstream.answer = plain(500)
        assert proxy.ask("POST", CHAT, b"{}", JSON).status == 500
        proxy.settled()
        assert proxy.counts.failures == ["ZeroDivisionError"] * 6
    assert len([record for record in caplog.records if "failed open" in record.message]) == 1


def test_what_breaks_inside_still_keeps_tenants_apart():
    class Broken(Salting):
        async def rewrite(self, call):
            raise ZeroDivisionError

    with Raw() as upstream, proxying(upstream.url, rewriting=Broken(), tenant_of=acme) as proxy:
        assert proxy.ask("POST", CHAT, b'{"a":  1}', JSON).status == 200
        assert upstream.last.body == b'{"cache_salt":"salt of acme","a":  1}'
        assert proxy.ask("POST", CHAT, b"[]", JSON).status == 400


@pytest.mark.parametrize("stream", [False, True])
def test_usage_is_heard_of_answers_of_an_engine(stream):
    body = {"messages": [{"role": "user", "content": "Where do slices start?"}], "stream": stream}
    if stream:
        body["stream_options"] = {"include_usage": True}
    with FakeEngine(block_size=4) as engine, proxying(Engine(engine.base_url, name="fake")) as proxy:
        for _ in range(2):
            assert proxy.ask("POST", CHAT, json.dumps(body).encode(), JSON).status == 200
        proxy.settled()
        (first, name), (second, _) = proxy.rewriting.learnt
        assert name == "fake"
        assert (first.cached_tokens, second.cached_tokens) == (0, 12)
        assert isinstance(first, Usage)


def test_too_large_a_body_is_refused_before_any_of_it_is_forwarded():
    with Raw() as upstream, proxying(upstream.url, max_body=1_000) as proxy:
        reply = proxy.ask("POST", CHAT, b" " * 3_000_000, JSON)
        assert (reply.status, reply.headers["connection"]) == (413, "close")
        assert json.loads(reply.body)["error"]["code"] == 413
        with proxy.connect() as one:
            one.sendall(head_of(b"POST", b"/v1/files", (b"transfer-encoding", b"chunked")) + b"\r\n")
            one.sendall(b"3e9\r\n" + b" " * 1_001 + b"\r\n0\r\n\r\n")
            assert ended(one).startswith(b"HTTP/1.1 413")
        assert upstream.received == []
        assert proxy.ask("POST", CHAT, b" " * 1_000, JSON).status == 200


@pytest.mark.parametrize(
    "headers",
    [
        [(b"upgrade", b"websocket"), (b"connection", b"upgrade"), (b"sec-websocket-key", b"x")],
        [(b"sec-websocket-key", b"x")],
    ],
)
def test_websockets_are_refused_clearly(headers):
    with Raw() as upstream, proxying(upstream.url) as proxy, proxy.connect() as one:
        one.sendall(head_of(b"GET", b"/v1/realtime", *headers) + b"\r\n")
        answer = told(one, b"}")
        assert answer.startswith(b"HTTP/1.1 501")
        assert b"WebSockets" in answer
        assert upstream.received == []


def test_while_it_ends_new_requests_are_refused():
    with Raw() as upstream, proxying(upstream.url) as proxy:
        proxy.app.drain()
        reply = proxy.ask("GET", "/v1/models")
        assert (reply.status, reply.headers["connection"]) == (503, "close")


async def test_another_server_is_told_by_an_error_that_an_answer_broke_off():
    sent = []

    async def receive():
        await asyncio.Event().wait()

    async def send(message):
        sent.append(message)

    with Raw(plain()[:-3]) as upstream:
        upstream.answer = lambda request, one: (one.sendall(plain()[:-3]), one.shutdown(socket.SHUT_RDWR))[1]
        them = Upstreams([Engine(upstream.url)])
        app = ProxyApp(ProxySettings(upstreams=upstream.url), Passing(), them)
        scope = {
            "type": "http",
            "method": "GET",
            "raw_path": b"/v1/models?a=b",  # as some servers have it, with the query
            "query_string": b"a=b",
            "headers": [],
        }
        with pytest.raises(BrokenOffError):
            await app(scope, receive, send)
        assert upstream.last.target == b"/v1/models?a=b"
        assert sent[0]["status"] == 200
        them.close()
        await asyncio.sleep(0.01)


def test_what_breaks_of_ours_before_a_request_can_pass_is_said_without_a_traceback(caplog):
    def tenant_of(headers):
        raise ZeroDivisionError("secret")

    with Raw() as upstream, proxying(upstream.url, tenant_of=tenant_of) as proxy:
        reply = proxy.ask("POST", CHAT, b"{}", JSON)
        assert reply.status == 500
        assert json.loads(reply.body)["error"]["type"] == "proxy_error"
        assert b"secret" not in reply.body
        proxy.settled()
        assert proxy.counts.failures == ["ZeroDivisionError"]
        assert proxy.counts.all == [("chat", 500, "failed")]


def test_requests_that_are_under_way_at_its_end_are_cut_off_without_a_traceback(caplog):
    asked = threading.Event()

    def answer(request, one):
        one.sendall(CHUNKED + chunk(b"first"))
        asked.set()
        one.recv(1)

    with Raw(answer) as upstream:
        with proxying(upstream.url) as proxy:
            one = proxy.connect()
            one.sendall(head_of(b"POST", CHAT.encode(), (b"content-length", b"2")) + b"\r\n{}")
            assert asked.wait(SECONDS)
        assert not ended(one).endswith(b"0\r\n\r\n")
        one.close()
        assert upstream.gone.wait(SECONDS)
    assert not [record for record in caplog.records if record.levelname == "ERROR"]
