"""An upstream in a process of its own, so that nobody waits for its processor time.

    python benchmarks/proxy_upstream.py fake|fixed

"fake" is the FakeEngine; "fixed" answers all with the same bytes, at once, and costs next to nothing. Prints its port.

The fixed one holds a stream of the model "hold" after its first event until ``/release`` is asked for, and says at
``/seen`` how many bodies began, how many came whole, and the digest of the last that did.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import sys
import threading

from contextpilot_rag.testing import FakeEngine

_USAGE = {"prompt_tokens": 7_500, "completion_tokens": 2, "total_tokens": 7_502, "prompt_tokens_details": None}
_WHOLE = {
    "id": "chatcmpl-1", "object": "chat.completion", "created": 0, "model": "fixed", "usage": _USAGE,
    "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "It is so."}}],
}  # fmt: skip
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_LARGE = 1 << 20


def _event(delta: dict[str, str], ended: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": ended}
    chunk = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 0, "model": "fixed", "choices": [choice]}
    return b"data: " + json.dumps(chunk).encode() + b"\n\n"


def _chunk(data: bytes) -> bytes:
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


def _answer(content: bytes) -> bytes:
    head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(content)}\r\n\r\n"
    return head.encode() + content


_FIXED = _answer(json.dumps(_WHOLE).encode())
_FIRST = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    + _chunk(_event({"role": "assistant", "content": "It is"}))
)  # fmt: skip
_REST = _chunk(_event({"content": " so."}, "stop")) + _chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n"


class Fixed:
    """What is common to all connections."""

    def __init__(self) -> None:
        self.begun = 0
        self.whole = 0
        self.digest = ""
        self.held: set[asyncio.StreamWriter] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                await self._answer(head, reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self.held.discard(writer)
            writer.close()

    async def _answer(self, head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        path = head.split(b" ", 2)[1]
        if path == b"/seen":
            seen = {"begun": self.begun, "whole": self.whole, "digest": self.digest, "held": len(self.held)}
            writer.write(_answer(json.dumps(seen).encode()))
            return
        if path == b"/release":
            for held in self.held:
                held.write(_REST)
            self.held.clear()
            writer.write(_answer(b"{}"))
            return
        if not head.startswith(b"POST"):
            writer.write(_answer(b'{"object": "list", "data": [{"id": "fixed", "object": "model"}]}'))
            return
        self.begun += 1
        body = await _body(head, reader)
        self.whole += 1
        if len(body) > _LARGE:
            self.digest = hashlib.sha256(body).hexdigest()
        # The fields that the benchmark's own bodies begin or end with: nobody else asks here.
        if b'"model": "hold"' in body[:200]:
            self.held.add(writer)
            writer.write(_FIRST)
        elif b'"stream": true' in body[-200:]:
            writer.write(_FIRST + _REST)
        else:
            writer.write(_FIXED)


async def _body(head: bytes, reader: asyncio.StreamReader) -> bytes:
    length = _LENGTH.search(head)
    if length is not None:
        return await reader.readexactly(int(length[1]))
    kept = []
    while size := int((await reader.readuntil(b"\r\n")).split(b";")[0], 16):
        kept.append(await reader.readexactly(size))
        await reader.readexactly(2)
    await reader.readuntil(b"\r\n")
    return b"".join(kept)


async def fixed() -> None:
    """Serve until the process is ended."""
    server = await asyncio.start_server(Fixed().serve, "127.0.0.1", 0, limit=1 << 20, backlog=2_048)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


def main() -> None:
    """Serve what the command line says."""
    if sys.argv[1:] == ["fixed"]:
        asyncio.run(fixed())
    else:
        with FakeEngine(max_requests=0) as engine:
            print(engine.base_url.rpartition(":")[2].partition("/")[0], flush=True)
            threading.Event().wait()


if __name__ == "__main__":
    main()
