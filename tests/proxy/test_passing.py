"""Whatever is not recognised passes byte for byte, or is not forwarded at all."""

import json
import threading

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from .harness import SECONDS, Raw, ended, head_of, plain, proxying, told

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
