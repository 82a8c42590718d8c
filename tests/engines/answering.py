"""A small HTTP server that answers as a test says, for what is asked of an engine beside requests for answers."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from contextpilot_rag.engines.engine import Engine


@dataclass
class Asked:
    """What came in."""

    method: str
    path: str
    headers: dict[str, str]
    body: Any


@dataclass
class Answering:
    """Answers: by path, with a status and JSON or text, or with a function that makes them of what is asked."""

    engine: Engine = field(init=False)
    asked: list[Asked] = field(default_factory=list)

    @property
    def paths(self) -> list[str]:
        return [one.path for one in self.asked]


Answer = tuple[int, Any]
Answers = dict[str, Answer | Callable[[Asked], Answer]]


@contextmanager
def answering(answers: Answers, path: str = "", **engine: Any) -> Iterator[Answering]:
    """A server on 127.0.0.1; paths it has no answer for are answered with 404."""
    told = Answering()
    connections: list[socket.socket] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = 30

        def setup(self) -> None:
            super().setup()
            connections.append(self.connection)

        def do_GET(self) -> None:
            length = int(self.headers.get("content-length") or 0)
            body = json.loads(self.rfile.read(length)) if length else None
            headers = {name.lower(): value for name, value in self.headers.items()}
            asked = Asked(self.command, self.path, headers, body)
            told.asked.append(asked)
            answer = answers.get(self.path, (404, {"detail": "Not Found"}))
            status, content = answer(asked) if callable(answer) else answer
            text = content if isinstance(content, bytes) else json.dumps(content).encode()
            self.send_response(status)
            for name, value in (("content-length", str(len(text))), ("retry-after", "7")):
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(text)

        do_POST = do_GET  # noqa: N815

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.block_on_close = False
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    told.engine = Engine(f"http://127.0.0.1:{server.server_address[1]}{path}", **engine)
    try:
        yield told
    finally:
        server.shutdown()
        server.server_close()
        for connection in connections:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        thread.join(10)
