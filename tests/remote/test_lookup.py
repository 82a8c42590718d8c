"""A host's name: looked up once for all, never waited for beyond the deadline, looked up again in the background."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from concurrent.futures import Future

import pytest

from contextpilot_rag import BlockRef, RemoteIndex, Request
from contextpilot_rag.errors import IndexUnreachable
from contextpilot_rag.remote import lookup
from contextpilot_rag.remote.lookup import Lookup
from tests.remote.stub import honestly, stub

FOUND = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 1))]
REQUEST = Request((BlockRef(b"a" * 16, 100),))
BOTH = pytest.mark.parametrize("awaited", [False, True], ids=["blocking", "awaited"])


def given(found):
    return found.result(30) if isinstance(found, Future) else found


def test_numbers_are_not_looked_up():
    def find(*_, **__):
        raise AssertionError

    assert Lookup("127.0.0.1", 80, find).addresses() == [(socket.AF_INET, ("127.0.0.1", 80))]
    assert Lookup("::1", 80, find).addresses() == [(socket.AF_INET6, ("::1", 80, 0, 0))]


def test_many_wait_for_one_look_up():
    go, asked = threading.Event(), []

    def find(*args, **_):
        asked.append(args)
        go.wait(30)
        return FOUND

    found = Lookup("index", 80, find)
    promises = [found.addresses() for _ in range(10)]
    assert all(isinstance(promise, Future) and not promise.cancel() for promise in promises)
    go.set()
    assert {tuple(given(promise)) for promise in promises} == {((socket.AF_INET, ("127.0.0.1", 1)),)}
    assert given(found.addresses()) == given(promises[0])
    assert len(asked) == 1


def test_what_is_old_serves_until_something_else_is_found(monkeypatch):
    monkeypatch.setattr(lookup, "FRESH_SECONDS", 0.0)
    answers = [FOUND, OSError("no network"), [(socket.AF_INET, 1, 6, "", ("127.0.0.2", 1))]]
    asked = threading.Semaphore(0)

    def find(*_, **__):
        asked.release()
        answer = answers.pop(0)
        if isinstance(answer, OSError):
            raise answer
        return answer

    found = Lookup("index", 80, find)
    first = given(found.addresses())
    assert asked.acquire(timeout=30)
    for _ in range(2):
        found._old_at = 0.0
        assert found.addresses() == first  # at once, and somebody looks
        assert asked.acquire(timeout=30)
        while found._looking is not None:
            time.sleep(0.001)
    assert given(found.addresses())[0][1] == ("127.0.0.2", 1)


@BOTH
def test_a_name_that_is_none(awaited, monkeypatch):
    def find(*_, **__):
        raise socket.gaierror("Name or service not known")

    monkeypatch.setattr(Lookup.__init__, "__defaults__", (find,))
    expected = pytest.raises(IndexUnreachable, match="Name or service not known")
    with RemoteIndex("http://index.example", timeout=20) as index, expected:
        asyncio.run(index.aalign(REQUEST)) if awaited else index.align(REQUEST)


@BOTH
def test_a_look_up_that_hangs_does_not_prolong_the_call(awaited, monkeypatch):
    go = threading.Event()

    def find(*_, **__):
        go.wait(60)
        return FOUND

    monkeypatch.setattr(Lookup.__init__, "__defaults__", (find,))
    expected = pytest.raises(IndexUnreachable, match="did not answer within 200 ms")
    with RemoteIndex("http://index.example", timeout=0.2) as index, expected:
        asyncio.run(index.aalign(REQUEST)) if awaited else index.align(REQUEST)
    assert not go.is_set()
    go.set()


@BOTH
def test_the_next_address_is_tried(awaited, monkeypatch):
    with stub(honestly) as service:
        port = int(service.address.rpartition(":")[2])
        with socket.create_server(("127.0.0.1", 0)) as taken:
            closed = taken.getsockname()[1]
        find = lambda *_, **__: [(socket.AF_INET, 1, 6, "", ("127.0.0.1", one)) for one in (closed, port)]  # noqa: E731
        monkeypatch.setattr(Lookup.__init__, "__defaults__", (find,))
        with RemoteIndex("http://index.example", timeout=20) as index:
            answer = asyncio.run(index.aalign(REQUEST)) if awaited else index.align(REQUEST)
            assert answer.order == (0,)
        assert "host: index.example\r\n" in service.asked[0].head.lower()


@BOTH
def test_a_machine_without_one_kind_of_address_uses_the_other(awaited, monkeypatch):
    class NoSix(socket.socket):
        def __init__(self, family: int = -1, *given: int, **named: int) -> None:
            if family == socket.AF_INET6:
                raise OSError(97, "Address family not supported by protocol")
            super().__init__(family, *given, **named)

    with stub(honestly) as service:
        port = int(service.address.rpartition(":")[2])
        six = (socket.AF_INET6, 1, 6, "", ("::1", port, 0, 0))
        find = lambda *_, **__: [six, (socket.AF_INET, 1, 6, "", ("127.0.0.1", port))]  # noqa: E731
        monkeypatch.setattr(Lookup.__init__, "__defaults__", (find,))
        with RemoteIndex("http://index.example", timeout=20) as index, pytest.MonkeyPatch.context() as patched:
            patched.setattr(socket, "socket", NoSix)
            answer = asyncio.run(index.aalign(REQUEST)) if awaited else index.align(REQUEST)
            assert answer.order == (0,)


@BOTH
def test_a_thread_that_cannot_be_started_is_a_failure_and_the_next_call_tries_again(awaited, monkeypatch):
    def start(_: object) -> None:
        raise RuntimeError("can't start new thread")

    with stub(honestly) as service:
        found = [(socket.AF_INET, 1, 6, "", ("127.0.0.1", int(service.address.rpartition(":")[2])))]
        monkeypatch.setattr(Lookup.__init__, "__defaults__", (lambda *_, **__: found,))
        with RemoteIndex("http://index.example", timeout=20) as index:
            with pytest.MonkeyPatch.context() as patched:
                patched.setattr(threading.Thread, "start", start)
                with pytest.raises(IndexUnreachable, match="can't start new thread"):
                    asyncio.run(index.aalign(REQUEST)) if awaited else index.align(REQUEST)
            answer = asyncio.run(index.aalign(REQUEST)) if awaited else index.align(REQUEST)
            assert answer.order == (0,)
