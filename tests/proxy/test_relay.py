"""Relay: answers come back as they come, whoever goes away is noticed, and whatever breaks is said or shown."""

import http.client
import logging
import socket
import threading
import time
from contextlib import suppress

import pytest

from contextpilot_rag.engines.engine import Engine
from tests.ports import free_port

from .harness import CHUNKED, SECONDS, Raw, Received, chunk, ended, plain, proxying, told

CHAT = "/v1/chat/completions"
JSON = [("content-type", "application/json")]
POST = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}"


def nobody():
    """An address where nobody listens."""
    return f"http://127.0.0.1:{free_port()}"


def error_of(reply):
    import json

    return json.loads(reply.body)["error"]


def test_each_part_of_an_answer_is_sent_on_before_the_next_one_is_there():
    go = threading.Event()

    def answer(request, one):
        one.sendall(CHUNKED)
        for part in (b"first", b"second", b""):
            assert go.wait(SECONDS)
            go.clear()
            one.sendall(chunk(part))

    with Raw(answer) as upstream, proxying(upstream.url) as proxy, proxy.connect() as one:
        one.sendall(POST)
        head = told(one, b"\r\n\r\n")  # the head does not wait for the body
        assert head.startswith(b"HTTP/1.1 200")
        assert b"first" not in head
        go.set()
        assert b"first" in told(one, b"first")
        go.set()
        assert b"second" in told(one, b"second")
        go.set()
        assert told(one, b"0\r\n\r\n").endswith(b"0\r\n\r\n")


@pytest.mark.parametrize("begun", [False, True], ids=["before the head", "in the middle"])
def test_a_client_that_goes_away_ends_the_request_upstream(begun):
    asked, gone = threading.Event(), threading.Event()

    def answer(request, one):
        if begun:
            one.sendall(CHUNKED + chunk(b"first"))
        asked.set()
        if one.recv(1) == b"":
            gone.set()

    with Raw(answer) as upstream, proxying(upstream.url) as proxy:
        one = proxy.connect()
        one.sendall(POST)
        assert asked.wait(SECONDS)
        if begun:
            told(one, b"first")
        time.sleep(0.15)  # whoever closes at once might wait for the answer
        one.close()
        assert gone.wait(SECONDS)
        proxy.settled()
        until = time.monotonic() + SECONDS
        while not proxy.counts.all and time.monotonic() < until:
            time.sleep(0.01)
        assert proxy.counts.all == [("chat", 499, "gone")]
        proxy.settled()
        assert proxy.rewriting.given_up == 1


def test_a_client_that_closed_its_side_with_its_request_still_gets_its_answer():
    with Raw() as upstream, proxying(upstream.url) as proxy, proxy.connect() as one:
        one.sendall(POST)
        one.shutdown(socket.SHUT_WR)
        assert ended(one).endswith(b'{"ok": true}')


@pytest.mark.parametrize("framing", ["chunked", "length"])
def test_an_answer_that_breaks_off_breaks_off_for_the_client_without_a_traceback(framing, caplog):
    def answer(request, one):
        head = CHUNKED + chunk(b"begun") if framing == "chunked" else plain(200, b"begun")[:-5].replace(b" 5", b" 50")
        one.sendall(head + (b"" if framing == "chunked" else b"begun"))

    with caplog.at_level(logging.DEBUG), Raw(answer) as upstream, proxying(upstream.url) as proxy:
        with proxy.connect() as one:
            one.sendall(POST)
            data = ended(one)
        assert b"begun" in data
        assert not data.endswith(b"0\r\n\r\n")
        connection = http.client.HTTPConnection("127.0.0.1", proxy.port, timeout=SECONDS)
        connection.request("POST", CHAT, b"{}", dict(JSON))
        with pytest.raises(http.client.IncompleteRead):
            connection.getresponse().read()
        connection.close()
        proxy.settled()
        assert proxy.rewriting.given_up == 2
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING and record.name != "asyncio"]


def test_an_upstream_that_is_not_there_is_said_in_openais_words():
    with proxying(Engine(f"http://me:secret@127.0.0.1:{free_port()}", name="gpu")) as proxy:
        reply = proxy.ask("POST", CHAT, b"{}", JSON)
        assert reply.status == 502
        assert error_of(reply)["type"] == "upstream_error"
        assert "Connection refused" in error_of(reply)["message"]
        assert b"secret" not in reply.body
        reply = proxy.ask("POST", "/v1/messages", b"{}", JSON)
        assert reply.status == 502
        assert error_of(reply)["type"] == "api_error"
        proxy.settled()
        assert proxy.rewriting.given_up == 2


def test_an_upstream_that_closes_without_an_answer_is_said():
    def answer(request, one):
        return None

    with Raw(answer) as upstream, proxying(upstream.url) as proxy:
        reply = proxy.ask("POST", CHAT, b"{}", JSON)
        assert (reply.status, upstream.connections) == (502, 1)
        assert "closed the connection" in error_of(reply)["message"]


@pytest.mark.parametrize(
    "nonsense",
    [
        b"SSH-2.0-OpenSSH\r\n\r\n",
        b"HTTP/1.1 999 Odd\r\n\r\n",
        b"HTTP/1.1 101 Switching\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab",
        b"HTTP/1.1 200 OK\r\nx: " + b"x" * 300_000 + b"\r\n\r\n",
    ],
)
def test_what_is_no_answer_is_not_passed_on(nonsense):
    with Raw(nonsense) as upstream, proxying(upstream.url) as proxy:
        reply = proxy.ask("GET", "/v1/models")
        assert reply.status == 502
        assert error_of(reply)["type"] == "upstream_error"


def test_an_upstream_that_does_not_answer_in_time_is_said():
    with Raw(lambda request, one: one.recv(1)) as upstream, proxying(upstream.url, answer_seconds=0.1) as proxy:
        reply = proxy.ask("POST", CHAT, b"{}", JSON)
        assert reply.status == 504
        assert "0.1 seconds" in error_of(reply)["message"]


def test_an_answer_that_stands_still_is_broken_off():
    def answer(request, one):
        one.sendall(CHUNKED + chunk(b"begun"))
        one.recv(1)

    with Raw(answer) as upstream, proxying(upstream.url, answer_seconds=0.1) as proxy, proxy.connect() as one:
        one.sendall(POST)
        assert not ended(one).endswith(b"0\r\n\r\n")


def test_a_dead_upstream_is_left_out_and_tried_again_later():
    dead = nobody()
    with Raw() as upstream, proxying(dead, upstream.url) as proxy:
        for _ in range(6):
            assert proxy.ask("POST", CHAT, b"{}", JSON).status == 200
        assert len(upstream.received) == 6
        assert proxy.upstreams.alive() == {f"127.0.0.1:{upstream.port}"}


def test_a_streamed_body_goes_to_another_upstream_while_nothing_of_it_was_sent():
    body = b"x" * 300_000
    with Raw() as upstream, proxying(nobody(), upstream.url) as proxy:
        for _ in range(2):
            assert proxy.ask("POST", "/v1/files", body).status == 200
        assert [request.body for request in upstream.received] == [body, body]


def test_without_any_upstream_it_is_said():
    with proxying(nobody(), nobody()) as proxy:
        assert proxy.ask("GET", "/v1/models").status == 502


def test_connections_are_kept_and_one_that_was_closed_meanwhile_is_no_failure():
    closing = []

    def answer(request, one):
        if len(upstream.received) == 2:
            closing.append(one)
            return None  # a kept connection, closed just as a request comes
        return plain()

    with Raw(answer) as upstream, proxying(upstream.url) as proxy:
        for _ in range(3):
            assert proxy.ask("POST", CHAT, b"{}", JSON).status == 200
        assert len(upstream.received) == 4  # the second one came twice
        assert upstream.connections == 2
        assert len(closing) == 1


def test_a_connection_that_says_more_than_was_asked_is_not_used_again():
    with (
        Raw(plain() + b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\npoison") as upstream,
        proxying(upstream.url) as proxy,
    ):
        for _ in range(3):
            assert proxy.ask("GET", "/v1/models").body == b'{"ok": true}'


def test_a_head_is_answered_by_a_head():
    with Raw(b"HTTP/1.1 200 OK\r\ncontent-length: 1234\r\n\r\n") as upstream, proxying(upstream.url) as proxy:
        for _ in range(2):
            reply = proxy.ask("HEAD", "/v1/models")
            assert (reply.status, reply.headers["content-length"], reply.body) == (200, "1234", b"")
        assert upstream.last.line == b"HEAD /v1/models HTTP/1.1"


@pytest.mark.parametrize("status", [204, 304])
def test_answers_without_a_body_pass(status):
    answer = b"HTTP/1.1 %d Whatever\r\nETag: x\r\n\r\n" % status
    with Raw(answer) as upstream, proxying(upstream.url) as proxy:
        for _ in range(2):
            reply = proxy.ask("GET", "/v1/models")
            assert (reply.status, reply.headers["etag"], reply.body) == (status, "x", b"")
        assert upstream.connections == 1


@pytest.mark.parametrize("status", [400, 404, 429, 500, 503])
def test_errors_of_the_upstream_pass_as_they_are(status):
    with Raw(plain(status, b'{"error": 1}', b"Retry-After: 7")) as upstream, proxying(upstream.url) as proxy:
        reply = proxy.ask("POST", CHAT, b"{}", JSON)
        assert (reply.status, reply.body, reply.headers["retry-after"]) == (status, b'{"error": 1}', "7")
        proxy.settled()
        assert proxy.rewriting.given_up == 1


def test_what_comes_before_an_answer_and_after_it_is_dropped():
    answer = (
        b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n"
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntrailer: x-sum\r\n\r\n"
        + chunk(b"abc")
        + b"0\r\nx-sum: 1\r\n\r\n"
    )
    with Raw(answer) as upstream, proxying(upstream.url) as proxy:
        for _ in range(2):
            reply = proxy.ask("GET", "/v1/models")
            assert (reply.status, reply.body) == (200, b"abc")
            assert not {"link", "x-sum", "trailer"} & {name for name, _ in reply.pairs}
        assert upstream.connections == 1


def test_an_answer_that_ends_with_its_connection_is_whole():
    def answer(request, one):
        one.sendall(b"HTTP/1.0 200 OK\r\ncontent-type: text/plain\r\n\r\nall of it")

    with Raw(answer) as upstream, proxying(upstream.url) as proxy:
        assert proxy.ask("GET", "/v1/models").body == b"all of it"


def test_headers_of_an_answer_pass_in_order_and_as_often_as_they_came():
    headers = [b"Set-Cookie: a=1", b"X-Odd: \xe9", b"Set-Cookie: b=2", b"Connection: x-hop", b"X-Hop: 1", b"Date: then"]
    with Raw(plain(200, b"{}", *headers)) as upstream, proxying(upstream.url) as proxy:
        reply = proxy.ask("GET", "/metrics")
        assert [pair for pair in reply.pairs if pair[0] != "content-length"] == [
            ("set-cookie", "a=1"),
            ("x-odd", "\xe9"),
            ("set-cookie", "b=2"),
            ("date", "then"),
        ]


def test_compressed_answers_pass_as_they_are():
    import gzip

    body = gzip.compress(b'{"usage": {"prompt_tokens": 3}}')
    answer = plain(200, body, b"content-type: application/json", b"content-encoding: gzip")
    with Raw(answer) as upstream, proxying(upstream.url) as proxy:
        reply = proxy.ask("POST", CHAT, b"{}", JSON)
        assert (reply.body, reply.headers["content-encoding"]) == (body, "gzip")
        proxy.settled()
        assert proxy.rewriting.learnt[0][0].prompt_tokens == 3


def test_an_upstream_that_answers_before_it_has_all_is_heard():
    def answer(request, one):
        one.sendall(plain(413, b"too much", b"connection: close"))
        one.recv(1)

    raw = Raw()
    raw._read = lambda one, kept: (_head_only(one, raw), b"")
    raw.answer = answer
    with raw as upstream, proxying(upstream.url) as proxy, proxy.connect() as one:
        one.sendall(b"POST /v1/files HTTP/1.1\r\nhost: x\r\ncontent-length: 1000000\r\n\r\nsome of it")
        assert told(one, b"too much").startswith(b"HTTP/1.1 413")


def _head_only(one, raw):
    request = Received(told(one, b"\r\n\r\n"), complete=True)
    raw.received.append(request)
    return request


@pytest.mark.parametrize("size", [1_000, 1_000_000], ids=["kept", "streamed"])
def test_a_client_that_sends_nothing_more_hears_so(size):
    with Raw() as upstream, proxying(upstream.url, body_seconds=0.1) as proxy, proxy.connect() as one:
        one.sendall(b"POST /v1/files HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\nsome of it" % size)
        assert ended(one).startswith(b"HTTP/1.1 408")
        assert not any(request.complete for request in upstream.received)


def test_an_upstream_that_takes_no_more_of_a_body_is_given_up():
    raw = Raw()
    waiting = threading.Event()
    raw._read = lambda one, kept: (waiting.wait(SECONDS) and None, b"")
    with raw as upstream, proxying(upstream.url, answer_seconds=0.2) as proxy:
        with proxy.connect() as one:
            one.sendall(b"POST /v1/files HTTP/1.1\r\nhost: x\r\ncontent-length: 50000000\r\n\r\n")
            sending = threading.Thread(target=lambda: _sent(one, 50_000_000))
            sending.start()
            assert told(one, b"}}").startswith(b"HTTP/1.1 504")
            one.shutdown(socket.SHUT_RDWR)
            sending.join(SECONDS)
        waiting.set()


def _sent(one, size):
    with suppress(OSError):
        one.sendall(b"x" * size)


def test_a_slow_reader_holds_the_upstream_and_loses_nothing():
    size, sent = 16 * 2**20, []

    def answer(request, one):
        one.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % size)
        for _ in range(size // 2**16):
            one.sendall(b"x" * 2**16)
            sent.append(2**16)

    with Raw(answer) as upstream, proxying(upstream.url) as proxy, proxy.connect() as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
        one.sendall(POST)
        head = told(one, b"\r\n\r\n")
        time.sleep(0.2)
        assert sum(sent) < size  # it waits, and not in our memory
        left = size - len(head.partition(b"\r\n\r\n")[2])
        while left:
            left -= len(one.recv(2**20))
    assert sum(sent) == size


def test_fifty_streams_go_on_at_the_same_time():
    go = threading.Event()

    def answer(request, one):
        one.sendall(CHUNKED + chunk(b"first"))
        assert go.wait(SECONDS)
        return chunk(request.body) + chunk(b"")

    with Raw(answer) as upstream, proxying(upstream.url) as proxy:
        clients = [proxy.connect() for _ in range(50)]
        for number, one in enumerate(clients):
            one.sendall(POST.replace(b"{}", b"%02d" % number))
        for one in clients:
            told(one, b"first")
        assert proxy.counts.streams == 50
        go.set()
        for number, one in enumerate(clients):
            assert told(one, b"0\r\n\r\n").endswith(b"%02d\r\n0\r\n\r\n" % number)
            one.close()
