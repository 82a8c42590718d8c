"""Who asks for another protocol, as Java's client does for HTTP/2, is answered as if it had not."""

from __future__ import annotations

import json
import socket
from contextlib import suppress

import pytest

from .harness import SECONDS, serving

BODY = b'{"blocks":[{"id":"a","tokens":100},{"id":"b","tokens":100}]}'
JAVA = (
    b"POST /v1/align HTTP/1.1\r\nConnection: Upgrade, HTTP2-Settings\r\nHost: localhost\r\n"
    b"HTTP2-Settings: AAEAAEAAAAIAAAABAAMAAABkAAQBAAAAAAUAAEAA\r\nUpgrade: h2c\r\nContent-Type: application/json\r\n"
)
COUNTED = JAVA + b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY
CHUNKED = JAVA + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n" % len(BODY) + BODY + b"\r\n0\r\n\r\n"
GET = b"GET /v1/stats HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"


@pytest.fixture(scope="module")
def service():
    with serving() as running:
        yield running


def answers(connection, number):
    """The statuses of so many answers, and the last body."""
    got = b""
    while got.count(b"HTTP/1.1 ") < number or not got.endswith(b"}"):
        piece = connection.recv(65_536)
        assert piece
        got += piece
    return [int(part[:3]) for part in got.split(b"HTTP/1.1 ")[1:]], json.loads(got.rpartition(b"\r\n\r\n")[2])


@pytest.mark.parametrize("step", [10**6, 200, 1])
@pytest.mark.parametrize("sent", [COUNTED, CHUNKED])
def test_a_body_is_read_whether_another_protocol_is_asked_for_or_not(service, sent, step):
    with socket.create_connection(("127.0.0.1", service.port), timeout=SECONDS) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for start in range(0, len(sent), step):
            connection.sendall(sent[start : start + step])
        status, answer = answers(connection, 1)
    assert (status, sorted(answer["order"])) == ([200], [0, 1])


def test_requests_that_follow_are_answered(service):
    with socket.create_connection(("127.0.0.1", service.port), timeout=SECONDS) as connection:
        connection.sendall(COUNTED + GET + CHUNKED + COUNTED)
        assert answers(connection, 4)[0] == [200] * 4
        connection.sendall(COUNTED)
        assert answers(connection, 1)[0] == [200]


def test_limits_hold(service):
    with socket.create_connection(("127.0.0.1", service.port), timeout=SECONDS) as connection:
        connection.sendall(GET * 200)
        with suppress(ConnectionError):
            while connection.recv(65_536):
                pass
    with socket.create_connection(("127.0.0.1", service.port), timeout=SECONDS) as connection:
        connection.sendall(JAVA + b"X: " + b"x" * 40_000 + b"\r\n\r\n")
        assert answers(connection, 1)[0] == [431]


def test_who_wants_the_connection_closed_has_it_closed(service):
    with socket.create_connection(("127.0.0.1", service.port), timeout=SECONDS) as connection:
        connection.sendall(GET.replace(b"Connection: Upgrade", b"Connection: close, Upgrade"))
        assert answers(connection, 1)[0] == [200]
        assert connection.recv(1) == b""
