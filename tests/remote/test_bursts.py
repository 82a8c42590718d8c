"""Much of one's own at a time, and connections that died silently: neither is taken for what it is not."""

from __future__ import annotations

import asyncio
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest

from contextpilot_rag import BlockRef, RemoteIndex, Request
from contextpilot_rag.errors import IndexFailed, IndexUnreachable
from contextpilot_rag.remote import transport as transport_module
from contextpilot_rag.remote.admission import CONNECTING
from contextpilot_rag.remote.asks import Deadline
from contextpilot_rag.remote.async_line import AsyncLine, _Wire
from contextpilot_rag.remote.line import Line
from tests.remote.stub import SECONDS, Asked, honestly, never, reply, stub

pytestmark = pytest.mark.usefixtures("stopped_clock")

REQUEST = Request((BlockRef(b"a" * 16, 100), BlockRef(b"b" * 16, 50)))
BOTH = pytest.mark.parametrize("awaited", [False, True], ids=["blocking", "awaited"])


def ask(index: RemoteIndex, awaited: bool) -> None:
    asyncio.run(index.aalign(REQUEST)) if awaited else index.align(REQUEST)


def at_once(index: RemoteIndex, awaited: bool, number: int) -> list[Any]:
    """So many at a time; what became of each."""
    if awaited:

        async def all_of_them() -> list[Any]:
            return await asyncio.gather(*(index.aalign(REQUEST) for _ in range(number)), return_exceptions=True)

        return asyncio.run(all_of_them())

    def one() -> Any:
        try:
            return index.align(REQUEST)
        except IndexFailed as error:
            return error

    with ThreadPoolExecutor(number) as pool:
        return [job.result(SECONDS) for job in [pool.submit(one) for _ in range(number)]]


class Together:
    """Answers nobody before so many have asked, so that as many connections are made. Some may be dead then."""

    def __init__(self, number: int) -> None:
        self._barrier = threading.Barrier(number)
        self.dead: set[int] = set()
        self.together = True

    def __call__(self, sock: Any, asked: Asked) -> bool:
        if asked.connection in self.dead:
            return never(sock, asked)
        if self.together:
            self._barrier.wait(SECONDS)
        return honestly(sock, asked)


@BOTH
def test_connections_that_died_silently_are_given_up_together(awaited):
    answer = Together(6)
    with stub(answer) as service, RemoteIndex(service.address, timeout=20) as index:
        assert not any(isinstance(one, Exception) for one in at_once(index, awaited, 6))
        assert service.connections == 6
        answer.dead, answer.together = set(range(1, 7)), False
        calls = index._own().calls
        calls.timeout = 0.2
        with pytest.raises(IndexUnreachable, match="did not answer"):
            ask(index, awaited)
        calls.timeout = 20
        ask(index, awaited)
        assert service.connections == 7
        assert len(service.asked) == 8


@BOTH
def test_an_index_that_is_left_alone_keeps_no_connection_and_tries_a_new_one(awaited, monkeypatch):
    answer = Together(4)
    with stub(answer) as service, RemoteIndex(service.address, timeout=20) as index:
        at_once(index, awaited, 4)
        answer.together = False
        service.answer = lambda sock, _: sock.sendall(reply(b"", "500 Oops"))
        for _ in range(5):
            with pytest.raises(IndexFailed):
                ask(index, awaited)
        calls = index._own().calls
        assert index.left_alone
        assert not calls.transport._idle
        assert not calls.transport._idle_async
        service.answer = answer
        made: list[Any] = []
        ask_ = transport_module.Ask
        monkeypatch.setattr("contextpilot_rag.remote.calls.Ask", lambda *given: made.append(ask_(*given)) or made[-1])
        calls.breaker._until = 0.0
        ask(index, awaited)
        ask(index, awaited)
        assert [one.fresh for one in made] == [True, False]


@BOTH
def test_who_is_to_use_a_new_connection_uses_no_kept_one(awaited):
    with stub(honestly) as service, RemoteIndex(service.address, timeout=20) as index:
        ask(index, awaited)
        transport = index._own().calls.transport
        fresh = transport_module.Ask("GET", "/", None, 20, 1_000, fresh=True)
        service.answer = lambda sock, _: sock.sendall(reply(b"{}"))
        if awaited:
            asyncio.run(transport.asend(fresh, lambda got: got))
        else:
            transport.send(fresh, lambda got: got)
        assert [asked.connection for asked in service.asked] == [1, 2]


@BOTH
def test_only_a_few_connect_at_a_time(awaited, monkeypatch):
    number = 4 * CONNECTING
    answer = Together(number)
    now, most = 0, 0
    lock = threading.Lock()

    def count(change: int) -> None:
        nonlocal now, most
        with lock:
            now += change
            most = max(most, now)

    opened: Any = Line.open
    aopened: Any = AsyncLine.open

    def counted(*given: Any) -> Any:
        count(1)
        try:
            threading.Event().wait(0.01)  # so that others would come in
            return opened(*given)
        finally:
            count(-1)

    async def acounted(*given: Any) -> Any:
        count(1)
        try:
            await asyncio.sleep(0)
            return await aopened(*given)
        finally:
            count(-1)

    monkeypatch.setattr(Line, "open", counted)
    monkeypatch.setattr(AsyncLine, "open", acounted)
    with stub(answer) as service, RemoteIndex(service.address, timeout=20) as index:
        assert not any(isinstance(one, Exception) for one in at_once(index, awaited, number))
        assert service.connections == number
    assert 1 <= most <= CONNECTING


@pytest.mark.parametrize(("turn", "waited"), [(None, True), (10.0, False), (14.0, False), (16.0, True), (19.0, True)])
def test_waiting_for_a_turn_is_not_waiting_for_the_service(turn, waited, monkeypatch):
    now = 10.0
    monkeypatch.setattr("contextpilot_rag.remote.asks.time", SimpleNamespace(monotonic=lambda: now))
    deadline = Deadline(10)
    if turn is not None:
        now = turn
        deadline.begin()
        now = 19.5
        deadline.begin()  # the first time counts
    assert deadline.waited is waited


@BOTH
def test_what_was_mostly_waiting_for_a_turn_says_nothing_of_the_service(awaited, monkeypatch):
    monkeypatch.setattr(Deadline, "waited", True)
    with stub(never) as service, RemoteIndex(service.address, timeout=0.05) as index:
        for _ in range(12):
            with pytest.raises(IndexUnreachable, match="did not answer"):  # and not: is left alone
                ask(index, awaited)
        assert not index.left_alone


@BOTH
def test_an_answer_that_there_was_no_time_to_read_is_one(awaited, monkeypatch):
    for module in ("line", "async_line"):
        monkeypatch.setattr(f"contextpilot_rag.remote.{module}.readable", lambda _: True)
    with stub(never) as service, RemoteIndex(service.address, timeout=0.05) as index:
        for _ in range(8):
            with pytest.raises(IndexUnreachable, match="did not answer"):
                ask(index, awaited)
        assert not index.left_alone


def test_what_was_not_read_is_known_when_a_connection_is_closed():
    for data, answered, unread in [(b"x", False, True), (b"", False, False), (b"x", True, False)]:
        for make in (Line, lambda sock: AsyncLine(_Wire(sock))):
            near, far = socket.socketpair()
            with far:
                far.sendall(data)
                line = make(near)
                line.answered = answered
                line.close()
                line.close()
                assert line.unread is unread


async def test_a_service_that_answers_others_meanwhile_is_alive():
    """Six calls hang, and while they do, another has its answer."""

    def answer(sock: Any, asked: Asked) -> bool:
        return never(sock, asked) if len(service.asked) <= 6 else honestly(sock, asked)

    with stub(answer) as service, RemoteIndex(service.address, timeout=1) as index:
        hanging = [asyncio.ensure_future(index.aalign(REQUEST)) for _ in range(6)]
        while len(service.asked) < 6:  # noqa: ASYNC110  a thread counts
            await asyncio.sleep(0.001)
        index._own().calls.timeout = 20
        assert (await index.aalign(REQUEST)).order == (0, 1)
        answers = await asyncio.gather(*hanging, return_exceptions=True)
        assert all(isinstance(one, IndexUnreachable) for one in answers)
        assert not index.left_alone


async def test_what_no_request_waits_for_is_in_nobodys_way():
    def answer(sock: Any, asked: Asked) -> bool:
        return honestly(sock, asked) if asked.body else never(sock, asked)

    with stub(answer) as service, RemoteIndex(service.address, timeout=20, connections=3) as index:
        hanging = [asyncio.ensure_future(index.astats()) for _ in range(40)]
        while not service.asked:  # noqa: ASYNC110  a thread counts
            await asyncio.sleep(0.001)
        assert (await index.aalign(REQUEST)).order == (0, 1)
        for one in hanging:
            one.cancel()
        await asyncio.gather(*hanging, return_exceptions=True)
