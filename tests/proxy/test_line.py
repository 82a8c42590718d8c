"""Line: an answer is whole where it says so, whatever follows it, and of one that is not none is made up."""

import asyncio
import socket
import threading
from contextlib import suppress

import pytest

from contextpilot_rag.proxy.line import Line, LineError

from .harness import CHUNKED, SECONDS, Raw, Received, chunk, plain, proxying, told

GET = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"
REFUSAL = plain(413, b"too much", b"connection: close")


class Transport:
    """Keeps what is written, and whether reading is paused."""

    def __init__(self):
        self.written = b""
        self.paused = self.aborted = False

    def write(self, data):
        self.written += data

    def abort(self):
        self.aborted = True

    def pause_reading(self):
        self.paused = True

    def resume_reading(self):
        self.paused = False

    def get_extra_info(self, name):
        return None


def asked(loop, method=b"GET"):
    line = Line(loop, lambda line: None)
    line.connection_made(Transport())
    line.ask(GET, method=method, whole=True)
    return line


async def heard(line, *parts, closed=None):
    """Status and body of an answer that comes in parts, while somebody waits for it."""

    async def waited():
        await line.head(SECONDS)
        body, last = b"", False
        while not last:
            part, last = await line.piece(SECONDS)
            body += part
        return line.status, body

    task = asyncio.ensure_future(waited())
    await asyncio.sleep(0)  # it waits
    for part in parts:
        line.data_received(part)
    if closed is not None:
        closed()
    return await asyncio.wait_for(task, SECONDS)


def answered(*parts, method=b"GET", closed=None):
    async def run():
        line = asked(asyncio.get_running_loop(), method)
        return (*await heard(line, *parts, closed=closed and (lambda: closed(line))), line.reusable)

    return asyncio.run(run())


def end(line):
    line.eof_received()
    line.connection_lost(None)


@pytest.mark.parametrize(
    "junk",
    [
        b"junk\r\n\r\n",
        b"HTTP/1.1 101 Switching\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\npoison",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: nonsense\r\n\r\n",
        b"\x00",
    ],
)
@pytest.mark.parametrize("together", [True, False])
def test_what_follows_an_answer_makes_it_no_less_whole_and_its_connection_no_more_usable(junk, together):
    whole = plain(200, b"{}")
    status, body, reusable = answered(whole + junk) if together else answered(whole, junk)
    assert (status, body) == (200, b"{}")
    assert not reusable


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 204 No Content\r\ncontent-length: 3\r\n\r\nabc",
        b"HTTP/1.1 204 No Content\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 304 Not Modified\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    ],
)
def test_an_answer_that_has_no_body_is_whole_though_one_is_sent(answer):
    _, body, reusable = answered(answer)
    assert body == b""
    assert not reusable


def test_a_whole_answer_leaves_its_connection_to_the_next_request():
    assert answered(plain(200, b"{}")) == (200, b"{}", True)
    assert answered(CHUNKED + chunk(b"{}") + b"0\r\nx-sum: 1\r\n\r\n") == (200, b"{}", True)
    assert answered(b"HTTP/1.1 100 Continue\r\n\r\n" + plain(200, b"{}")) == (200, b"{}", True)
    assert answered(plain(200, b"{}", b"connection: close")) == (200, b"{}", False)


@pytest.mark.parametrize("method", [b"GET", b"HEAD"])
def test_an_answer_that_ends_with_its_connection_is_whole_only_if_that_was_ended_in_order(method):
    begun = b"HTTP/1.1 200 OK\r\n\r\nall of it"
    assert answered(begun, closed=end) == (200, b"all of it", False)
    with pytest.raises(LineError):
        answered(begun, closed=lambda line: line.connection_lost(ConnectionResetError()))
    with pytest.raises(LineError):
        answered(plain(200, b"{}")[:-1], closed=end)


@pytest.mark.parametrize(
    ("before", "endless"),
    [
        (b"HTTP/1.1 200 ", b"x"),
        (b"HTTP/1.1 200 OK\r\nx: ", b"x"),
        (b"HTTP/1.1 200 OK\r\n", b"x: y\r\n"),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
        (CHUNKED + b"1;", b"x"),
        (CHUNKED + b"1\r\nx\r\n0\r\nx: ", b"x"),
    ],
    ids=["reason", "header", "headers", "continues", "extension", "trailer"],
)
def test_what_is_no_body_does_not_go_on_for_ever(before, endless):
    async def run():
        line = asked(asyncio.get_running_loop())
        line.data_received(before)
        times = 0
        while not line._transport.aborted and times < 100:
            line.data_received(endless * (10_000 // len(endless)))
            times += 1
        assert 10 < times < 100
        with suppress(LineError):
            await line.piece(SECONDS)  # what came before
        with pytest.raises(LineError, match="too much"):
            await line.piece(SECONDS)

    asyncio.run(run())


def test_tiny_pieces_that_wait_hold_the_upstream_before_they_fill_memory():
    async def run():
        line = asked(asyncio.get_running_loop())
        line.data_received(CHUNKED)
        pieces = 0
        while not line._transport.paused:
            line.data_received(chunk(b"ab") * 100)
            pieces += 100
        assert pieces <= 10_000
        assert await line.piece(SECONDS) == (b"ab" * pieces, False)
        assert not line._transport.paused

    asyncio.run(run())


def early(request, one):
    """Refuse a body before it is read, and close: what was not read makes a reset of it."""
    one.sendall(REFUSAL)


@pytest.mark.parametrize("size", [200_000, 4_000_000])
def test_an_upstream_that_refuses_a_body_and_closes_is_heard_however_much_of_it_is_on_its_way(size):
    raw = Raw(early)
    raw._read = lambda one, kept: (Received(told(one, b"\r\n\r\n"), complete=True), b"")
    raw._serve = lambda one: _once(raw, one)

    def send(one):
        with suppress(OSError):
            one.sendall(b"POST /v1/files HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % size + b"x" * size)

    with raw as upstream, proxying(upstream.url) as proxy:
        for _ in range(20):  # a reset comes before or after what was said is read
            with proxy.connect() as one:
                sending = threading.Thread(target=send, args=(one,))
                sending.start()
                assert told(one, b"too much").startswith(b"HTTP/1.1 413")
                sending.join(SECONDS)


def _once(raw, one):
    """Answer one request and close at once."""
    with suppress(OSError), one:
        told(one, b"\r\n\r\n")
        one.sendall(REFUSAL)
    raw._open.remove(one) if one in raw._open else None


def test_what_was_said_before_a_reset_is_read():
    async def run():
        loop = asyncio.get_running_loop()
        here, there = socket.socketpair()
        with here, there:
            line = asked(loop)
            line._transport.get_extra_info = {"socket": here}.get
            there.sendall(REFUSAL)
            line.connection_lost(BrokenPipeError())
            await line.head(SECONDS)
            assert (line.status, await line.piece(SECONDS)) == (413, (b"too much", True))
            assert not line.reusable

    asyncio.run(run())
