"""App: the proxy as ASGI. Each request goes to an upstream, rewritten if it is one that can be; each answer comes back.

No framework, as in the service: what passes has to pass byte for byte, and costs little.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

from ..failing import Failures
from ..service.body import ClientGoneError, Receive
from ..types import Usage
from .bodies import beginning
from .formats.table import api_of, generates
from .heads import Head, Headers, read_head, report_headers, with_length
from .held import Held, Room
from .problems import Busy, NotOffered, Refused, TooLarge, TooSlow, Unusable
from .refusals import refusal
from .relay import BrokenOffError, Client, Forwarded, Forwarding, Relay, Send
from .rewriting import Call, Outcome, Rewriting
from .salts import NOWHERE, salted_unread
from .settings import ProxySettings
from .upstreams import Upstreams
from .words import Api, Report

logger = logging.getLogger("contextpilot_rag")

TenantOf = Callable[[Headers], tuple[str, list[tuple[bytes, bytes]]]]

_BEGINNING = 64  # bytes of a long body that are waited for, so that a tenant's salt can come first in it
_UNREAD = 2**16  # bytes of a body that is not looked into and still kept, so that it can be sent again
_REPEATABLE = frozenset({"GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"})  # RFC 9110, 9.2.2
_MOST_LATER = 10_000  # answers that wait to be learnt from
_SHUT = 499  # what a client that went away is counted as; nobody gets it


class Counts(Protocol):
    """Counts what happens."""

    streams: int

    def took(self, api: str, status: int, seconds: float, outcome: str) -> None:
        """A request was answered: its format or "other", how, how long it was here first, and what became of it."""
        ...

    def done(self, report: Report) -> None:
        """A request was looked into."""
        ...

    def observed(self, usage: Usage | None) -> None:
        """An answer was read for what it says of its tokens."""
        ...

    def failed(self, reason: str) -> None:
        """Something of ours failed, and the request passed as it was."""
        ...


@dataclass(slots=True)
class _Course:
    """One request, as far as it has come.

    Args:
        client: who sent it.
        api: its format; None: not one that is known.
        path: of it.
        began: when.
        outcome: of looking into it; None: it was not.
        report: to be told in the answer's headers; None: nothing is.
        became: what became of it, in a word.
        status: of its answer.
        learnt: the other half hears of its answer.
        unread: more of its body may be on its way.
        waits: its client waits to be asked for its body.
        generates: an engine answers a prompt, in a format that is known or not.
        room: that its body takes up here, until its answer begins; None: it is not held.
    """

    client: Client
    api: Api | None
    path: bytes
    began: float
    outcome: Outcome | None = None
    report: Report | None = None
    became: str = "passed"
    status: int = _SHUT
    learnt: bool = False
    unread: bool = True
    waits: bool = False
    generates: bool = False
    room: Room | None = None


class ProxyApp:
    """Forwards requests.

    Args:
        settings: in force.
        rewriting: the half that knows prompts.
        upstreams: where requests go.
        tenant_of: who asks, and which headers are forwarded; it may refuse.
        counts: of what happens.
        failures: what fails inside is noted there.
    """

    def __init__(
        self,
        settings: ProxySettings,
        rewriting: Rewriting,
        upstreams: Upstreams,
        tenant_of: TenantOf = lambda headers: ("", list(headers)),
        counts: Counts | None = None,
        failures: Failures | None = None,
    ) -> None:
        self._settings = settings
        self._rewriting = rewriting
        self._upstreams = upstreams
        self._tenant_of = tenant_of
        self._counts = counts
        self._failures = failures or Failures(raises=False)
        self._relay = Relay(upstreams)
        self._later: set[asyncio.Task[None]] = set()
        self._draining = False
        self._held = Held()

    async def __call__(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        """Answer one request, as ASGI has it."""
        if scope["type"] != "http":
            return
        path = scope["raw_path"]
        course = _Course(Client(receive, send), api_of(scope["method"], path), path, time.perf_counter())
        course.generates = course.api is not None or generates(scope["method"], path)
        if self._counts is not None:
            self._counts.streams += 1
        try:
            await self._ended(course, scope, receive)
        except asyncio.CancelledError:
            course.became = "cut off"
            if not self._draining:
                raise  # else time is up, and nobody is connected any more
        finally:
            course.client.done()
            self._done(course)

    async def _ended(self, course: _Course, scope: Mapping[str, Any], receive: Receive) -> None:
        """Answer a request, or say why not, or have its client see that there is no more of an answer."""
        try:
            await self._answered(course, scope, receive)
        except ClientGoneError:
            course.became = "gone"
            await course.client.cut_off()  # of one that only closed its side nobody else knows that it is gone
        except Refused as error:
            course.became, course.status = "refused", error.status
            await self._refuse(course, error)
        except BrokenOffError as error:
            course.became = "broken off"
            if not error.closed:
                raise
        except Exception as error:  # noqa: BLE001  whatever it is: no traceback for the client, and none of ours is lost
            self._failed(error)
            course.became, course.status = "failed", 500
            await self._give_up(course)

    def drain(self) -> None:
        """Take no new requests; those that are under way go on."""
        self._draining = True

    async def drained(self) -> None:
        """All that was answered is learnt from."""
        while self._later:
            await asyncio.wait(list(self._later))

    async def _answered(self, course: _Course, scope: Mapping[str, Any], receive: Receive) -> None:
        if self._draining:
            raise Busy("the proxy is ending", headers={"connection": "close"})
        course.waits = any(name == b"expect" for name, _ in scope["headers"])
        tenant, headers = self._tenant_of(scope["headers"])
        head = read_head(headers)
        if head.websocket or scope["method"] == "CONNECT":
            raise NotOffered("this proxy forwards requests and answers; WebSockets and CONNECT are neither")
        request = await self._request(course, scope, head, tenant, receive)
        outcome = course.outcome or Outcome(b"")
        order = self._upstreams.choose(outcome.engine, outcome.tokens, outcome.beginning or outcome.chain)
        forwarded = await self._relay.forward(course.client, request, order)
        course.status = forwarded.status
        self._learn(course, forwarded)

    async def _request(
        self, course: _Course, scope: Mapping[str, Any], head: Head, tenant: str, receive: Receive
    ) -> Forwarding:
        """The request as it is to be forwarded."""
        query = scope["query_string"]
        path = course.path
        target = path + b"?" + query if query and b"?" not in path else path
        request = Forwarding(scope["method"].encode("ascii"), target, head.headers, head.shows_key)
        request.said = lambda upstream: self._answering(course, upstream)
        request.repeatable = course.generates or scope["method"] in _REPEATABLE
        body, more = await self._body(course, head, receive)
        course.unread = more
        request.body = body
        if more:
            request.streamed, request.length = True, head.length
            request.idle = self._settings.body_seconds
        else:
            course.client.watch()
        if course.report is None and course.api is not None:
            call = Call(course.api, body, tenant, head.wishes, self._upstreams.cloud)
            request.body = await self._rewritten(course, call)
            request.listen = course.outcome is not None
        elif course.generates and head.readable and not head.compressed:
            self._salt(request, tenant, course.api)
        if not more and (head.chunked or (head.length is not None and head.length != len(request.body))):
            request.headers = with_length(head.headers, len(request.body))
        return request

    def _salt(self, request: Forwarding, tenant: str, api: Api | None) -> None:
        """Keep a tenant apart in a body that is not looked into: the salt comes first in it.

        Raises:
            Unusable: there is nowhere to put it.
        """
        salt = None if self._upstreams.cloud else self._rewriting.salt(tenant)
        if salt is None:
            return
        body = salted_unread(request.body, salt)
        if body is None:
            if api is None:  # whatever it is, no engine takes it for a prompt
                return
            raise Unusable(NOWHERE)
        if request.length is not None:
            request.length += len(body) - len(request.body)
            request.headers = with_length(list(request.headers), request.length)
        request.body = body

    async def _body(self, course: _Course, head: Head, receive: Receive) -> tuple[bytes, bool]:
        """The body as far as it has to be here, and whether more follows. Sets the reason why it is not looked into."""
        most_of_all, looked = self._settings.max_body, self._settings.max_inspected
        if most_of_all is not None and (head.length or 0) > most_of_all:
            raise _too_large(most_of_all)
        if course.api is not None:
            course.report = self._unread(head)
        if not head.has_body:
            return b"", False
        read = course.api is not None and course.report is None
        if read:
            course.room = self._held.room(looked if head.length is None else head.length)
        most = looked if read else _BEGINNING if course.generates else 0
        if head.length is not None and head.length > max(most, _UNREAD):
            return await beginning(receive, most, self._settings.body_seconds) if most else (b"", True)
        if head.length is None and most_of_all is not None:  # nothing is forwarded of what may be refused
            most = most_of_all
        body, more = await beginning(receive, most if head.length is None else head.length, self._settings.body_seconds)
        if most_of_all is not None and len(body) > most_of_all:
            course.unread = more
            raise _too_large(most_of_all)
        if course.api is not None and course.report is None and (more or len(body) > looked):
            course.report = self._too_long()
        if course.room is not None:
            course.room.shrink(len(body))
        return body, more

    def _answering(self, course: _Course, upstream: str) -> list[tuple[bytes, bytes]]:
        """An answer begins, and its request is not sent again; what the headers say besides."""
        if course.room is not None:
            course.room.leave()
        return _said(course, upstream)

    def _unread(self, head: Head) -> Report | None:
        """Why a request is not looked into; None: it is."""
        if head.compressed:
            return Report(reason="its body is compressed")
        if not head.readable:
            return Report(reason="its body is not said to be JSON")
        if (head.length or 0) > self._settings.max_inspected:
            return self._too_long()
        return None

    def _too_long(self) -> Report:
        return Report(reason=f"its body is longer than {self._settings.max_inspected} bytes")

    async def _rewritten(self, course: _Course, call: Call) -> bytes:
        """The body to forward: where anything fails, the very one that came."""
        try:
            outcome = await self._rewriting.rewrite(call)
        except Refused:
            raise
        except Exception as error:
            self._failed(error)
            salt = None if call.cloud else self._rewriting.salt(call.tenant)
            body = call.raw if salt is None else salted_unread(call.raw, salt)
            if body is None:
                raise Unusable(NOWHERE) from error
            outcome = Outcome(body, Report(reason="the proxy failed; its log says why"))
        course.outcome, course.report = replace(outcome, body=b""), outcome.report  # what waits for it may take long
        course.became = "kept" if outcome.body is call.raw else "changed"
        return outcome.body

    def _learn(self, course: _Course, forwarded: Forwarded) -> None:
        """Have the other half hear how it went, once the client has its answer."""
        outcome = course.outcome
        if outcome is None:
            return
        if forwarded.status >= 400 or len(self._later) >= _MOST_LATER:
            return
        course.learnt = True
        task = asyncio.ensure_future(self._learnt(outcome, forwarded))
        self._later.add(task)
        task.add_done_callback(self._later.discard)

    async def _learnt(self, outcome: Outcome, forwarded: Forwarded) -> None:
        try:
            usage = None if forwarded.overheard is None else forwarded.overheard.usage()
            forwarded.overheard = None  # the index may take long, and this holds much of the answer
            if self._counts is not None:
                self._counts.observed(usage)
            await self._rewriting.answered(outcome, usage, forwarded.upstream)
        except Exception as error:  # noqa: BLE001  the client has its answer
            self._failed(error)

    def _done(self, course: _Course) -> None:
        """Count a request; one that was aligned and not answered will not be."""
        if course.room is not None:
            course.room.leave()
        if course.outcome is not None and not course.learnt:
            try:
                self._rewriting.failed(course.outcome)
            except Exception as error:  # noqa: BLE001  the client has what it gets
                self._failed(error)
        if self._counts is None:
            return
        self._counts.streams -= 1
        until = course.client.sent or time.perf_counter()
        self._counts.took(course.api or "other", course.status, until - course.began, course.became)
        if course.outcome is not None:
            self._counts.done(course.outcome.report)

    def _failed(self, error: Exception) -> None:
        self._failures.note(error)
        if self._counts is not None:
            self._counts.failed(type(error).__name__)

    async def _refuse(self, course: _Course, error: Refused) -> None:
        """Say why a request is not forwarded, or was not answered."""
        client = course.client
        if client.started or client.gone:
            return
        body, headers = refusal(error, course.path)
        headers += _said(course, "")
        if course.unread and course.waits:  # it was not asked: what it sends next is a body or a request, who knows
            headers.append((b"connection", b"close"))
        client.started = True
        await client.send({"type": "http.response.start", "status": error.status, "headers": headers})
        if course.unread and not isinstance(error, TooSlow):
            await client.send({"type": "http.response.body", "body": body, "more_body": True})
            await client.linger()
            body = b""
        await client.send({"type": "http.response.body", "body": body})

    async def _give_up(self, course: _Course) -> None:
        """Something of ours broke, and the request cannot pass any more."""
        if course.client.started:
            await course.client.cut_off()
            return
        error = Refused("the proxy failed; its log says why")
        error.status, error.kind = course.status, "proxy_error"
        await self._refuse(course, error)


def _said(course: _Course, upstream: str) -> list[tuple[bytes, bytes]]:
    if course.report is None:
        return []
    return report_headers(course.report, upstream, looked=course.outcome is not None)


def _too_large(most: int) -> TooLarge:
    return TooLarge(f"bodies of more than {most} bytes are not taken")
