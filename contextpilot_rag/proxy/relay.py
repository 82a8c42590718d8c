"""Relay: one request on its way to an upstream, and its answer on the way back, each byte as soon as it is there."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from ..service.body import ClientGoneError, Receive, linger
from .bodies import piece
from .heads import Headers, answer_headers
from .line import LateError, Line, LineError, LostError
from .overheard import Overheard
from .problems import Refused, Unreachable, UpstreamLate
from .upstreams import UnreachableError, Upstream, Upstreams

Send = Callable[[dict[str, Any]], Awaitable[None]]
_GONE = "the client went away"
# A client that closes its side of the connection with its request has said all, and waits. Later it is all that is
# heard of one that is gone, until something is written to it; and an engine would work for nobody.
_TOGETHER_SECONDS = 0.1
_CROSSING_SECONDS = 1.0  # a kept connection that ends so soon was being closed as it was used: nobody read the request
_LINGER_BYTES = 32 * 2**20  # of a body that are read on though it is answered, so that its sender hears the answer
_LINGER_SECONDS = 2.0
_FLUSH_SECONDS = 30.0  # for a client to read what it is sent before its connection is cut off


class BrokenOffError(Exception):
    """An upstream broke off in the middle of an answer, of which the client has a part already.

    Args:
        detail: why.
        closed: the client's connection is closed, as it has to be.
    """

    def __init__(self, detail: str, *, closed: bool) -> None:
        super().__init__(detail)
        self.closed = closed


@dataclass(slots=True)
class Forwarding:
    """A request as it is to be forwarded.

    Args:
        method: of it.
        target: path and query, as the client sent them.
        headers: to send besides Host.
        shows_key: an Authorization, or the like, is among them.
        body: the whole of it; or of a streamed one, what was read.
        streamed: more of it follows.
        length: of a streamed one; None: it goes in chunks.
        idle: seconds to wait for more of a streamed one.
        said: what the answer's headers say besides, given the upstream's name.
        listen: to what the answer says of its tokens.
        repeatable: an upstream that closes without an answer may have begun with it, and another one still be asked.
    """

    method: bytes
    target: bytes
    headers: Headers
    shows_key: bool = False
    body: bytes = b""
    streamed: bool = False
    length: int | None = None
    idle: float = 60.0
    said: Callable[[str], Headers] = field(default=lambda _: ())
    listen: bool = False
    repeatable: bool = False


@dataclass(slots=True)
class Forwarded:
    """How a request was answered.

    Args:
        upstream: the name of the one that answered.
        status: of its answer.
        overheard: of the answer; None: nothing.
    """

    upstream: str
    status: int
    overheard: Overheard | None


class Client:
    """Whoever sent a request: the rest of its body, and whether it is still there.

    Args:
        receive: gives both, as ASGI has it.
        send: takes the answer.

    Attributes:
        started: some of an answer was sent.
        gone: it is not there any more.
        at: the name of the upstream that was asked last.
        sent: when that was; seconds of `time.perf_counter`.
    """

    def __init__(self, receive: Receive, send: Send) -> None:
        self.send = send
        self.started = False
        self.gone = False
        self.at = ""
        self.sent = 0.0
        self._receive = receive
        self._line: Line | None = None
        self._task: asyncio.Task[None] | None = None

    def watch(self) -> None:
        """Its body is here: whatever is awaited for it ends as soon as it goes away."""
        if self._task is None:
            self._task = asyncio.ensure_future(self._watched())

    def upload(self, line: Line, request: Forwarding, seconds: float) -> None:
        """Send the rest of its body on, while the answer is waited for."""
        self._task = asyncio.ensure_future(self._uploaded(line, request, seconds))

    def follow(self, line: Line) -> None:
        """It waits for an answer on a connection, which is closed as soon as it goes away.

        Raises:
            ClientGoneError: it is gone already.
        """
        self._line = line
        if self.gone:
            line.abort(LineError(_GONE))
            raise ClientGoneError

    def leave(self) -> None:
        """The connection is not followed any more: servers say that a client is gone once it has its answer, too."""
        self._line = None

    def done(self) -> None:
        """It has its answer, or none."""
        self._line = None
        if self._task is not None:
            self._task.cancel()
            self._task = None  # a task that was cancelled holds on to where it was, and that to this client

    async def linger(self) -> None:
        """Read and drop what it still sends: closed while it sends, a connection is reset, and the answer lost."""
        if self._task is not None:
            self._task.cancel()
        await linger(self._receive, _LINGER_BYTES, _LINGER_SECONDS)

    async def cut_off(self) -> bool:
        """Close its connection without an answer's end, so that it does not take what it has for all.

        ASGI has no word for it, so that it is done behind uvicorn's back. Gives whether that could be done.
        """
        if self._task is not None:
            self._task.cancel()
        transport = getattr(getattr(self.send, "__self__", None), "transport", None)
        if transport is None:
            return False
        transport.close()  # what it has not read yet is still sent
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._away(), _FLUSH_SECONDS)
        transport.abort()
        return True

    async def _away(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass

    async def _watched(self) -> None:
        loop = asyncio.get_running_loop()
        until = loop.time() + _TOGETHER_SECONDS
        while (await self._receive())["type"] != "http.disconnect":
            if loop.time() > until:
                break
        self._left()

    async def _uploaded(self, line: Line, request: Forwarding, seconds: float) -> None:
        try:
            await self._pump(line, request, seconds)
        except ClientGoneError:
            self._left()
            return
        except Refused as error:  # as in `LineError.again`
            line.abort(RefusedError(error.with_traceback(None)))
        except LineError as error:
            line.abort(error.again())
        except Exception as error:  # noqa: BLE001  a server's; whoever waits for the answer has to hear of it
            line.abort(LineError(f"the body could not be read: {type(error).__name__}"))
        await self._watched()

    async def _pump(self, line: Line, request: Forwarding, seconds: float) -> None:
        left = request.length
        part, more = request.body, True
        while True:
            if part:
                await line.send(part if left is not None else b"%x\r\n%b\r\n" % (len(part), part), seconds)
            if left is not None:
                left -= len(part)
                if left < 0:
                    raise ClientGoneError
            if not more:
                break
            part, more = await piece(self._receive, request.idle)
        if left:  # the rest never comes: an upstream must not take it for whole
            raise ClientGoneError
        line.uploaded = True
        await line.send(b"" if left is not None else b"0\r\n\r\n", seconds)

    def _left(self) -> None:
        self.gone = True
        if self._line is not None:
            self._line.abort(LineError(_GONE))


class RefusedError(LineError):
    """What is refused of a body while it is on its way."""

    def __init__(self, refused: Refused) -> None:
        super().__init__(str(refused))
        self.refused = refused

    def again(self) -> RefusedError:
        """The same once more."""
        return RefusedError(self.refused)


class Relay:
    """Forwards requests.

    Args:
        upstreams: where they go.
    """

    def __init__(self, upstreams: Upstreams) -> None:
        self._upstreams = upstreams
        self._seconds = upstreams.answer_seconds

    async def forward(self, client: Client, request: Forwarding, order: Sequence[Upstream]) -> Forwarded:
        """Send a request, and its answer back.

        Args:
            client: who sent it.
            request: as it is to be sent.
            order: of the upstreams to try.

        Raises:
            ClientGoneError: the client went away; whatever was on its way was given up.
            Refused: nothing was answered yet, and why.
            BrokenOffError: the answer broke off.
        """
        if not request.streamed:
            client.watch()
        try:
            upstream, line = await self._begun(client, request, order)
            if not request.streamed:
                request.body = b""  # it is not sent again, and the answer may take long
            try:
                return await self._answer(client, request, upstream, line)
            finally:
                client.leave()
                upstream.keep(line)
        except LineError as error:
            error.__traceback__ = None  # as in `LineError.again`
            if client.gone:
                raise ClientGoneError from None
            if client.started:
                raise BrokenOffError(error.detail, closed=await client.cut_off()) from None
            raise _refusal(client, error) from None
        finally:
            client.done()

    async def _begun(self, client: Client, request: Forwarding, order: Sequence[Upstream]) -> tuple[Upstream, Line]:
        """The answer as it begins, of the first upstream that there is a connection to.

        One that closes without an answer may have died of the request: one other is asked, and not all of them.

        Raises:
            LineError: there is none, or it gives no answer.
        """
        why: LineError | None = None
        for upstream in order:
            try:
                return upstream, await self._asked(client, request, upstream)
            except UnreachableError as error:
                why = why or error.again()
            except LostError as error:
                if isinstance(why, LostError) or request.streamed or not request.repeatable or client.gone:
                    raise
                why = error.again()
        raise LineError("there is none") if why is None else why.again()

    async def _asked(self, client: Client, request: Forwarding, upstream: Upstream) -> Line:
        """The connection on which an upstream begins to answer: one that was kept, if there is one.

        Raises:
            LineError: there is none, or no answer.
        """
        line = None if request.streamed else upstream.kept()
        if line is not None:
            try:
                await self._ask(client, request, upstream, line)
            except LostError:
                if client.gone or time.perf_counter() - client.sent > _CROSSING_SECONDS:
                    raise
            else:
                return line
        line = await self._upstreams.connect(upstream)
        await self._ask(client, request, upstream, line)
        return line

    async def _ask(self, client: Client, request: Forwarding, upstream: Upstream, line: Line) -> None:
        """Wait until an answer begins.

        Raises:
            LineError: it does not.
        """
        client.at = upstream.name
        client.sent = time.perf_counter()
        try:
            client.follow(line)
            head = _head(request, upstream)
            if request.streamed:
                line.ask(head, method=request.method, whole=False)
                client.upload(line, request, self._seconds)
            else:
                line.ask(head + request.body, method=request.method, whole=True)
            await line.head(self._seconds)
        except BaseException:
            line.abort()
            raise

    async def _answer(self, client: Client, request: Forwarding, upstream: Upstream, line: Line) -> Forwarded:
        """Send the answer on.

        Raises:
            LineError: the rest of it does not come.
        """
        status, headers = line.status, answer_headers(line.headers, line.status)
        overheard = Overheard(headers) if request.listen and status < 400 else None
        headers += request.said(upstream.name)
        client.started = True
        send = client.send
        await send({"type": "http.response.start", "status": status, "headers": headers})
        if not line.ready:  # the head is not to wait for what follows it
            await send({"type": "http.response.body", "body": b"", "more_body": True})
        last = False
        while not last:
            part, last = await line.piece(self._seconds)
            if overheard is not None:
                overheard.add(part)
            if last and not line.uploaded:  # it was answered early
                await send({"type": "http.response.body", "body": part, "more_body": True})
                await client.linger()
                part = b""
            await send({"type": "http.response.body", "body": part, "more_body": not last})
        return Forwarded(upstream.name, status, overheard)


def _refusal(client: Client, error: LineError) -> Refused:
    """What to say where there is no answer."""
    if isinstance(error, RefusedError):
        return error.refused
    if isinstance(error, UnreachableError):
        return Unreachable(f"no upstream can be reached: {error.detail}")
    if isinstance(error, LateError):
        return UpstreamLate(f"the upstream {client.at} gave no answer: {error.detail}")
    return Unreachable(f"the upstream {client.at} gave no answer: {error.detail}")


def _head(request: Forwarding, upstream: Upstream) -> bytes:
    """A request's head as it is written."""
    lines = [b"%b %b%b HTTP/1.1\r\nhost: %b" % (request.method, upstream.root, request.target, upstream.host)]
    lines += [b"%b: %b" % pair for pair in request.headers]
    if upstream.key is not None and not request.shows_key:
        lines.append(b"%b: %b" % upstream.key)
    if request.streamed and request.length is None:
        lines.append(b"transfer-encoding: chunked")
    lines.append(b"\r\n")
    return b"\r\n".join(lines)
