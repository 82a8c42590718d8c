"""App: what is not recognised passes byte for byte, what is refused is refused whole, and what breaks inside passes."""

import asyncio
import gzip
import json
import socket
import threading

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from contextpilot_rag.engines.engine import Engine
from contextpilot_rag.proxy.problems import NoKey, Unusable
from contextpilot_rag.proxy.rewriting import Outcome
from contextpilot_rag.proxy.words import Report
from contextpilot_rag.testing import FakeEngine
from contextpilot_rag.types import Usage

from .harness import SECONDS, Passing, Raw, ended, plain, proxying, told

CHAT = "/v1/chat/completions"
JSON = [("content-type", "application/json")]
TOKEN = "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyz"
OURS = ("x-contextpilot", "connection", "content-", "transfer-", "te", "trailer", "upgrade", "host", "expect", "keep-")
NAMES = st.text(TOKEN, min_size=1, max_size=12).filter(
    lambda name: not name.startswith((*OURS, "proxy-connection", "sec-websocket"))
)
# What may stand in a header's value; blanks at its ends are not part of it.
VALUES = st.binary(max_size=20).map(
    lambda raw: bytes(byte for byte in raw if byte == 9 or 32 <= byte != 127).strip(b" \t")
)
HEADERS = st.lists(st.tuples(NAMES.map(str.encode), VALUES), max_size=6)
PATHS = st.text("abcXYZ019-._~!$&'()*+,;=:@/%", max_size=20).map(lambda text: "/" + text.replace("%", "%2F"))
QUERIES = st.text("abcXYZ019-._~!$&'()*+,;=:@/?%", min_size=1, max_size=20).map(lambda text: text.replace("%", "%e4"))
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8)
JSONS = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=15,
)
TYPES = st.sampled_from(
    [b"application/json", b"text/plain", b"multipart/form-data; boundary=x", b"application/x-ndjson"]
)
APIS = ["/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages"]


@pytest.fixture(scope="module")
def upstream():
    with Raw() as raw:
        yield raw


@pytest.fixture(scope="module")
def proxy(upstream):
    with proxying(upstream.url, max_inspected=1_000) as running:
        yield running


def exchanged(proxy, head, body=b""):
    """The status of the answer to bytes on a new connection."""
    with proxy.connect() as one:
        one.sendall(head + b"connection: close\r\n\r\n" + body)
        answer = ended(one)
    return int(answer.split(b" ")[1])


def head_of(method, target, *headers):
    return b"".join([b"%b %b HTTP/1.1\r\nhost: x\r\n" % (method, target), *(b"%b: %b\r\n" % pair for pair in headers)])


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    method=st.sampled_from([b"GET", b"POST", b"PUT", b"PATCH", b"DELETE", b"OPTIONS"]),
    path=PATHS,
    query=st.none() | QUERIES,
    headers=HEADERS,
    kind=TYPES,
    body=st.binary(max_size=3_000),
)
def test_any_request_passes_byte_for_byte(proxy, upstream, method, path, query, headers, kind, body):
    target = (path + ("" if query is None else "?" + query)).encode()
    sent = [(b"content-type", kind), *headers, (b"content-length", b"%d" % len(body))]
    assert exchanged(proxy, head_of(method, target, *sent), body) == 200
    received = upstream.last
    assert received.line == b"%b %b HTTP/1.1" % (method, target)
    assert [pair for pair in received.pairs if pair[0] != b"host"] == sent
    assert received.headers[b"host"] == b"127.0.0.1:%d" % upstream.port
    assert (received.body, received.complete) == (body, True)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    path=st.sampled_from(APIS),
    body=JSONS.map(lambda value: json.dumps(value).encode()) | st.binary(max_size=2_000),
    sizes=st.lists(st.integers(1, 500), max_size=5),
)
def test_any_body_of_an_api_passes_byte_for_byte_in_whatever_chunks_it_comes(proxy, upstream, path, body, sizes):
    head = head_of(b"POST", path.encode(), (b"content-type", b"application/json"), (b"transfer-encoding", b"chunked"))
    left, parts = body, []
    for size in [*sizes, max(1, len(body))]:
        if left:
            parts.append(b"%x\r\n%b\r\n" % (len(left[:size]), left[:size]))
            left = left[size:]
    assert exchanged(proxy, head, b"".join(parts) + b"0\r\n\r\n") == 200
    assert (upstream.last.body, upstream.last.complete) == (body, True)
    assert b"x-contextpilot" not in upstream.last.head


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 100_000,
        b'{"a":' * 20_000,
        b'{"n": 1e99999, "m": ' + b"9" * 5_000 + b"}",
        b'{"messages": [{"role": "user", "content": "\xff\xfe"}]}',
        b'{"messages": [], "messages": [1]}',
        b"\xef\xbb\xbf{}",
        b"null",
        b"",
        b"{",
    ],
)
@pytest.mark.parametrize("path", APIS)
def test_hostile_bodies_pass_as_they_are(path, body):
    with Raw() as upstream, proxying(upstream.url) as proxy:
        reply = proxy.ask("POST", path, body, JSON)
        assert reply.status == 200
        assert upstream.last.body == body


@pytest.mark.parametrize(
    ("url", "target", "received"),
    [
        ("{}", b"/v1/models", b"/v1/models"),
        ("{}/v1", b"/v1/models", b"/v1/models"),
        ("{}/v1/", b"/health", b"/health"),
        ("{}/openai/v1", b"/v1/models?a=%20", b"/openai/v1/models?a=%20"),
        ("{}/engine", b"/v1/models", b"/engine/v1/models"),
        ("{}", b"/v1/files/a%2Fb%3Fc", b"/v1/files/a%2Fb%3Fc"),
        ("{}", b"//double//", b"//double//"),
        ("{}", b"/../up", b"/../up"),
    ],
)
def test_paths_stand_behind_the_upstreams_own(url, target, received):
    with Raw() as upstream, proxying(url.format(upstream.url)) as proxy:
        assert exchanged(proxy, head_of(b"GET", target)) == 200
        assert upstream.last.target == received


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
        ([*JSON, ("x-contextpilot", "off")], b"{}", "switched off by the request"),
        ([*JSON, ("content-encoding", "gzip")], gzip.compress(b"{}"), "its body is compressed"),
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


def test_a_body_of_unknown_length_that_is_too_long_to_look_into_passes_whole():
    with Raw() as upstream, proxying(upstream.url, max_inspected=100) as proxy:
        head = head_of(b"POST", CHAT.encode(), (b"transfer-encoding", b"chunked"))
        with proxy.connect() as one:
            one.sendall(head + b"\r\n")
            for _ in range(50):
                one.sendall(b"a\r\n0123456789\r\n")
            one.sendall(b"0\r\n\r\n")
            assert b"longer than 100 bytes" in told(one, b"}")
        assert upstream.last.body == b"0123456789" * 50
        assert upstream.last.headers[b"transfer-encoding"] == b"chunked"


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


@pytest.mark.parametrize("framing", ["length", "chunked"])
def test_twenty_megabytes_pass_whole_or_not_at_all(framing):
    body = bytes(range(256)) * 80_000
    if framing == "length":
        how, sent = (b"content-length", b"%d" % len(body)), body
    else:
        how, sent = (b"transfer-encoding", b"chunked"), b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
    head = head_of(b"POST", CHAT.encode(), (b"content-type", b"application/json"), how)
    with Raw() as upstream, proxying(upstream.url) as proxy:
        assert exchanged(proxy, head, sent) == 200
        assert (upstream.last.body == body, upstream.last.complete) == (True, True)
        upstream.gone.clear()
        with proxy.connect() as one:
            one.sendall(head + b"\r\n" + sent[: len(sent) // 2])
        assert upstream.gone.wait(SECONDS)
        assert len(upstream.received) == 2
        assert not upstream.last.complete


def test_a_client_that_waits_to_be_asked_for_its_body_is_asked_once():
    with Raw() as upstream, proxying(upstream.url, max_body=10_000) as proxy:
        for path in (CHAT, "/v1/files"):
            with proxy.connect() as one:
                length = (b"content-length", b"5000")
                one.sendall(head_of(b"POST", path.encode(), length, (b"expect", b"100-continue")) + b"\r\n")
                assert told(one, b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
                one.sendall(b"x" * 5_000)
                assert told(one, b"}").startswith(b"HTTP/1.1 200")
            assert upstream.last.body == b"x" * 5_000
            assert b"expect" not in upstream.last.headers
        with proxy.connect() as one:
            length = (b"content-length", b"50000")
            one.sendall(head_of(b"POST", CHAT.encode(), length, (b"expect", b"100-continue")) + b"\r\n")
            assert told(one, b"}}").startswith(b"HTTP/1.1 413")


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


def test_who_asks_for_http_2_gets_an_answer_in_http_1():
    upgrade = [(b"connection", b"Upgrade, HTTP2-Settings"), (b"upgrade", b"h2c"), (b"http2-settings", b"AAMAAABk")]
    with Raw() as upstream, proxying(upstream.url) as proxy, proxy.connect() as one:
        one.sendall(head_of(b"GET", b"/v1/models", *upgrade) + b"\r\n")
        assert told(one, b"}").startswith(b"HTTP/1.1 200")
        assert not {b"upgrade", b"connection", b"http2-settings"} & upstream.last.headers.keys()


def test_requests_that_follow_each_other_on_a_connection_are_answered_in_order():
    with Raw(lambda request, one: plain(200, request.body)) as upstream, proxying(upstream.url) as proxy:
        with proxy.connect() as one:
            one.sendall(
                b"".join(head_of(b"POST", CHAT.encode(), (b"content-length", b"1")) + b"\r\n%d" % n for n in range(5))
            )
            answer = told(one, b"\r\n\r\n4")
        assert [part[:1] for part in answer.split(b"\r\n\r\n")[1:]] == [b"0", b"1", b"2", b"3", b"4"]
        assert len(upstream.received) == 5


def test_while_it_ends_new_requests_are_refused():
    with Raw() as upstream, proxying(upstream.url) as proxy:
        proxy.app.drain()
        reply = proxy.ask("GET", "/v1/models")
        assert (reply.status, reply.headers["connection"]) == (503, "close")


def test_a_hundred_clients_at_once_get_each_their_own_answer():
    with Raw(lambda request, one: plain(200, request.body)) as upstream, proxying(upstream.url) as proxy:
        got = {}

        def ask(number):
            got[number] = [proxy.ask("POST", CHAT, b'{"n": %d}' % (number + n), JSON).body for n in range(5)]

        threads = [threading.Thread(target=ask, args=(number * 10,)) for number in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(SECONDS)
        assert got == {number * 10: [b'{"n": %d}' % (number * 10 + n) for n in range(5)] for number in range(20)}
        assert upstream.connections <= 20


async def test_another_server_is_told_by_an_error_that_an_answer_broke_off():
    from contextpilot_rag.proxy.app import ProxyApp
    from contextpilot_rag.proxy.relay import BrokenOffError
    from contextpilot_rag.proxy.settings import ProxySettings
    from contextpilot_rag.proxy.upstreams import Upstreams

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
