"""An answer's head and body leave together; whatever else is written, at once."""

import asyncio
import logging
import socket
import time
from typing import cast

import pytest

from contextpilot_rag.service.gathered import Gathered
from tests.service.harness import SECONDS, serving

HEAD = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n"


class Written:
    def __init__(self) -> None:
        self.packets: list[bytes] = []
        self.closed = False

    def write(self, data: bytes) -> None:
        self.packets.append(data)

    def close(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed

    def get_write_buffer_size(self) -> int:
        return 7


def test_head_and_body_are_one() -> None:
    written = Written()
    transport = Gathered(cast("asyncio.Transport", written))
    transport.write(HEAD)
    assert written.packets == []
    transport.write(b"{}")
    transport.write(b"more")
    assert written.packets == [HEAD + b"{}", b"more"]


def test_an_answer_without_a_body_is_written() -> None:
    written = Written()
    transport = Gathered(cast("asyncio.Transport", written))
    transport.write(HEAD)
    transport.write(b"")
    transport.write(HEAD)
    transport.flush()
    transport.flush()
    assert written.packets == [HEAD, HEAD]


def test_a_body_that_looks_like_a_head_is_written() -> None:
    written = Written()
    transport = Gathered(cast("asyncio.Transport", written))
    transport.write(HEAD)
    transport.write(HEAD)
    assert written.packets == [HEAD + HEAD]


def test_what_is_no_head_is_not_kept() -> None:
    written = Written()
    transport = Gathered(cast("asyncio.Transport", written))
    transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    transport.write(b"0\r\n\r\n")
    assert written.packets == [b"HTTP/1.1 100 Continue\r\n\r\n", b"0\r\n\r\n"]


def test_what_nobody_reads_is_dropped() -> None:
    written = Written()
    transport = Gathered(cast("asyncio.Transport", written))
    transport.write(HEAD)
    written.closed = True
    transport.write(b"{}")
    transport.write(HEAD)
    transport.flush()
    transport.close()
    assert written.packets == []


def test_clients_that_read_nothing_and_go_are_no_failures(caplog: pytest.LogCaptureFixture) -> None:
    ask = b"GET /v1/openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with serving() as service:
        for _ in range(5):
            with socket.socket() as connection:
                connection.settimeout(SECONDS)
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
                connection.connect(("127.0.0.1", service.port))
                connection.sendall(ask * 60)
                connection.recv(1)
                time.sleep(0.2)  # until no more can be written
        assert service.ask("GET", "/healthz").status == 200
    assert [record.getMessage() for record in caplog.records if record.levelno > logging.INFO] == []


def test_closing_writes_what_is_kept_once() -> None:
    written = Written()
    transport = Gathered(cast("asyncio.Transport", written))
    transport.write(HEAD)
    transport.close()
    transport.close()
    assert (written.packets, written.closed) == ([HEAD], True)
    assert transport.get_write_buffer_size() == 7


def test_a_client_gets_its_answer_in_one_piece() -> None:
    with serving() as served, socket.create_connection(("127.0.0.1", served.port), timeout=SECONDS) as line:
        for _ in range(3):
            line.sendall(b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
            head, _, body = line.recv(65_536).partition(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200")
            assert f"content-length: {len(body)}".encode() in head
            assert body


def test_a_client_that_waits_to_be_told_to_go_on_is_told() -> None:
    body = b'{"blocks": [{"id": "a", "tokens": 100}]}'
    lines = ["POST /v1/align HTTP/1.1", "host: 127.0.0.1", "content-type: application/json", "expect: 100-continue"]
    head = "\r\n".join([*lines, f"content-length: {len(body)}", "", ""]).encode()
    with serving() as served, socket.create_connection(("127.0.0.1", served.port), timeout=SECONDS) as line:
        line.sendall(head)
        assert line.recv(65_536) == b"HTTP/1.1 100 Continue\r\n\r\n"
        line.sendall(body)
        assert b'"order":[0]' in line.recv(65_536)
