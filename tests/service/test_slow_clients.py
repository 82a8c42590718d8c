"""Clients that are slow, that vanish, or that never stop: each is given up in time, and leaks nothing."""

from __future__ import annotations

import http.client
import json
import socket
import struct
import time
from contextlib import contextmanager, suppress

import pytest

from tests.until import until

from .harness import SECONDS, Served, serving

HEAD = b"POST /v1/align HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
BODY = b'{"blocks":[{"id":"a","tokens":100}]}'
WHOLE = HEAD + b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"


@pytest.fixture(scope="module")
def service():
    """Short limits; what is waited for here takes about as long."""
    with serving(header_seconds=0.4, body_seconds=0.4, idle_seconds=0.6, max_connections=20) as running:
        yield running


@pytest.fixture(scope="module")
def patient():
    """Limits that no test reaches."""
    with serving(max_connections=8, max_body=2**20) as running:
        yield running


@pytest.fixture(autouse=True)
def no_leaks(service, patient):
    yield
    for running in (service, patient):
        until(lambda running=running: not running.server.connections)
        assert running.ask("GET", "/healthz").status == 200


@contextmanager
def connected(service: Served):
    with socket.create_connection(("127.0.0.1", service.port), timeout=SECONDS) as connection:
        yield connection


def everything(connection) -> bytes:
    """All that comes until the other side closes."""
    pieces = []
    while True:
        try:
            piece = connection.recv(65_536)
        except ConnectionResetError:
            break
        if not piece:
            break
        pieces.append(piece)
    return b"".join(pieces)


def answered(connection):
    """The status of one answer, read to its end; the connection stays open."""
    reply = http.client.HTTPResponse(connection)
    reply.begin()
    reply.read()
    return reply.status


def send_until_closed(connection, piece: bytes, pause: float = 0.0) -> None:
    deadline = time.monotonic() + SECONDS
    with suppress(OSError):
        while True:
            connection.sendall(piece)
            time.sleep(pause)
            assert time.monotonic() < deadline


def status_of(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


def requests(service):
    return service.ask("GET", "/v1/stats").json()["requests"]


def test_a_client_that_says_nothing_is_closed(service):
    with connected(service) as connection:
        assert everything(connection) == b""


@pytest.mark.parametrize("begun", [b"P", b"POST /v1/align HTTP/1.1\r\nHost: loc", WHOLE[: -len(BODY) - 2]])
def test_half_a_head_is_answered_408_and_closed(service, begun):
    with connected(service) as connection:
        connection.sendall(begun)
        answer = everything(connection)
    assert status_of(answer) == 408
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["status"] == 408


def test_a_head_that_trickles_is_closed(service):
    """Each byte is in time, and the head is not."""
    with connected(service) as connection:
        connection.settimeout(0.05)
        answer = b""
        for byte in HEAD * 100:
            try:
                connection.sendall(bytes([byte]))
                answer += connection.recv(1_000)
            except TimeoutError:
                continue
            except OSError:
                break
            if answer:
                break
    assert status_of(answer) == 408


@pytest.mark.parametrize("garbage", [b"\r\n", b"\r\n\r\n"])
def test_empty_lines_keep_no_connection(service, garbage):
    with connected(service) as connection:
        connection.sendall(WHOLE)
        assert answered(connection) == 200
        send_until_closed(connection, garbage, pause=0.02)


@pytest.mark.parametrize(
    "begun",
    [HEAD + b"Content-Length: 100\r\n\r\n", HEAD + b"Content-Length: 100\r\n\r\n{", CHUNKED, CHUNKED + b"1\r\n{\r\n"],
)
def test_half_a_body_is_answered_408_and_changes_nothing(service, begun):
    before = requests(service)
    with connected(service) as connection:
        connection.sendall(begun)
        answer = everything(connection)
    assert status_of(answer) == 408
    assert b"problem+json" in answer
    assert requests(service) == before


def test_a_second_request_may_be_slow_no_more_than_the_first(service):
    with connected(service) as connection:
        connection.sendall(WHOLE)
        assert answered(connection) == 200
        connection.sendall(WHOLE[:30])
        assert status_of(everything(connection)) == 408


def test_an_idle_connection_is_closed(service):
    with connected(service) as connection:
        connection.sendall(WHOLE)
        assert answered(connection) == 200
        assert everything(connection) == b""


def test_a_client_that_said_all_and_closed_its_side_is_answered(service):
    with connected(service) as connection:
        connection.sendall(WHOLE)
        connection.shutdown(socket.SHUT_WR)
        answer = everything(connection)
    assert status_of(answer) == 200
    assert b'"order":[0]' in answer


@pytest.mark.parametrize("sent", [b"", b"POST", HEAD, WHOLE[:-3], CHUNKED])
def test_a_client_that_closes_its_side_early_is_dropped_and_changes_nothing(patient, sent):
    before = requests(patient)
    with connected(patient) as connection:
        connection.sendall(sent)
        connection.shutdown(socket.SHUT_WR)
        everything(connection)
    assert requests(patient) == before


@pytest.mark.parametrize("sent", [b"", b"POST", HEAD, WHOLE[:-3], WHOLE, WHOLE + WHOLE[:40]])
def test_a_client_that_vanishes_leaves_nothing(patient, sent):
    with connected(patient) as connection:
        connection.sendall(sent)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # a reset, no goodbye


def test_pipelined_requests_are_answered_in_order(patient):
    with connected(patient) as connection:
        requests_ = [
            HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body
            for body in (b'{"blocks":[],"key":%d}' % number for number in range(20))
        ]
        connection.sendall(b"".join(requests_))
        connection.shutdown(socket.SHUT_WR)
        answer = everything(connection)
    keys = [int(piece.partition(b'"key":')[2].rstrip(b"}")) for piece in answer.split(b"HTTP/1.1 200")[1:]]
    assert keys == list(range(20))


def test_more_connections_than_allowed_are_closed_at_once(patient):
    held = [socket.create_connection(("127.0.0.1", patient.port), timeout=SECONDS) for _ in range(8)]
    try:
        until(lambda: patient.server.connections == 8)
        with connected(patient) as connection:
            assert everything(connection) == b""
        held[0].sendall(WHOLE)
        assert answered(held[0]) == 200
    finally:
        for connection in held:
            connection.close()


def test_a_body_that_is_all_framing_is_refused(patient):
    with connected(patient) as connection:
        connection.sendall(CHUNKED)
        extension = b"1;" + b"x" * 4_000 + b"\r\n \r\n"
        send_until_closed(connection, extension)


def test_a_client_that_reads_nothing_is_given_up(service):
    """It asks and asks, until answers fill all buffers between here and there."""
    ask = b"GET /v1/openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with socket.socket() as connection:
        connection.settimeout(SECONDS)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        connection.connect(("127.0.0.1", service.port))
        for _ in range(20):
            connection.sendall(ask * 10)
            time.sleep(0.01)
        until(lambda: service.server.connections == 0)


def test_a_client_that_asks_on_without_waiting_is_closed(patient):
    with connected(patient) as connection:
        send_until_closed(connection, b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n" * 1_000)


def test_a_refused_body_that_is_still_being_sent_hears_why(patient):
    size = 8 * 2**20
    with connected(patient) as connection:
        connection.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % size)
        for _ in range(size // 2**16):
            connection.sendall(b" " * 2**16)
        answer = everything(connection)
    assert status_of(answer) == 413
    assert b"connection: close" in answer
