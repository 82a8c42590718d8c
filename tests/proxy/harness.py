"""A proxy on a real socket, in a thread of this process, and upstreams that record every byte that they get."""

from __future__ import annotations

import asyncio
import http.client
import socket
import ssl
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from uvicorn.server import ServerState

from contextpilot_rag.engines.engine import Engine
from contextpilot_rag.proxy.app import ProxyApp
from contextpilot_rag.proxy.connection import PatientConnection
from contextpilot_rag.proxy.rewriting import Call, Outcome, Rewriting
from contextpilot_rag.proxy.settings import ProxySettings
from contextpilot_rag.proxy.upstreams import Upstreams
from contextpilot_rag.proxy.words import Report
from contextpilot_rag.types import Usage

SECONDS = 20.0  # whatever is awaited here has happened by then, or never will


class Passing:
    """The other half of a proxy, as one that recognises nothing; what it is told is kept."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.learnt: list[tuple[Usage | None, str | None]] = []
        self.given_up = 0

    async def rewrite(self, call: Call) -> Outcome:
        self.calls.append(call)
        return Outcome(call.raw, Report(reason="nothing was recognised"))

    async def answered(self, outcome: Outcome, usage: Usage | None, engine: str | None) -> None:
        self.learnt.append((usage, engine))

    def failed(self, outcome: Outcome) -> None:
        self.given_up += 1


class Counting:
    """Counts that are lists."""

    def __init__(self) -> None:
        self.streams = 0
        self.all: list[tuple[str, int, str]] = []
        self.failures: list[str] = []

    def took(self, api: str, status: int, seconds: float, outcome: str) -> None:
        assert seconds >= 0
        self.all.append((api, status, outcome))

    def done(self, report: Report) -> None: ...

    def observed(self, usage: Usage | None) -> None: ...

    def failed(self, reason: str) -> None:
        self.failures.append(reason)


@dataclass
class Reply:
    """An answer: status, headers as they came with names in lower case, body."""

    status: int
    pairs: list[tuple[str, str]]
    body: bytes

    @property
    def headers(self) -> dict[str, str]:
        return dict(self.pairs)


@dataclass
class Proxy:
    """A proxy that runs."""

    port: int
    app: ProxyApp
    rewriting: Any
    counts: Counting
    upstreams: Upstreams
    loop: asyncio.AbstractEventLoop

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def ask(self, method: str, path: str, body: bytes | None = None, headers: Sequence[tuple[str, str]] = ()) -> Reply:
        """One request on a connection of its own."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=SECONDS)
        try:
            connection.putrequest(method, path, skip_accept_encoding=True)
            for pair in headers:
                connection.putheader(*pair)
            if body is not None:
                connection.putheader("content-length", str(len(body)))
            connection.endheaders(body)
            reply = connection.getresponse()
            return Reply(reply.status, [(name.lower(), value) for name, value in reply.getheaders()], reply.read())
        finally:
            connection.close()

    def settled(self) -> None:
        """All that was answered is learnt from."""
        asyncio.run_coroutine_threadsafe(self.app.drained(), self.loop).result(SECONDS)

    def connect(self) -> socket.socket:
        """A connection for bytes that no client sends."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=SECONDS)


@contextmanager
def proxying(
    *upstreams: str | Engine,
    rewriting: Rewriting | None = None,
    tenant_of: Any = None,
    pilot: Any = None,
    **given: Any,
) -> Iterator[Proxy]:
    """A proxy in a thread, until the block ends.

    Args:
        upstreams: addresses, or engines.
        rewriting: the half that knows prompts; None: `Passing`.
        tenant_of: who asks; None: nobody does.
        pilot: as for `Upstreams`.
        given: settings.
    """
    engines = [one if isinstance(one, Engine) else Engine(one) for one in upstreams]
    settings = ProxySettings(**{"upstreams": ", ".join(engine.url for engine in engines), "port": 0, **given})
    half: Any = Passing() if rewriting is None else rewriting

    def make() -> tuple[ProxyApp, Counting, Upstreams]:
        seconds: dict[str, Any] = {
            "connect_seconds": settings.connect_seconds,
            "answer_seconds": settings.answer_seconds,
        }
        them = Upstreams(engines, pilot, **seconds)
        counts = Counting()
        more = {} if tenant_of is None else {"tenant_of": tenant_of}
        return ProxyApp(settings, half, them, counts=counts, **more), counts, them

    ready, failed = threading.Event(), []
    made: list[tuple[Proxy, asyncio.Event]] = []

    async def serve() -> None:
        app, counts, them = make()
        ending = asyncio.Event()
        async with _listening(app, settings) as port:
            made.append((Proxy(port, app, half, counts, them, asyncio.get_running_loop()), ending))
            ready.set()
            await ending.wait()
            app.drain()
        await app.drained()
        them.close()
        await asyncio.sleep(0.01)

    def run() -> None:
        try:
            asyncio.run(serve())
        except BaseException as error:  # noqa: BLE001  raised below
            failed.append(error)
        finally:
            ready.set()

    thread = threading.Thread(target=run, name="proxy")
    thread.start()
    ready.wait(SECONDS)
    try:
        if failed:
            raise failed[0]
        yield made[0][0]
    finally:
        with suppress(RuntimeError, IndexError):
            made[0][0].loop.call_soon_threadsafe(made[0][1].set)
        thread.join(SECONDS)
    assert not thread.is_alive(), "the proxy did not end"
    if failed:
        raise failed[0]


@asynccontextmanager
async def _listening(app: ProxyApp, settings: ProxySettings) -> AsyncIterator[int]:
    """The port where an app is served, as the process does it; requests under way at the end are cut off."""
    config = uvicorn.Config(
        app, interface="asgi3", ws="none", lifespan="off", log_config=None, access_log=False, proxy_headers=False
    )
    config.load()
    state = ServerState()
    server = await asyncio.get_running_loop().create_server(
        lambda: PatientConnection(settings, config, state, lambda status, kind: None), "127.0.0.1", 0
    )
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for connection in list(state.connections):
            connection.transport.abort()
        for task in list(state.tasks):
            task.cancel()
        await asyncio.gather(*state.tasks, return_exceptions=True)


@dataclass
class Received:
    """A request as it came in, byte for byte."""

    head: bytes
    body: bytes = b""
    complete: bool = False

    @property
    def line(self) -> bytes:
        return self.head.partition(b"\r\n")[0]

    @property
    def target(self) -> bytes:
        return self.line.split(b" ")[1]

    @property
    def pairs(self) -> list[tuple[bytes, bytes]]:
        lines = self.head.split(b"\r\n")[1:]
        return [
            (name.lower(), value.strip(b" ")) for name, _, value in (line.partition(b":") for line in lines if line)
        ]

    @property
    def headers(self) -> dict[bytes, bytes]:
        return dict(self.pairs)


Answering = Callable[[Received, socket.socket], object]


def plain(status: int = 200, body: bytes = b'{"ok": true}', *headers: bytes) -> bytes:
    """An answer's bytes."""
    lines = [b"HTTP/1.1 %d Whatever" % status, b"content-length: %d" % len(body), *headers]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


def chunk(body: bytes) -> bytes:
    """A piece of an answer that comes in pieces."""
    return b"%x\r\n%b\r\n" % (len(body), body)


def head_of(method: bytes, target: bytes, *headers: tuple[bytes, bytes]) -> bytes:
    """A request's head, without its end."""
    return b"".join([b"%b %b HTTP/1.1\r\nhost: x\r\n" % (method, target), *(b"%b: %b\r\n" % pair for pair in headers)])


CHUNKED = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


@dataclass
class Raw:
    """An upstream on a bare socket, a thread for each connection.

    Args:
        answer: writes an answer; bytes to be sent, where it gives some. None ends the connection.
        tls: what encrypts; None: nothing does.
    """

    answer: Any = b""
    tls: ssl.SSLContext | None = None
    received: list[Received] = field(default_factory=list)
    gone: threading.Event = field(default_factory=threading.Event)
    connections: int = 0

    def __enter__(self) -> Raw:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._open: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()
        with suppress(OSError):  # wakes up whoever waits for a connection
            socket.create_connection(("127.0.0.1", self.port), 0.2).close()
        for one in self._open:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
        for thread in self._threads:
            thread.join(SECONDS)

    @property
    def url(self) -> str:
        return f"{'http' if self.tls is None else 'https'}://127.0.0.1:{self.port}"

    @property
    def last(self) -> Received:
        return self.received[-1]

    def _accept(self) -> None:
        while True:
            try:
                one, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            self._open.append(one)
            thread = threading.Thread(target=self._serve, args=(one,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, one: socket.socket) -> None:
        with suppress(OSError):
            if self.tls is not None:
                one = self.tls.wrap_socket(one, server_side=True)
                self._open.append(one)
            kept = b""
            while True:
                request, kept = self._read(one, kept)
                if request is None or not request.complete:
                    break
                given = self.answer(request, one) if callable(self.answer) else self.answer or plain()
                if given is None:
                    break
                one.sendall(given)
        self.gone.set()
        one.close()

    def _read(self, one: socket.socket, kept: bytes) -> tuple[Received | None, bytes]:
        while b"\r\n\r\n" not in kept:
            data = one.recv(65_536)
            if not data:
                return None, b""
            kept += data
        head, _, rest = kept.partition(b"\r\n\r\n")
        request = Received(head)
        self.received.append(request)
        parts = bytearray(rest)
        if request.headers.get(b"transfer-encoding") == b"chunked":
            return self._chunks(one, request, parts)
        length = int(request.headers.get(b"content-length", b"0"))
        while len(parts) < length:
            data = one.recv(65_536)
            if not data:
                request.body = bytes(parts)
                return request, b""
            parts += data
        request.body, request.complete = bytes(parts[:length]), True
        return request, bytes(parts[length:])

    def _chunks(self, one: socket.socket, request: Received, parts: bytearray) -> tuple[Received, bytes]:
        body = bytearray()
        while True:
            line, found, rest = bytes(parts).partition(b"\r\n")
            size = int(line, 16) if found else -1
            if found and len(rest) >= size + 2:
                body += rest[:size]
                parts = bytearray(rest[size + 2 :])
                request.body = bytes(body)
                if size == 0:
                    request.complete = True
                    return request, bytes(parts)
                continue
            data = one.recv(65_536)
            if not data:
                return request, b""
            parts += data


def told(one: socket.socket, until: bytes) -> bytes:
    """What comes on a connection up to some bytes, or to its end."""
    data = b""
    while until not in data:
        more = one.recv(65_536)
        if not more:
            break
        data += more
    return data


def ended(one: socket.socket) -> bytes:
    """What comes on a connection up to its end."""
    data = b""
    with suppress(ConnectionResetError):
        while more := one.recv(65_536):
            data += more
    return data
