"""Clients' connections to the proxy: uploads that move are not given up, and a head does not wait for its body."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress

import pytest

from contextpilot_rag.service import protocol

from .harness import CHUNKED, Raw, chunk, ended, told
from .running import living


@pytest.fixture(autouse=True)
def no_grace(monkeypatch):
    """Nothing is added to the seconds that are set."""
    monkeypatch.setattr(protocol, "_GRACE_SECONDS", 0.0)


def client_of(proxy):
    return socket.create_connection(("127.0.0.1", proxy.port), 20)


def test_an_upload_takes_as_long_as_it_moves():
    """Three times as long as the next piece may take to come; a slow machine is given more time for each piece."""
    assert any(uploaded_slowly(seconds) for seconds in (0.2, 1.0, 5.0))


def uploaded_slowly(seconds):
    """Whether an upload arrives that takes three times so long, and of which something comes four times in them."""
    pieces = 12
    with Raw() as raw, living(upstreams=f"{raw.url} cloud=openai", body_seconds=seconds) as proxy:
        with client_of(proxy) as client, suppress(OSError):  # it was given up
            client.sendall(b"POST /v1/files HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n" % pieces)
            for _ in range(pieces):
                threading.Event().wait(seconds / 4)
                client.sendall(b"x")
            if told(client, b"\r\n\r\n").startswith(b"HTTP/1.1 200 "):
                return raw.last.body == b"x" * pieces
        return False


def test_an_answers_head_is_there_before_its_body():
    going_on = threading.Event()

    def answer(request, one):
        one.sendall(CHUNKED)
        going_on.wait(20)
        return chunk(b"data: x\n\n") + b"0\r\n\r\n"

    with Raw(answer) as raw, living(upstreams=f"{raw.url} cloud=openai") as proxy, client_of(proxy) as client:
        client.sendall(b"GET /v1/x HTTP/1.1\r\nhost: localhost\r\n\r\n")
        head = told(client, b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 ")
        assert b"data: x" not in head
        going_on.set()
        assert b"data: x" in told(client, b"0\r\n\r\n")


def test_an_upload_that_stands_still_is_given_up():
    with Raw() as raw, living(upstreams=f"{raw.url} cloud=openai", body_seconds=0.1) as proxy:
        with client_of(proxy) as client:
            client.sendall(b"POST /v1/files HTTP/1.1\r\nhost: localhost\r\ncontent-length: 5000000\r\n\r\nx")
            assert ended(client)[:13] in {b"HTTP/1.1 408 ", b""}, "the app says so, if it is first"
        assert not any(request.complete for request in raw.received)


@pytest.mark.parametrize("version", [b"HTTP/1.0", b"HTTP/1.1"])
def test_only_clients_that_know_chunks_get_them(version):
    streamed = CHUNKED + chunk(b"data: x\n\n") + chunk(b"data: y\n\n") + b"0\r\n\r\n"
    with Raw(streamed) as raw, living(upstreams=f"{raw.url} cloud=openai") as proxy, client_of(proxy) as client:
        client.sendall(b"GET /v1/x %b\r\nhost: localhost\r\nconnection: close\r\n\r\n" % version)
        head, _, body = ended(client).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 ")
        if version == b"HTTP/1.0":
            assert body == b"data: x\n\ndata: y\n\n"
            assert b"transfer-encoding" not in head.lower()
        else:
            assert body.endswith(b"0\r\n\r\n")
            assert b"transfer-encoding: chunked" in head.lower()


def test_an_answer_with_a_length_keeps_it_in_http_1_0():
    with Raw() as raw, living(upstreams=f"{raw.url} cloud=openai") as proxy, client_of(proxy) as client:
        client.sendall(b"GET /v1/x HTTP/1.0\r\nhost: localhost\r\n\r\n")
        head, _, body = ended(client).partition(b"\r\n\r\n")
        assert b"content-length: 12" in head.lower()
        assert body == b'{"ok": true}'
