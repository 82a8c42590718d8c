"""A service that is down, slow, wrong or hostile: each call ends in time, with a named error, and loses nothing."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from contextpilot_rag import Alignment, BlockRef, ContextPilot, Namespace, OrderBudget, RemoteIndex, Request, Usage
from contextpilot_rag.errors import IndexFailed, IndexRefused, IndexUnreachable, InputError
from contextpilot_rag.remote import calls
from tests.remote.stub import Asked, Stub, always, honest, honestly, never, reply, stub

pytestmark = pytest.mark.usefixtures("stopped_clock")

A, B = BlockRef(b"a" * 16, 100), BlockRef(b"b" * 16, 50)
REQUEST = Request((A, B))


def ask(index: RemoteIndex, awaited: bool) -> Alignment:
    return asyncio.run(index.aalign(REQUEST)) if awaited else index.align(REQUEST)


@contextmanager
def against(answer: Callable[[socket.socket, Asked], bool | None], **given: Any) -> Iterator[tuple[Stub, RemoteIndex]]:
    with stub(answer) as service, RemoteIndex(service.address, **{"timeout": 5, **given}) as index:
        yield service, index


BOTH = pytest.mark.parametrize("awaited", [False, True], ids=["blocking", "awaited"])


@BOTH
def test_nothing_listens(awaited):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    index = RemoteIndex(f"http://127.0.0.1:{port}")
    with pytest.raises(IndexUnreachable, match=rf"the index at http://127.0.0.1:{port} cannot be reached: Connection"):
        ask(index, awaited)


@BOTH
@pytest.mark.usefixtures("never_late")
def test_one_that_never_answers_is_left_alone_after_five_times(awaited):
    with against(never, timeout=0.05) as (service, index):
        for _ in range(5):
            with pytest.raises(IndexUnreachable, match="did not answer within 50 ms"):
                ask(index, awaited)
        assert index.left_alone
        for _ in range(200):
            with pytest.raises(IndexUnreachable, match="left alone for another"):
                ask(index, awaited)
        assert service.connections <= 5  # one for which the machine had no time in these 50 ms is none


@BOTH
def test_one_that_hangs_up_is_left_alone_after_five_times_and_asked_once_each_time(awaited):
    with against(always(b"", stays=False)) as (service, index):
        for _ in range(20):
            with pytest.raises(IndexUnreachable):
                ask(index, awaited)
        assert len(service.asked) == service.connections == 5


@BOTH
@pytest.mark.parametrize("where", ["head", "body"])
def test_an_answer_that_drips_does_not_prolong_the_call(awaited, where):
    ended = []

    def drip(sock: socket.socket, asked: Asked) -> bool:
        answer = reply(honest(asked))
        at = 5 if where == "head" else answer.index(b"\r\n\r\n") + 8
        sock.sendall(answer[:at])
        sock.settimeout(0.01)
        for byte in answer[at:]:
            for _ in range(20):  # a byte each fifth of a second: all of them take a minute
                try:
                    if not sock.recv(1):
                        ended.append("closed")
                        return False
                except TimeoutError:
                    pass
            sock.sendall(bytes([byte]))
        ended.append("all sent")
        return True

    late = pytest.raises(IndexUnreachable, match="did not answer within 500 ms")
    with against(drip, timeout=0.5) as (_, index), late:
        ask(index, awaited)
    assert ended in ([], ["closed"])


def chunked(body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + b"%x\r\n%s\r\n" % (len(body), body)


GARBAGE = {
    "not http": b"SSH-2.0-OpenSSH_9.6\r\n" * 10,
    "no json": reply(b"<html>hotel wifi</html>"),
    "json of another kind": reply(b"[1, 2]"),
    "fields missing": reply({"ticket": "x"}),
    "nested": reply(b"[" * 100_000),
    "no utf-8": reply(b'{"ticket": "\xff"}'),
    "half": b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{",
    "endless head": b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 100_000,
    "wrong length": b"HTTP/1.1 200 OK\r\ncontent-length: -4\r\n\r\n{}",
    "redirect": reply(b"", "307 Temporary Redirect", "location: http://127.0.0.1:1/v1/align\r\n"),
    "switching": b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\n\r\n",
    "no content": b"HTTP/1.1 204 No Content\r\n\r\n",
}


@BOTH
@pytest.mark.parametrize("answer", GARBAGE.values(), ids=GARBAGE)
def test_garbage_is_a_failure_and_counts_as_one(answer, awaited):
    with against(always(answer, stays=False)) as (service, index):
        for _ in range(10):
            with pytest.raises(IndexFailed, match="the index at"):
                ask(index, awaited)
        assert index.left_alone
        assert len(service.asked) == 5


LIES = {
    "a block twice": {"order": [0, 0]},
    "a block missing": {"order": [0]},
    "a block more": {"order": [0, 1, 2]},
    "none of its blocks": {"order": [-1, 0]},
    "nothing": {"order": []},
    "another request": {"ticket": "AAAAAAAAAAAAAAAAAAAAAA"},
    "more cached than there is": {"predicted_cached_tokens": 151},
    "less than nothing": {"retrieved_cached_tokens": -1},
    "too many blocks": {"cached_blocks": 3},
    "a rule that is none": {"rule": "because"},
    "numbers as texts": {"order": ["0", "1"]},
    "fractions": {"order": [0.5, 1.5]},
}


@BOTH
@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
def test_a_service_that_lies_loses_nothing(lie, awaited):
    def lying(sock: socket.socket, asked: Asked) -> bool:
        sock.sendall(reply(honest(asked, **lie)))
        return True

    with against(lying) as (_, index):
        with pytest.raises(IndexFailed):
            ask(index, awaited)
        pilot = ContextPilot(index)
        prompt = pilot.align(["first", "second"], "?")
        assert [block.text for block in prompt.blocks] == ["first", "second"]
        assert pilot.failures == 1


def test_predictions_that_cannot_be_are_failures():
    lying = always(reply({"predicted_cached_tokens": 151}))
    with against(lying) as (_, index), pytest.raises(IndexFailed, match="predicts more"):
        index.predict(REQUEST)


@BOTH
@pytest.mark.parametrize("form", ["length", "chunks"])
def test_an_answer_without_end_is_given_up(awaited, form, monkeypatch):
    monkeypatch.setattr(calls, "MOST_BYTES", 50_000)
    big = b" " * 60_000
    answer = reply(big) if form == "length" else chunked(big)
    with against(always(answer)) as (service, index):
        with pytest.raises(IndexFailed, match="longer than 50,000 bytes"):
            ask(index, awaited)
        with pytest.raises(IndexFailed, match="longer than 50,000 bytes"):
            ask(index, awaited)
        assert service.connections == 2  # what was left of the answer is nobody's


def test_redirects_are_not_followed():
    with stub(honestly) as other:
        away = always(reply(b"", "307 Temporary Redirect", f"location: {other.address}/v1/align\r\n"))
        with (
            against(away, api_key="secret") as (_, index),
            pytest.raises(IndexRefused, match=rf"refused: 307 and sends on to {other.address}/v1/align: not followed$"),
        ):
            index.align(REQUEST)
        assert not other.asked


WRONG_PORTS = {
    "hangs up": b"",
    "alert": b"\x15\x03\x01\x00\x02\x02\x16",
    "proxy": reply(b"<html>The plain HTTP request was sent to HTTPS port</html>", "400 Bad Request"),
}


@BOTH
@pytest.mark.parametrize("answer", WRONG_PORTS.values(), ids=WRONG_PORTS)
def test_an_address_that_should_begin_with_https(answer, awaited):
    expected = pytest.raises(IndexFailed, match=r"does it speak https\?$")
    with against(always(answer, stays=False)) as (_, index), expected:
        ask(index, awaited)


@BOTH
@pytest.mark.parametrize("answer", [reply(b"no", "400 Bad Request"), GARBAGE["half"]], ids=["refuses", "half"])
def test_other_failures_say_nothing_of_https(answer, awaited):
    with against(always(answer, stays=False)) as (_, index):
        with pytest.raises(IndexFailed) as raised:
            ask(index, awaited)
        assert "https" not in str(raised.value)


@BOTH
def test_a_kept_connection_that_was_closed_meanwhile_is_no_failure(awaited):
    closing = []

    def once_each(sock: socket.socket, asked: Asked) -> bool:
        if asked.connection in closing:
            return False  # only now: the client cannot have seen it before it sent this
        closing.append(asked.connection)
        return honestly(sock, asked)

    with against(once_each) as (service, index):
        for _ in range(4):
            assert ask(index, awaited).order == (0, 1)
    tickets = [asked.json["ticket"] for asked in service.asked]
    assert [asked.connection for asked in service.asked] == [1, 1, 2, 2, 3, 3, 4]
    assert [tickets[place] == tickets[place + 1] for place in range(6)] == [False, True, False, True, False, True]


@BOTH
def test_what_was_answered_by_half_is_not_sent_again(awaited):
    def half_the_second_time(sock: socket.socket, asked: Asked) -> bool:
        if len(service.asked) == 1:
            return honestly(sock, asked)
        sock.sendall(reply(honest(asked))[:60])
        return False

    with against(half_the_second_time) as (service, index):
        ask(index, awaited)
        with pytest.raises(IndexUnreachable):
            ask(index, awaited)
        assert len(service.asked) == 2


def test_a_connection_that_was_closed_in_time_to_be_seen_is_not_used():
    with against(lambda sock, asked: honestly(sock, asked) and False) as (service, index):
        for number in range(1, 4):
            index.align(REQUEST)
            while index._own().calls.transport._idle[-1][0].usable:
                time.sleep(0.001)
            assert len(service.asked) == service.connections == number


@pytest.mark.parametrize("status", ["400 Bad Request", "401 Unauthorized", "413 Too Large", "422 Unprocessable"])
def test_a_request_that_is_at_fault_says_nothing_about_the_service(status):
    problem = {"title": "No", "status": int(status[:3]), "detail": "blocks[0]: give its\x1b[31m tokens"}
    with against(always(reply(problem, status))) as (service, index):
        for _ in range(12):
            with pytest.raises(IndexRefused, match=r"refused: 4\d\d blocks\[0\]: give its \[31m tokens") as raised:
                index.align(REQUEST)
            assert raised.value.status == int(status[:3])
        assert len(service.asked) == 12
        assert not index.left_alone


@pytest.mark.parametrize("status", ["429 Too Many", "503 Unavailable"])
def test_one_that_asks_to_be_left_alone_is_left_alone(status):
    with against(always(reply(b"", status, "retry-after: 20\r\n"))) as (service, index):
        with pytest.raises(IndexRefused) as raised:
            index.align(REQUEST)
        assert raised.value.retry_after == 20
        for _ in range(50):
            with pytest.raises(IndexUnreachable, match=r"left alone for another 20\.0 s"):
                index.align(REQUEST)
        assert len(service.asked) == 1


@pytest.mark.parametrize("asked_for", ["", "soon", "-1", "Wed, 21 Oct 2026 07:28:00 GMT", "9" * 40])
def test_odd_wishes_to_be_left_alone_are_for_a_second(asked_for):
    with against(always(reply(b"", "429 Too Many", f"retry-after: {asked_for}\r\n"))) as (_, index):
        with pytest.raises(IndexRefused):
            index.align(REQUEST)
        with pytest.raises(IndexUnreachable, match=r"another 1\.0 s"):
            index.align(REQUEST)


def test_a_service_that_fails_is_left_alone():
    with against(always(reply(b"", "500 Oops"))) as (service, index):
        for _ in range(12):
            with pytest.raises(IndexFailed):
                index.align(REQUEST)
        assert len(service.asked) == 5
        with pytest.raises(IndexRefused):  # whoever asks for these wants to know
            index.stats()
        with pytest.raises(IndexRefused):
            index.forget(Namespace("acme"))


GONE = {"title": "Not Found", "status": 404, "type": "urn:contextpilot-rag:problem:not-found"}


@BOTH
def test_a_ticket_that_is_not_known_any_more_is_no_failure(awaited):
    with against(always(reply(GONE, "404 Not Found"))) as (service, index):
        known = Alignment(REQUEST, (0, 1), ticket="A" * 22)
        for _ in range(8):
            if awaited:
                asyncio.run(index.aobserve(known, Usage(100, 10)))
            else:
                index.observe(known, Usage(100, 10))
        assert len(service.asked) == 8


@BOTH
@pytest.mark.parametrize(
    "answer",
    [
        reply(b"<html>hotel wifi</html>"),
        reply({"some": "other service"}),
        reply(b"no", "404 Not Found"),
        reply(GONE, "404 Not Found"),
    ],
    ids=["html", "other", "no path", "own"],
)
def test_what_was_not_forgotten_is_not_taken_as_forgotten(answer, awaited):
    with against(always(answer)) as (_, index), pytest.raises(IndexFailed):
        asyncio.run(index.aforget(Namespace("acme"))) if awaited else index.forget(Namespace("acme"))


def test_a_404_of_something_else_is_a_failure():
    with against(always(reply({"title": "Not Found", "status": 404}, "404 Not Found"))) as (_, index):
        with pytest.raises(IndexRefused, match="404"):
            index.observe(Alignment(REQUEST, (0, 1), ticket="A" * 22), Usage(100, 10))
        with pytest.raises(IndexRefused, match="404"):
            index.tree(Namespace("acme"))


def test_a_budget_has_no_more_places_than_the_request():
    request = Request((A, B), budget=OrderBudget("throughput", 0.0, protect_top=70_000, max_displacement=1_000_000))
    with against(honestly) as (service, index):
        assert index.align(request).order == (0, 1)
        assert service.asked[0].json["budget"]["protect_top"] == 2
        assert service.asked[0].json["budget"]["max_displacement"] == 2


def test_what_the_service_was_never_asked_is_not_reported():
    with against(honestly) as (service, index):
        index.observe(Alignment(REQUEST, (0, 1)), Usage(100, 10))
        assert not service.asked


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (Request((BlockRef(("a", 1), 10),)), "bytes, str or int for an index that is a service, not tuple"),
        (Request((BlockRef(1.0, 10),)), "not float 1.0"),
        (Request((A,), Namespace("x" * 257)), "a namespace's tenant has at most 256 characters"),
        (Request((A,), Namespace(model="\udc80")), "cannot be sent"),
    ],
)
def test_what_cannot_be_sent_is_named_and_nothing_is_asked(request_, message):
    with against(honestly) as (service, index):
        with pytest.raises(InputError, match=message):
            index.align(request_)
        assert not service.asked
        assert not index.left_alone
