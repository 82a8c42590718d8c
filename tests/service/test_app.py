"""The service over HTTP: what it answers, and that nothing that is sent to it is more than a refusal."""

from __future__ import annotations

import asyncio
import http.client
import json
import socket

import pytest

from contextpilot_rag.remote.names import segment_of
from contextpilot_rag.service.app import App
from contextpilot_rag.service.hub import State
from contextpilot_rag.service.life import assemble
from contextpilot_rag.service.operation import Operation
from contextpilot_rag.service.settings import ServiceSettings
from contextpilot_rag.types import Namespace

from .harness import SECONDS, Served, serving

A, B, C = ({"id": name, "tokens": 100} for name in "abc")


@pytest.fixture(scope="module")
def shared():
    with serving(max_body=20_000, max_blocks=50, max_batch=10, max_id=100) as service:
        yield service


@pytest.fixture
def service(shared: Served):
    yield shared
    shared.hub.service.drop([""])


def problem(reply, status, kind):
    assert reply.headers["content-type"] == "application/problem+json"
    body = reply.json()
    assert (reply.status, body["status"], body["type"]) == (status, status, f"urn:contextpilot-rag:problem:{kind}")
    return body["detail"]


def test_align_observe_and_stats(service):
    first = service.ask("POST", "/v1/align", {"blocks": [A, B], "key": "q1"}).json()
    second = service.ask("POST", "/v1/align", {"blocks": [B, A], "key": 2}).json()
    assert (first["order"], first["key"], second["order"], second["key"]) == ([0, 1], "q1", [1, 0], 2)
    assert (second["cached_blocks"], second["predicted_cached_tokens"]) == (2, 200)
    report = {"ticket": second["ticket"], "usage": {"prompt_tokens": 210, "cached_tokens": 200}}
    assert service.ask("POST", "/v1/observe", report).json() == {"counted": True}
    assert service.ask("POST", "/v1/observe", report).json() == {"counted": False}
    assert service.ask("POST", "/v1/predict", {"blocks": [A, C]}).json() == {"predicted_cached_tokens": 100}
    stats = service.ask("GET", "/v1/stats").json()
    assert (stats["requests"], stats["changed"], stats["observed"], stats["tickets"]) == (2, 1, 1, 2)
    assert (stats["reported_cached_tokens"], stats["tree_blocks"]) == (200, 2)


def test_sent_is_remembered(service):
    reply = service.ask("POST", "/v1/sent", {"blocks": [A, B], "order": [1, 0]})
    assert reply.status == 200
    assert service.ask("POST", "/v1/observe", {"ticket": reply.json()["ticket"]}).json() == {"counted": True}
    assert service.ask("POST", "/v1/predict", {"blocks": [B]}).json() == {"predicted_cached_tokens": 100}


def test_a_ticket_of_the_clients_is_answered_once(service):
    request = {"blocks": [A, B], "ticket": "t" * 20}
    assert service.ask("POST", "/v1/align", request).body == service.ask("POST", "/v1/align", request).body
    assert service.ask("GET", "/v1/stats").json()["requests"] == 1
    problem(service.ask("POST", "/v1/align", {**request, "key": "another"}), 409, "conflict")


def test_an_unknown_ticket_is_not_found(service):
    assert "ticket" in problem(service.ask("POST", "/v1/observe", {"ticket": "u" * 20}), 404, "not-found")


def test_a_batch_comes_in_the_order_asked(service):
    requests = [{"blocks": [A, B, C][: 1 + number % 3], "key": f"k{number}"} for number in range(10)]
    answers = service.ask("POST", "/v1/align/batch", {"requests": requests}).json()["alignments"]
    assert [answer["key"] for answer in answers] == [request["key"] for request in requests]
    assert [len(answer["order"]) for answer in answers] == [len(request["blocks"]) for request in requests]
    assert len({answer["ticket"] for answer in answers}) == len(requests)


@pytest.mark.parametrize(
    ("bad", "status", "kind"),
    [
        ({"blocks": [{"id": "x"}]}, 422, "unusable"),
        ({"blocks": [{"id": "x", "tokens": -1}]}, 422, "unusable"),
        ({"blocks": [{**A, "id": "x" * 101}]}, 413, "too-large"),
        ({"blocks": [A] * 51}, 413, "too-large"),
        ({"blocks": [A], "ticket": "t" * 20}, 409, "conflict"),
    ],
)
def test_a_batch_with_one_bad_request_changes_nothing(service, bad, status, kind):
    good = {"blocks": [A, B], "ticket": "t" * 20}
    detail = problem(service.ask("POST", "/v1/align/batch", {"requests": [good, bad]}), status, kind)
    assert detail.startswith("requests[1]")
    stats = service.ask("GET", "/v1/stats").json()
    assert (stats["requests"], stats["tickets"], stats["tree_blocks"]) == (0, 0, 0)


def test_a_batch_of_too_many(service):
    problem(service.ask("POST", "/v1/align/batch", {"requests": [{"blocks": [A]}] * 11}), 413, "too-large")


def test_namespaces_are_listed_shown_and_forgotten(service):
    odd = Namespace(tenant="a/b", model="m:1%", corpus="ü ")
    fields = {"tenant": odd.tenant, "model": odd.model, "corpus": odd.corpus}
    service.ask("POST", "/v1/align", {"blocks": [A]})
    for head in ("", "h"):
        talk = {"id": "talk/1"}
        request = {"blocks": [A, B], "namespace": {**fields, "head": head}, "conversation": talk}
        assert service.ask("POST", "/v1/align", request).status == 200
    listed = service.ask("GET", "/v1/namespaces").json()
    assert listed["total"] == 3
    assert [entry["namespace"] for entry in listed["namespaces"]] == [{**fields, "head": "h"}, fields, {}]
    assert len(service.ask("GET", "/v1/namespaces?limit=1").json()["namespaces"]) == 1
    path = f"/v1/namespaces/{segment_of(odd)}"
    shown = service.ask("GET", path).json()
    assert (shown["namespace"], shown["tree_blocks"], shown["tree_tokens"]) == (fields, 4, 400)
    assert shown["cache_salt"] == listed["namespaces"][1]["cache_salt"]
    assert service.ask("DELETE", path).json() == {"forgotten": 2, "conversations": 0}
    assert service.ask("GET", path).json()["cache_salt"] == shown["cache_salt"]
    assert service.ask("GET", "/v1/stats").json()["conversations"] == 2
    assert service.ask("DELETE", f"{path}?conversations=true").json() == {"forgotten": 0, "conversations": 2}
    assert service.ask("DELETE", "/v1/namespaces").json()["forgotten"] == 1


@pytest.mark.parametrize(
    ("written", "namespace"),
    [
        ("::", ("", "", "")),
        (":", ("", "", "")),
        ("%3A%3A", ("", "", "")),
        ("acme", ("acme", "", "")),
        ("acme:", ("acme", "", "")),
        ("acme::", ("acme", "", "")),
        (":m", ("", "m", "")),
        ("::c", ("", "", "c")),
    ],
)
def test_a_namespaces_name_may_leave_out_colons_at_its_end(service, written, namespace):
    tenant, model, corpus = namespace
    body = {
        "blocks": [{"id": "a", "tokens": 100}],
        "namespace": {"tenant": tenant, "model": model, "corpus": corpus},
    }
    service.ask("POST", "/v1/align", body)
    shown = service.ask("GET", f"/v1/namespaces/{written}").json()
    assert (shown["name"], shown["tree_blocks"]) == (f"{tenant}:{model}:{corpus}", 1)
    assert service.ask("GET", f"/v1/namespaces/{written}/tree").status == 200
    assert service.ask("DELETE", f"/v1/namespaces/{written}").json()["forgotten"] == 1
    assert "tree_blocks" not in service.ask("GET", f"/v1/namespaces/{written}").json()


@pytest.mark.parametrize(
    ("more", "detail"),
    [
        ({"hash": "ABCDEF0123456789"}, "Expected 8 to 32 bytes in lower-case hexadecimal"),
        ({"hash": "abc"}, "Expected 8 to 32 bytes in lower-case hexadecimal"),
    ],
)
def test_a_hash_of_another_form_is_refused_in_words(service, more, detail):
    found = problem(service.ask("POST", "/v1/align", {"blocks": [{"tokens": 1, **more}]}), 422, "unusable")
    assert detail in found
    assert "`$.blocks[0].hash`" in found
    assert "regex" not in found


def test_a_ticket_of_another_form_is_refused_in_words(service):
    found = problem(service.ask("POST", "/v1/observe", {"ticket": "short"}), 422, "unusable")
    assert found.startswith("Expected a ticket: 16 to 64 letters, digits, - or _")


def test_conversations_are_forgotten_by_name(service):
    for model in ("", "m"):
        for talk in ("one", "two/2"):
            service.ask(
                "POST", "/v1/align", {"blocks": [A], "namespace": {"model": model}, "conversation": {"id": talk}}
            )
    assert service.ask("DELETE", "/v1/namespaces/:m/conversations/one").json()["forgotten"] == 1
    assert service.ask("DELETE", "/v1/namespaces/:m/conversations/one").json()["forgotten"] == 0
    assert service.ask("DELETE", "/v1/conversations/two%2F2").json()["forgotten"] == 2
    assert service.ask("GET", "/v1/stats").json()["conversations"] == 1


NESTED = b'{"blocks":' + b"[" * 9_000 + b"]" * 9_000 + b"}"


BAD_BODIES = [
    (b"", 400, "malformed"),
    (b"{", 400, "malformed"),
    (b'{"blocks":[]} x', 400, "malformed"),
    (b'{"blocks":[{"id":"\xff","tokens":1}]}', 400, "malformed"),
    (b'{"blocks":[{"id":"\\ud800","tokens":1}]}', 400, "malformed"),
    (b'{"blocks":[{"id":"a","tokens":NaN}]}', 400, "malformed"),
    (b'{"blocks":[],"budget":{"min_gain":1e999}}', 422, "unusable"),
    (b'{"blocks":[{"id":"a","tokens":' + b"9" * 5_000 + b"}]}", 422, "unusable"),
    (b'{"blocks":[],"key":' + b"9" * 5_000 + b"}", 422, "unusable"),
    (b'{"blocks":[{"id":"a","tokens":1e400}]}', 422, "unusable"),
    (NESTED, 422, "unusable"),
    (b"[" * 19_000, 422, "unusable"),
    (b'{"blocks":[],"x":' + b'{"y":' * 3_000 + b"1" + b"}" * 3_000 + b"}", 422, "unusable"),
    (b"null", 422, "unusable"),
    (b"[]", 422, "unusable"),
    (b'{"blocks":null}', 422, "unusable"),
    (b"{}", 422, "unusable"),
    (b'{"blocks":[],"unknown":1}', 422, "unusable"),
    (b'{"blocks":[{"id":"","tokens":1}]}', 422, "unusable"),
    (b'{"blocks":[{"id":"a","tokens":0}]}', 422, "unusable"),
    (b'{"blocks":[{"id":"a","tokens":1.5}]}', 422, "unusable"),
    (b'{"blocks":[{"id":"a","tokens":true}]}', 422, "unusable"),
    (b'{"blocks":[{"tokens":1}]}', 422, "unusable"),
    (b'{"blocks":[{"hash":"00","tokens":1}]}', 422, "unusable"),
    (b'{"blocks":[{"hash":"0011223344556677\\n","tokens":1}]}', 422, "unusable"),
    (b'{"blocks":[],"ticket":"short"}', 422, "unusable"),
    (b'{"blocks":[],"budget":{"min_gain":2}}', 422, "unusable"),
    (b'{"blocks":[],"budget":{"order":"odd"}}', 422, "unusable"),
    (b'{"blocks":[],"conversation":{"id":"a","next_label":0}}', 422, "unusable"),
    (b'{"blocks":[],"conversation":{"id":"a","after":"0123456789abcdef"}}', 422, "unusable"),
    (b'{"blocks":[],"namespace":{"model":"' + b"m" * 300 + b'"}}', 422, "unusable"),
    (b'{"blocks":[{"id":"a","text":"x"},{"id":"a","text":"y"}]}', 422, "unusable"),
    (b'{"blocks":[' + b'{"id":"a","tokens":1},' * 50 + b'{"id":"b","tokens":1}]}', 413, "too-large"),
    (b" " * 20_001, 413, "too-large"),
]


@pytest.mark.parametrize(("body", "status", "kind"), BAD_BODIES)
@pytest.mark.parametrize("path", ["/v1/align", "/v1/predict"])
def test_bad_bodies_are_refused(service, path, body, status, kind):
    reply = service.ask("POST", path, body)
    problem(reply, status, kind)
    assert len(reply.body) < 1_000
    assert service.ask("GET", "/v1/stats").json()["requests"] == 0


@pytest.mark.parametrize(("body", "status", "kind"), BAD_BODIES)
def test_bad_bodies_in_batches_are_refused(service, body, status, kind):
    batch = b'{"requests":[' + (body or b"{") + b"]}"
    reply = service.ask("POST", "/v1/align/batch", batch)
    assert reply.status in {400, status}  # some are noticed where the batch is taken apart
    problem(reply, reply.status, "malformed" if reply.status == 400 else kind)
    assert service.ask("GET", "/v1/stats").json()["requests"] == 0


@pytest.mark.parametrize(
    "body", [b'{"blocks":[{"id":"a\\u0000","tokens":1}]}', b'{"blocks":[{"id":"a","id":"b","tokens":1}]}']
)
def test_odd_bodies_are_taken(service, body):
    assert service.ask("POST", "/v1/align", body).json()["order"] == [0]


@pytest.mark.parametrize(
    ("method", "path", "status", "kind"),
    [
        ("GET", "/nowhere", 404, "not-found"),
        ("GET", "/v1/align/", 404, "not-found"),
        ("GET", "/v1/namespaces/", 404, "not-found"),
        ("POST", "//v1/align", 404, "not-found"),
        ("GET", "/V1/stats", 404, "not-found"),
        ("GET", "/v1/align", 405, "method-not-allowed"),
        ("PUT", "/v1/namespaces/::", 405, "method-not-allowed"),
        ("TRACE", "/v1/stats", 405, "method-not-allowed"),
        ("GET", "/v1/namespaces/%", 400, "bad-request"),
        ("GET", "/v1/namespaces/%zz", 400, "bad-request"),
        ("GET", "/v1/namespaces/%ff", 400, "bad-request"),
        ("GET", "/v1/namespaces/%25ff", 400, "bad-request"),
        ("GET", "/v1/namespaces/a:b:c:d", 400, "bad-request"),
        ("GET", f"/v1/namespaces/{'x' * 300}", 400, "bad-request"),
        ("GET", "/v1/namespaces?limit=x", 422, "unusable"),
        ("GET", "/v1/namespaces?limit=1001", 422, "unusable"),
        ("GET", "/v1/namespaces?limit=1&limit=2", 400, "bad-request"),
        ("GET", "/v1/namespaces?limit=%e9", 400, "bad-request"),
        ("GET", f"/v1/namespaces?{'a&' * 30}", 400, "bad-request"),
        ("GET", "/v1/stats?x=1", 422, "unusable"),
        ("DELETE", "/v1/namespaces?conversations=maybe", 422, "unusable"),
        ("POST", "/v1/align?x", 422, "unusable"),
    ],
)
def test_bad_paths_and_queries_are_refused(service, method, path, status, kind):
    problem(service.ask(method, path), status, kind)


def test_methods_of_a_path(service):
    reply = service.ask("OPTIONS", "/v1/namespaces")
    assert (reply.status, reply.headers["allow"], reply.body) == (204, "DELETE, GET, HEAD", b"")
    assert service.ask("PATCH", "/v1/align").headers["allow"] == "POST"
    assert service.ask("OPTIONS", "/nowhere").status == 404
    head, full = service.ask("HEAD", "/healthz"), service.ask("GET", "/healthz")
    assert (head.status, head.body, head.headers["content-length"]) == (200, b"", full.headers["content-length"])


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "application/jsonx", ""])
def test_a_body_that_does_not_say_it_is_json_is_refused(service, kind):
    problem(service.ask("POST", "/v1/align", b'{"blocks":[]}', Content_Type=kind), 415, "not-json")


@pytest.mark.parametrize("kind", ["application/json; charset=utf-8", "Application/JSON"])
def test_json_may_have_parameters(service, kind):
    assert service.ask("POST", "/v1/align", b'{"blocks":[]}', Content_Type=kind).status == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example:80", "192.0.2.1", ""]
)
def test_without_keys_other_hosts_are_refused(service, host):
    problem(service.ask("GET", "/v1/stats", Host=host), 421, "misdirected")
    problem(service.ask("POST", "/v1/align", {"blocks": []}, Host=host), 421, "misdirected")


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:8765", "127.0.0.1", "127.9.9.9:1", "[::1]:8765", "[::1]"])
def test_without_keys_loopback_is_served(service, host):
    assert service.ask("GET", "/v1/stats", Host=host).status == 200


def raw(service: Served, request: bytes) -> tuple[int, bytes]:
    """What comes back for bytes that no client library would send."""
    with socket.create_connection(("127.0.0.1", service.port), timeout=SECONDS) as connection:
        connection.sendall(request)
        reply = http.client.HTTPResponse(connection)
        reply.begin()
        return reply.status, reply.read()


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"GET /healthz HTTP/9.9\r\nHost: localhost\r\n\r\n", 400),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400),
        (b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n", 400),
        (b"GET /v1/stats HTTP/1.1\r\nHost: localhost\r\nAuthorization: a\r\nAuthorization: b\r\n\r\n", 400),
        (b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nbad header\r\n\r\n", 400),
        (b"GET /healthz\x00 HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        (b"GET /\xff HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        (b"GET /" + b"a" * 25_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", 414),
        (b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 40_000 + b"\r\n\r\n", 431),
        (b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n" + b"X: x\r\n" * 9_000 + b"\r\n", 431),
        (b"POST /v1/align HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n", 400),
        (b"POST /v1/align HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999999999999\r\n\r\n", 400),
        (b"CONNECT a:1 HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        (b"GET http://localhost/healthz HTTP/1.1\r\nHost: localhost\r\n\r\n", 200),
        (b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n", 200),
        (b"\r\n\r\nGET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n", 200),
    ],
)
def test_what_is_hardly_http_is_refused(service, request_, status):
    found, body = raw(service, request_)
    assert found == status
    if status >= 400:
        assert json.loads(body)["status"] == status


JSON_HEAD = b"POST /v1/align HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


def test_chunked_bodies_are_counted_while_they_come(service):
    head = JSON_HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
    assert raw(service, head + b'5\r\n{"blo\r\n8\r\ncks":[]}\r\n0\r\n\r\n')[0] == 200
    status, body = raw(service, head + (b"fff\r\n" + b" " * 0xFFF + b"\r\n") * 6)
    assert (status, json.loads(body)["type"][-9:]) == (413, "too-large")
    assert raw(service, head + b"zz\r\n")[0] == 400


def test_a_body_over_the_limit_is_refused_before_it_is_read(service):
    status, body = raw(service, JSON_HEAD + b"Content-Length: 20001\r\n\r\n")
    assert (status, "20001" in json.loads(body)["detail"]) == (413, True)
    assert raw(service, JSON_HEAD + b"Expect: 100-continue\r\nContent-Length: 20001\r\n\r\n")[0] == 413


def test_a_failure_of_the_service_is_logged_once_and_not_told(caplog):
    async def broken(call):
        raise RuntimeError("inner secret")

    hub = assemble(ServiceSettings()).hub
    hub.state = State.READY
    app = App(hub, [Operation("GET", "/broken", "", broken)])
    sent = []

    async def send(message):
        sent.append(message)

    scope = {"method": "GET", "raw_path": b"/broken", "query_string": b"", "headers": [(b"host", b"localhost")]}
    asyncio.run(app(scope, None, send))
    assert sent[0]["status"] == 500
    assert b"secret" not in sent[1]["body"]
    assert json.loads(sent[1]["body"])["type"] == "urn:contextpilot-rag:problem:failed"
    assert [record.exc_info is not None for record in caplog.records] == [True]


def test_while_it_starts_or_ends_it_refuses(service):
    try:
        for state in (State.STARTING, State.DRAINING):
            service.hub.state = state
            assert service.ask("GET", "/readyz").headers["retry-after"]
            assert state.value in problem(service.ask("POST", "/v1/align", {"blocks": []}), 503, "unavailable")
            assert service.ask("GET", "/healthz").json() == {"state": state.value}
    finally:
        service.hub.state = State.READY
    assert service.ask("GET", "/readyz").json() == {"state": "ready"}
