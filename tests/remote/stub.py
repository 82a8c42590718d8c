"""A server that answers as a test says: wrongly, slowly, by halves, or not at all."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

SECONDS = 30.0


@dataclass
class Asked:
    """A request, and where it came from."""

    connection: int
    head: str
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Stub:
    """What came in. `answer` writes to the socket; the connection ends when it returns False."""

    address: str
    answer: Callable[[socket.socket, Asked], bool | None]
    asked: list[Asked] = field(default_factory=list)
    connections: int = 0
    ended: threading.Event = field(default_factory=threading.Event)

    def serve(self, sock: socket.socket, number: int) -> None:
        with contextlib.suppress(OSError, ValueError), sock:
            stream = sock.makefile("rb")
            with stream:
                while True:
                    head = b""
                    while not head.endswith(b"\r\n\r\n"):
                        line = stream.readline()
                        if not line:
                            return
                        head += line
                    text = head.decode("latin-1")
                    length = 0
                    for header in text.lower().split("\r\n"):
                        if header.startswith("content-length:"):
                            length = int(header.split(":")[1])
                    asked = Asked(number, text, stream.read(length))
                    self.asked.append(asked)
                    if self.answer(sock, asked) is False:
                        return


@contextmanager
def stub(answer: Callable[[socket.socket, Asked], bool | None]) -> Iterator[Stub]:
    listening = socket.create_server(("127.0.0.1", 0))
    made = Stub(f"http://127.0.0.1:{listening.getsockname()[1]}", answer)
    threads: list[threading.Thread] = []
    socks: list[socket.socket] = []

    def accept() -> None:
        while True:
            try:
                sock, _ = listening.accept()
            except OSError:
                return
            if made.ended.is_set():
                sock.close()
                return
            made.connections += 1
            socks.append(sock)
            threads.append(threading.Thread(target=made.serve, args=(sock, made.connections)))
            threads[-1].start()

    accepting = threading.Thread(target=accept)
    accepting.start()
    try:
        yield made
    finally:
        made.ended.set()
        with contextlib.suppress(OSError):  # wakes the one who accepts
            socket.create_connection(("127.0.0.1", listening.getsockname()[1]), 5).close()
        accepting.join(SECONDS)
        listening.close()
        for sock in socks:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        for thread in threads:
            thread.join(SECONDS)
            assert not thread.is_alive()
        for sock in socks:
            sock.close()


def reply(body: bytes | dict[str, Any], status: str = "200 OK", headers: str = "") -> bytes:
    text = body if isinstance(body, bytes) else json.dumps(body).encode()
    return (
        f"HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {len(text)}\r\n{headers}\r\n"
    ).encode() + text


def honest(asked: Asked, **instead: Any) -> dict[str, Any]:
    """What a service without any knowledge answers to an align, or something else."""
    blocks = asked.json["blocks"]
    return {
        "ticket": asked.json["ticket"],
        "order": list(range(len(blocks))),
        "labels": list(range(1, len(blocks) + 1)),
        "cached_blocks": 0,
        "predicted_cached_tokens": 0,
        "retrieved_cached_tokens": 0,
        "rule": "nothing_gained",
        "reason": "",
        **instead,
    }


def always(data: bytes, *, stays: bool = True) -> Callable[[socket.socket, Asked], bool]:
    def answer(sock: socket.socket, _: Asked) -> bool:
        sock.sendall(data)
        return stays

    return answer


def never(sock: socket.socket, asked: Asked) -> bool:
    sock.recv(1)  # until it is closed
    return False


def honestly(sock: socket.socket, asked: Asked) -> bool:
    sock.sendall(reply(honest(asked)))
    return True
