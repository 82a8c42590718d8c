"""What a server does with requests that are unlike its examples: the published package's, and this one's.

Each stands before an upstream that writes down what reaches it, and is asked the same.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import peer_service

_ANSWER = json.dumps(
    {
        "id": "1",
        "object": "chat.completion",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "Yes."}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 10, "completion_tokens": 1, "total_tokens": 11},
    }
).encode()
_LARGE = 64 * 2**20  # bytes


class Upstream:
    """An engine that answers everything alike, and keeps what it was asked.

    Args:
        port: on 127.0.0.1.
    """

    def __init__(self, port: int) -> None:
        self.port = port
        self.seen: list[tuple[str, Mapping[str, str], bytes]] = []


@dataclass(frozen=True)
class Asked:
    """Where the questions go.

    Args:
        forwarding: port of what stands before the upstream.
        index: port of the index.
        upstream: what is behind it.
        align: path at which the index is given contexts.
        forget: method and path at which it forgets all.
    """

    forwarding: int
    index: int
    upstream: Upstream
    align: str
    forget: tuple[str, str]


def keys(asked: Asked) -> str:
    """Whether a stranger who shows nothing, under a name of his own for the server, may have everything forgotten."""
    method, path = asked.forget
    status, _ = _ask(asked.index, method, path, b"{}", {"Host": "index.attacker.example"})
    return "a stranger's page may have all forgotten" if status < 300 else f"refused ({status})"


def bodies(asked: Asked) -> str:
    """Bodies that are no requests: how many are answered as the server's own failure."""
    odd = [
        b"{",
        b"[]",
        b"null",
        b'{"contexts": "x", "blocks": "x"}',
        b'{"contexts": [[{"x": 1}]], "blocks": [{"x": 1}]}',
    ]
    chats = [
        b'{"model": "m", "messages": 5}',
        b'{"model": "m", "messages": [5]}',
        b'{"model": "m", "messages": [{"role": 5}]}',
    ]
    answers = [_ask(asked.index, "POST", asked.align, body) for body in odd]
    answers += [_ask(asked.forwarding, "POST", "/v1/chat/completions", body) for body in chats]
    return f"{sum(status >= 500 for status, _ in answers)} of {len(answers)} were answered with 500"


def large(asked: Asked) -> str:
    """A body of 64 MiB for the index."""
    body = b'{"contexts": [["' + b"x" * _LARGE + b'"]], "blocks": []}'
    status, _ = _ask(asked.index, "POST", asked.align, body)
    return "refused (413)" if status == 413 else f"read whole ({status})"


def passing(asked: Asked) -> str:
    """Four requests with an Authorization header: does it reach the upstream, and does the body as it was?"""
    requests = [
        ("POST", "/v1/chat/completions", b'{"model": "m", "messages": [{"role": "user", "content": "Hi"}]}'),
        ("POST", "/v1/completions", b'{"model": "m", "prompt": "Hi"}'),
        ("POST", "/v1/embeddings", b'{"model": "m", "input": "Hi"}'),
        ("GET", "/v1/models", b""),
    ]
    shown = same = 0
    for method, path, body in requests:
        _ask(asked.forwarding, method, path, body, {"Authorization": "Bearer none"})
        _, headers, arrived = asked.upstream.seen[-1]
        shown += headers.get("authorization") == "Bearer none"
        same += arrived == body
    return f"{shown} of 4 with their Authorization, {same} of 4 bodies as they came"


PROBES: dict[str, Callable[[Asked], str]] = {"keys": keys, "bodies": bodies, "large": large, "passing": passing}


@contextlib.contextmanager
def published() -> Iterator[Asked]:
    """The published package's server: index and proxy in one."""
    with _upstream() as upstream, peer_service.peer_server("--infer-api-url", _url(upstream)) as server:
        yield Asked(server.port, server.port, upstream, "/reorder", ("POST", "/reset"))


@contextlib.contextmanager
def ours() -> Iterator[Asked]:
    """Our service with a proxy in it, without keys, which is the case to compare with."""
    with _upstream() as upstream:
        command = [sys.executable, "-m", "contextpilot_rag", "serve", "--port", "0", "--upstream", _url(upstream)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        try:
            line = process.stdout.readline() if process.stdout else ""
            port = int(line.split("http://127.0.0.1:", 1)[1].split()[0].split("/")[0])
            yield Asked(port, port, upstream, "/v1/align", ("DELETE", "/v1/namespaces"))
        finally:
            process.terminate()
            process.wait(20)


def _url(upstream: Upstream) -> str:
    return f"http://127.0.0.1:{upstream.port}"


@contextlib.contextmanager
def _upstream() -> Iterator[Upstream]:
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the base class's word
            pass

        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            upstream.seen.append((self.path, {name.lower(): value for name, value in self.headers.items()}, body))
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(_ANSWER)))
            self.end_headers()
            self.wfile.write(_ANSWER)

        do_POST = do_GET  # noqa: N815  the base class's word

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    upstream = Upstream(server.server_address[1])
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield upstream
    finally:
        server.shutdown()
        server.server_close()


def _ask(port: int, method: str, path: str, body: bytes, headers: Mapping[str, str] | None = None) -> tuple[int, bytes]:
    """Status and body of an answer; a connection that is closed before all was sent has been refused."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    try:
        with contextlib.suppress(ConnectionError):  # what was said before that can still be read
            connection.request(method, path, body or None, {"Content-Type": "application/json", **(headers or {})})
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()
