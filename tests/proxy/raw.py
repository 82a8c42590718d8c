"""An upstream on a bare socket that records every byte that it gets, and what it takes to speak to bare sockets."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

SECONDS = 20.0  # whatever is awaited here has happened by then, or never will


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
