"""A service that always has more to say: the deadline is kept, and so is everybody else's turn in the event loop."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable
from itertools import chain, count, repeat
from types import SimpleNamespace

import pytest

from contextpilot_rag import BlockRef, RemoteIndex, Request
from contextpilot_rag.errors import IndexFailed, IndexUnreachable
from tests.remote.stub import Asked, always, honest, stub

REQUEST = Request((BlockRef(b"a" * 16, 100),))
BOTH = pytest.mark.parametrize("awaited", [False, True], ids=["blocking", "awaited"])
CHUNKS = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
EARLY = b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n"
READS = 2_000  # then it ends, so that a client that does not look at its clock ends, too


def ask(index: RemoteIndex, awaited: bool) -> None:
    asyncio.run(index.aalign(REQUEST)) if awaited else index.align(REQUEST)


@pytest.fixture
def clock(monkeypatch):
    """A clock that goes on by a second with each glance at it."""
    seconds = count()
    monkeypatch.setattr("contextpilot_rag.remote.asks.time", SimpleNamespace(monotonic=lambda: float(next(seconds))))


async def beats_during(awaitable: Awaitable[object]) -> tuple[int, object]:
    """How often another task has its turn meanwhile."""
    beats = 0

    async def beat() -> None:
        nonlocal beats
        while True:
            await asyncio.sleep(0)
            beats += 1

    beating = asyncio.ensure_future(beat())
    errors = await asyncio.gather(awaitable, return_exceptions=True)
    beating.cancel()
    return beats, errors[0]


@pytest.mark.parametrize(
    ("scheme", "first", "unit"),
    [
        ("http", CHUNKS, b"1\r\n \r\n"),
        ("http", b"", EARLY),
        ("https", b"\x16\x03\x03\x40\x00", b"\x02"),
    ],
    ids=["chunks", "early hints", "tls"],
)
async def test_what_is_always_there_to_be_read_keeps_nobody_waiting(clock, scheme, first, unit):
    parts = chain([first] if first else [], repeat(unit, READS), repeat(b""))
    reads = 0

    async def receive(*_: object):  # as a loop does: at once
        nonlocal reads
        reads += 1
        return next(parts)

    with stub(lambda *_: True) as service, pytest.MonkeyPatch.context() as patched:
        patched.setattr(asyncio.get_running_loop(), "sock_recv", receive, raising=False)
        index = RemoteIndex(service.address.replace("http", scheme), timeout=200)
        beats, error = await beats_during(index.aalign(REQUEST))
    assert isinstance(error, IndexUnreachable)
    assert "did not answer within" in str(error)
    assert 20 < reads < 300
    assert beats > reads / 8


@BOTH
def test_a_body_in_very_many_parts_does_not_prolong_the_call(clock, awaited):
    def answer(sock, asked: Asked) -> bool:
        sock.sendall(
            CHUNKS + b"".join(b"1\r\n%c\r\n" % one for one in json.dumps(honest(asked)).encode()) + b"0\r\n\r\n"
        )
        return True

    late = pytest.raises(IndexUnreachable, match="did not answer")
    with stub(answer) as service, RemoteIndex(service.address, timeout=100) as index, late:
        ask(index, awaited)


async def test_a_body_in_very_many_parts_leaves_others_their_turn():
    def answer(sock, asked: Asked) -> bool:
        body = json.dumps(honest(asked)).encode().ljust(2_600)
        sock.sendall(CHUNKS + b"".join(b"1\r\n%c\r\n" % one for one in body) + b"0\r\n\r\n")
        return True

    with stub(answer) as service, RemoteIndex(service.address, timeout=20) as index:
        whole = asyncio.get_running_loop().sock_recv
        waits = 0

        async def receive(sock, most: int) -> bytes:
            nonlocal waits
            data = bytearray()
            while len(data) < min(most, 15_000):  # in one piece
                waits += 1
                data += await whole(sock, most - len(data))
            return bytes(data)

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(asyncio.get_running_loop(), "sock_recv", receive, raising=False)
            turns = 0
            pause = asyncio.sleep

            async def counted(seconds: float) -> None:
                nonlocal turns
                turns += seconds == 0
                await pause(seconds)

            patched.setattr(asyncio, "sleep", counted)
            assert (await index.aalign(REQUEST)).order == (0,)
    assert turns >= 2_600 // 64


@BOTH
def test_an_answer_is_not_endless_in_what_is_none_of_its_body(awaited):
    expected = pytest.raises(IndexFailed, match=r"longer than .* head and all")
    with (
        stub(always(EARLY * 15_000, stays=False)) as service,
        RemoteIndex(service.address, timeout=60) as index,
        expected,
    ):
        ask(index, awaited)


@BOTH
@pytest.mark.parametrize("order", ["[" + "0," * 200_000 + "0]", "[" + "0," * 20_000 + "0]"], ids=["longer", "long"])
def test_an_order_is_not_longer_than_the_request(awaited, order):
    looked_at = []

    def answer(sock, asked: Asked) -> bool:
        body = json.dumps(honest(asked, order=[])).replace('"order": []', f'"order": {order}').encode()
        sock.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body))
        return True

    with stub(answer) as service, pytest.MonkeyPatch.context() as patched:
        patched.setattr("contextpilot_rag.remote.questions.sound", lambda *given: looked_at.append(given))
        with (
            RemoteIndex(service.address, timeout=60) as index,
            pytest.raises(IndexFailed, match=r"longer than|no order"),
        ):
            ask(index, awaited)
    assert not looked_at
