"""Whoever is answered before all of a body was read hears the answer, however the connection goes on."""

import logging
import socket
import threading
from contextlib import suppress

import pytest

from contextpilot_rag.proxy.problems import NoKey

from .harness import SECONDS, Raw, Received, ended, head_of, plain, proxying, told

SIZE = 4_000_000
POSTS = {
    "kept": b"POST /v1/files HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n",
    "closing": b"POST /v1/files HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: %d\r\n\r\n",
    "old": b"POST /v1/files HTTP/1.0\r\nhost: x\r\ncontent-length: %d\r\n\r\n",
}


def nobody(headers):
    raise NoKey("a key is needed")


def asked(proxy, post):
    """What is answered to a client that sends all of its body before it reads."""
    with proxy.connect() as one:
        one.sendall(post % SIZE + b"x" * SIZE)
        return told(one, b"}}")


@pytest.mark.parametrize("post", POSTS.values(), ids=POSTS)
def test_a_refusal_is_heard(post):
    with Raw() as upstream, proxying(upstream.url, tenant_of=nobody) as proxy:
        for _ in range(3):
            assert asked(proxy, post).startswith(b"HTTP/1.1 401")
        assert upstream.received == []


@pytest.mark.parametrize("post", POSTS.values(), ids=POSTS)
def test_an_upstreams_early_answer_is_heard(post):
    raw = Raw(plain(413, b'{"e": {}}'))
    raw._read = lambda one, kept: (Received(told(one, b"\r\n\r\n"), complete=True) if not kept else None, b"x")
    with raw as upstream, proxying(upstream.url) as proxy:
        for _ in range(3):
            assert asked(proxy, post).startswith(b"HTTP/1.1 413")


def test_a_kept_connection_goes_on_after_a_refusal():
    with Raw() as upstream, proxying(upstream.url, tenant_of=nobody) as proxy, proxy.connect() as one:
        for _ in range(3):
            one.sendall(POSTS["kept"] % SIZE + b"x" * SIZE)
            assert told(one, b"}}").startswith(b"HTTP/1.1 401")
        assert upstream.received == []


@pytest.mark.parametrize("asks", [True, False])
def test_a_client_that_was_not_asked_for_its_body_is_told_that_nothing_can_follow(asks):
    head = head_of(b"POST", b"/v1/files", (b"content-length", b"5"), *([(b"expect", b"100-continue")] if asks else []))
    with Raw() as upstream, proxying(upstream.url, tenant_of=nobody) as proxy, proxy.connect() as one:
        one.sendall(head + b"\r\n")
        answer = told(one, b"}}").lower()
        assert answer.startswith(b"http/1.1 401"), "and it was not asked"
        assert (b"connection: close" in answer) is asks


def test_who_is_still_sending_at_the_end_is_cut_off_without_a_traceback(caplog):
    with Raw() as upstream:
        with caplog.at_level(logging.ERROR), proxying(upstream.url, max_body=1_000) as proxy:
            one = proxy.connect()
            one.sendall(POSTS["kept"] % SIZE + b"begun")
            assert told(one, b"}}").startswith(b"HTTP/1.1 413")
        ended(one)
        one.close()
    assert not [record for record in caplog.records if record.exc_info]


def test_an_upload_is_not_waited_for_once_it_is_answered():
    raw = Raw(plain(413, b'{"e": {}}'))
    raw._read = lambda one, kept: (Received(told(one, b"\r\n\r\n"), complete=True) if not kept else None, b"x")
    go = threading.Event()

    def send(one):
        with suppress(OSError):
            one.sendall(POSTS["kept"] % SIZE + b"begun")
            go.wait(SECONDS)
            one.shutdown(socket.SHUT_RDWR)

    with raw as upstream, proxying(upstream.url) as proxy, proxy.connect() as one:
        sending = threading.Thread(target=send, args=(one,))
        sending.start()
        assert told(one, b"}}").startswith(b"HTTP/1.1 413")  # all of it, though the rest of the body never comes
        go.set()
        sending.join(SECONDS)
