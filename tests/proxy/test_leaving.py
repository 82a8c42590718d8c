"""What a request leaves behind: nothing, however it ends; and who is asked again when an upstream dies."""

import gc
import socket
import threading
import time

import pytest

from contextpilot_rag.proxy import relay
from contextpilot_rag.proxy.line import Line
from contextpilot_rag.proxy.relay import Client, Forwarding
from contextpilot_rag.proxy.upstreams import Upstream

from .harness import CHUNKED, SECONDS, Raw, chunk, ended, plain, proxying, told

CHAT = "/v1/chat/completions"
JSON = [("content-type", "application/json")]
POST = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}"


def eventually(condition):
    until = time.monotonic() + SECONDS
    while not condition() and time.monotonic() < until:
        time.sleep(0.01)
    return condition()


def left():
    """What there still is of requests and connections."""
    return [type(one).__name__ for one in gc.get_objects() if isinstance(one, (Client, Forwarding, Line))]


@pytest.fixture
def uncollected():
    """What is dropped has to go at once: a busy process looks for cycles once in ten minutes."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def whole(request, one):
    return plain()


def broken(request, one):
    one.sendall(CHUNKED + chunk(b"begun"))


def lost(request, one):
    return None


def nonsense(request, one):
    return b"nonsense\r\n\r\n"


@pytest.mark.parametrize("answer", [whole, broken, lost, nonsense])
@pytest.mark.parametrize("size", [2, 200_000], ids=["whole", "streamed"])
def test_an_answered_request_leaves_nothing_behind(answer, size, uncollected):
    body = b"{}".ljust(size)
    with Raw(answer) as upstream, proxying(upstream.url) as proxy:
        for _ in range(3):
            with proxy.connect() as one:
                one.sendall(POST.replace(b"length: 2", b"length: %d" % size)[:-2] + body)
                one.shutdown(socket.SHUT_WR)
                ended(one)
        assert eventually(lambda: proxy.counts.streams == 0)
    assert left() == []


@pytest.mark.parametrize("size", [2, 200_000], ids=["whole", "streamed"])
def test_a_request_whose_client_goes_leaves_nothing_behind(size, uncollected):
    asked = threading.Event()

    def answer(request, one):
        asked.set()
        one.recv(1)

    with Raw(answer) as upstream, proxying(upstream.url) as proxy:
        for _ in range(3):
            asked.clear()
            one = proxy.connect()
            one.sendall(POST.replace(b"length: 2", b"length: %d" % size)[:-2] + b"{}".ljust(size))
            assert asked.wait(SECONDS)
            time.sleep(0.15)  # whoever closes at once might wait for the answer
            one.close()
            assert eventually(lambda: proxy.counts.streams == 0)
    assert left() == []


def test_a_client_that_goes_is_noticed_though_it_sent_another_request_meanwhile():
    asked, gone = threading.Event(), threading.Event()

    def answer(request, one):
        asked.set()
        if one.recv(1) == b"":
            gone.set()

    with Raw(answer) as upstream, proxying(upstream.url) as proxy:
        one = proxy.connect()
        one.sendall(POST + POST)
        assert asked.wait(SECONDS)
        time.sleep(0.2)
        one.close()
        assert gone.wait(SECONDS)
        assert eventually(lambda: proxy.counts.streams == 0)
        assert len(upstream.received) == 1


def test_requests_that_came_together_are_all_answered_though_their_client_says_no_more():
    with Raw() as upstream, proxying(upstream.url) as proxy, proxy.connect() as one:
        one.sendall(POST * 3)
        one.shutdown(socket.SHUT_WR)
        assert ended(one).count(b'{"ok": true}') == 3


def test_connections_that_nobody_uses_are_ended():
    with Raw() as upstream, proxying(upstream.url) as proxy:
        one = proxy.upstreams._all[0]
        one._keepalive = 0.1
        assert proxy.ask("GET", "/v1/models").status == 200
        assert upstream.gone.wait(SECONDS)
        assert eventually(lambda: len(one) == 0)


def dying(times):
    """An upstream's answer: nothing at first, to whatever is asked of whomever."""
    asked = []

    def answer(request, one):
        asked.append(request)
        return None if len(asked) <= times else plain()

    return asked, answer


@pytest.mark.parametrize(("times", "status", "seen"), [(1, 200, 2), (2, 502, 2)])
def test_a_prompt_that_an_upstream_died_of_goes_to_one_other_and_not_to_all(times, status, seen):
    asked, answer = dying(times)
    with Raw(answer) as one, Raw(answer) as two, Raw(answer) as three, proxying(one.url, two.url, three.url) as proxy:
        reply = proxy.ask("POST", CHAT, b"{}", JSON)
        assert (reply.status, len(asked)) == (status, seen)


@pytest.mark.parametrize(("method", "seen"), [("POST", 1), ("PATCH", 1), ("GET", 2), ("PUT", 2), ("DELETE", 2)])
def test_what_must_not_happen_twice_is_not_asked_twice(method, seen):
    asked, answer = dying(1)
    with Raw(answer) as one, Raw(answer) as two, proxying(one.url, two.url) as proxy:
        reply = proxy.ask(method, "/v1/batches", b"{}", JSON)
        assert (reply.status, len(asked)) == (200 if seen == 2 else 502, seen)


def test_a_kept_connection_that_ends_after_a_while_had_the_request(monkeypatch):
    monkeypatch.setattr(relay, "_CROSSING_SECONDS", 0.05)
    asked = []

    def answer(request, one):
        asked.append(request)
        if len(asked) == 1:
            return plain()
        time.sleep(0.1)
        return None

    with Raw(answer) as upstream, proxying(upstream.url) as proxy:
        assert proxy.ask("POST", "/v1/batches", b"{}").status == 200
        assert proxy.ask("POST", "/v1/batches", b"{}").status == 502
        assert len(asked) == 2


def test_a_kept_connection_makes_room_for_one_that_is_needed():
    with (
        Raw() as one,
        Raw() as two,
        proxying(one.url, two.url, upstream_connections=1) as proxy,
    ):
        proxy.upstreams._most = 1
        for _ in range(4):  # each in turn
            assert proxy.ask("GET", "/v1/models").status == 200
        assert len(one.received) == len(two.received) == 2
        assert sum(map(len, proxy.upstreams._all)) == 1


def test_more_connections_than_there_may_be_are_refused_while_others_are_used():
    waiting = threading.Event()

    def answer(request, one):
        waiting.wait(SECONDS)
        return plain()

    with Raw(answer) as upstream, proxying(upstream.url) as proxy, proxy.connect() as one:
        proxy.upstreams._most = 1
        one.sendall(POST)
        assert eventually(lambda: len(proxy.upstreams._all[0]) == 1)
        assert proxy.ask("GET", "/v1/models").status == 503
        waiting.set()
        assert b"200 OK" in told(one, b"}")


def test_what_this_machine_lacks_is_not_said_of_the_upstream(monkeypatch):
    async def create(*given, **named):
        raise OSError(24, "Too many open files")

    with Raw() as upstream, proxying(upstream.url) as proxy:
        with monkeypatch.context() as patched:
            patched.setattr(Upstream, "_opened", create)
            reply = proxy.ask("GET", "/v1/models")
        assert reply.status == 503
        assert b"Too many open files" in reply.body
        assert proxy.upstreams.alive() == set(proxy.upstreams.names)
        assert proxy.ask("GET", "/v1/models").status == 200
