"""Connections: how much a client may send that is no body, and how long it may take for what.

uvicorn bounds neither the size of a request's head nor the time that it takes, and flushes for ever what nobody reads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus
from typing import Any, Protocol, cast

import httptools
import msgspec
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from ..remote.wire import Problem
from .gathered import Gathered

MAX_HEAD = 32 * 2**10  # bytes of a request's head
MAX_URL = 24 * 2**10  # the longest names of a namespace and a conversation, in the longest encoding
_PIPELINE = 100  # requests that wait for the one before them; uvicorn reads on and on
_FRAMING = 8  # bytes of a chunked body's framing for each byte of it; one-byte chunks have five
_END_SECONDS = 0.05  # until it is looked again whether a body was read
_FLUSH_SECONDS = 5.0  # how long a closed connection may take to be read to its end
_GRACE_SECONDS = 5.0  # the app says first that a body is late; this ends connections where it has answered already


class Limits(Protocol):
    """What the settings of a server say of connections."""

    @property
    def max_connections(self) -> int:
        """Of all clients."""
        ...

    @property
    def header_seconds(self) -> float:
        """For a request's head."""
        ...

    @property
    def body_seconds(self) -> float:
        """For its body, and for whoever does not read an answer."""
        ...

    @property
    def idle_seconds(self) -> float:
        """Without a request."""
        ...


class Connection(HttpToolsProtocol):
    """One client's connection.

    Args:
        settings: its limits.
        config: uvicorn's.
        state: what all connections of a server share.
        refused: is told of what is refused here, and never gets to the app: status and kind of problem.
    """

    def __init__(
        self,
        settings: Limits,
        config: uvicorn.Config,
        state: ServerState,
        refused: Callable[[int, str], None],
    ) -> None:
        super().__init__(config, state, {}, asyncio.get_running_loop())
        self._refused = refused
        self.timeout_keep_alive = settings.idle_seconds  # type: ignore[assignment]
        self._settings = settings
        self._timer: asyncio.TimerHandle | None = None  # for the request that is being sent
        self._flushing: asyncio.TimerHandle | None = None  # for what is being written
        self._in_head = True
        self._begun = False  # some of a request is here
        self._whole = False  # a request came to its end, and nothing after it
        self._head = 0  # bytes of the head
        self._wire = 0  # bytes since the packet that the request began in
        self._body = 0  # bytes of the body
        self._refusal = (400, "bad-request", "no HTTP request")
        self._answered: RequestResponseCycle | None = None  # what is being answered; uvicorn knows what came last

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for a request's head, but not for long."""
        self._gathered = self.gathered(transport)
        super().connection_made(cast("asyncio.Transport", self._gathered))
        if len(self.connections) > self._settings.max_connections:
            transport.abort()
            return
        self._arm()

    def gathered(self, transport: asyncio.Transport) -> Gathered:
        """What answers are written to."""
        return Gathered(transport)

    def problem(self, status: int, kind: str, detail: str) -> tuple[str, bytes]:
        """What a refusal says: its type, and its body."""
        urn = f"urn:contextpilot-rag:problem:{kind}"
        body = msgspec.json.encode(Problem(HTTPStatus(status).phrase, status, urn, detail))
        return "application/problem+json", body

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing waits for this client any more; what is done for it ends, though other requests came after that."""
        super().connection_lost(exc)
        cycle = self._answered
        if cycle is not None and not cycle.response_complete:
            cycle.disconnected = True
            cycle.message_event.set()
        self._unset_keepalive_if_required()
        self._disarm()
        if self._flushing is not None:
            self._flushing.cancel()

    def eof_received(self) -> bool:  # type: ignore[override]
        """A client that has said all, and waits for its answer, gets it; from any other nothing is to be expected."""
        waits = self.cycle is not None and not self.cycle.response_complete and not self.cycle.more_body
        if not waits or self.scheme == "https":
            return False
        self.cycle.keep_alive = False
        self._tell_end(self.cycle)
        if self._answered is not None and self._answered is not self.cycle:
            self._tell_end(self._answered)
        return True

    def _tell_end(self, cycle: RequestResponseCycle) -> None:
        """Once the body was read, `receive` returns again: who works long on a request wants to know."""
        if cycle.response_complete or cycle.disconnected:
            return
        if cycle.message_event.is_set():  # it was not read yet
            self.loop.call_later(_END_SECONDS, self._tell_end, cycle)
        else:
            cycle.message_event.set()

    def data_received(self, data: bytes) -> None:
        """Some of a request, or several."""
        self._unset_keepalive_if_required()
        self._wire += len(data)
        self._whole = False
        try:
            self._parse(data)
        except httptools.HttpParserError:
            self._refuse(*self._refusal)
            return
        if not self._whole and not self.transport.is_closing():
            if self._timer is None:
                self._arm()
            self._check_framing()

    def on_message_begin(self) -> None:
        """A request begins."""
        super().on_message_begin()
        self._in_head, self._begun, self._whole = True, True, False
        self._head = self._wire = self._body = 0

    def on_url(self, url: bytes) -> None:
        """Some of its target."""
        self._head += len(url)
        if self._head > MAX_URL:
            self._refusal = (414, "too-long", f"a URL of more than {MAX_URL} bytes")
            raise ValueError
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header; those after the body are none that count."""
        if not self._in_head:
            return
        self._head += len(name) + len(value) + 4
        if self._head > MAX_HEAD:
            self._refusal = (431, "too-large", f"a request's head of more than {MAX_HEAD} bytes")
            raise ValueError
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """The request is known; its body may follow."""
        if self._asks_upgrade():
            return
        self._in_head = False
        self._disarm()
        if len(self.pipeline) >= _PIPELINE:
            raise ValueError
        super().on_headers_complete()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:  # noqa: ANN401
        self._answered = cycle
        super()._start_asgi_task(cycle, app)

    def on_body(self, body: bytes) -> None:
        """Some of its body."""
        self._body += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        """All of it is here."""
        if self._asks_upgrade():  # what follows the head was not looked at
            return
        self._in_head, self._begun, self._whole, self._wire = True, False, True, 0
        self._disarm()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """It was answered; the answer is on its way."""
        self._gathered.flush()
        super().on_response_complete()
        self._close_if_unread()

    def shutdown(self) -> None:
        """Close, now or after the answer that is being made."""
        super().shutdown()
        self._close_if_unread()

    def pause_writing(self) -> None:
        """The client does not read its answer."""
        super().pause_writing()
        self._abort_later(self._settings.body_seconds)

    def resume_writing(self) -> None:
        """It does."""
        super().resume_writing()
        if self._flushing is not None:
            self._flushing.cancel()
            self._flushing = None

    def timeout_keep_alive_handler(self) -> None:
        """No further request came."""
        super().timeout_keep_alive_handler()
        self._close_if_unread()

    def _parse(self, data: bytes) -> None:
        """Parse what came. Who asks for another protocol (Java, for HTTP/2) is answered as if it had not."""
        while data:
            try:
                self.parser.feed_data(data)
            except httptools.HttpParserUpgrade as at:
                if not self._asks_upgrade():  # CONNECT: what follows is of no protocol that is known here
                    if self.cycle is not None:
                        self.cycle.keep_alive = False
                    return
                data = data[at.args[0] :]
                head = self._without_upgrade()
                self.parser = httptools.HttpRequestParser(self)
                with suppress(AttributeError):  # older than httptools 0.6.3
                    self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn has it
                self.parser.feed_data(head)
            else:
                return

    def _asks_upgrade(self) -> bool:
        return self.parser.should_upgrade() and self.parser.get_method() != b"CONNECT"

    def _without_upgrade(self) -> bytes:
        """The request's head once more: only without the header the parser makes an end of the request for it."""
        method, version = self.parser.get_method(), self.parser.get_http_version().encode()
        lines = [b"%b %b HTTP/%b" % (method, self.url, version)]
        lines += [b"%b: %b" % header for header in self.headers if header[0] != b"upgrade"]
        return b"\r\n".join([*lines, b"", b""])

    def _arm(self) -> None:
        seconds = self._settings.header_seconds
        if not self._in_head:
            seconds = self._settings.body_seconds + _GRACE_SECONDS
        self._timer = self.loop.call_later(seconds, self._late)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _late(self) -> None:
        """Time is up for a request to be sent."""
        self._timer = None
        if self.pipeline or (self._in_head and self.cycle is not None and not self.cycle.response_complete):
            self._arm()  # it waits for the one before it
        elif self._in_head and self._begun:
            seconds = self._settings.header_seconds
            self._refuse(408, "too-slow", f"the request's head was not complete in {seconds:g} seconds")
        else:
            self.transport.abort()

    def _check_framing(self) -> None:
        """Chunks have sizes, extensions and trailers, which no other limit counts."""
        if self._in_head and self._wire > MAX_HEAD:
            self._refuse(431, "too-large", f"a request's head of more than {MAX_HEAD} bytes")
        elif not self._in_head and self._wire > self._body * (1 + _FRAMING) + 2 * MAX_HEAD:
            self._refuse(400, "malformed", "a body whose chunks are mostly not body")

    def _refuse(self, status: int, kind: str, detail: str) -> None:
        """Say what is wrong, if that can still be said, and close."""
        cycle = self.cycle
        under_way = cycle is not None and not cycle.response_complete
        if self.pipeline or (under_way and (self._in_head or cycle.response_started)):
            self.transport.abort()  # an answer is under way that this would end up in
            return
        if cycle is not None:
            cycle.disconnected = True
            cycle.message_event.set()
        self._disarm()
        self._refused(status, kind)
        self.transport.write(_answer(status, *self.problem(status, kind, detail)))
        self.transport.close()
        self._close_if_unread()

    def _close_if_unread(self) -> None:
        """A connection that is closed is flushed first; not for ever."""
        if self.transport.is_closing() and self.transport.get_write_buffer_size():
            self._abort_later(_FLUSH_SECONDS)

    def _abort_later(self, seconds: float) -> None:
        if self._flushing is not None:
            self._flushing.cancel()
        self._flushing = self.loop.call_later(seconds, self.transport.abort)


def _answer(status: int, media: str, body: bytes) -> bytes:
    head = (
        f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\ncontent-type: {media}\r\n"
        f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
    )
    return head.encode() + body
