"""Heads: what of a request's and an answer's headers is forwarded, what of them is ours, and what they say."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import cast, get_args
from urllib.parse import quote

from ..settings import Order
from .problems import Unusable
from .words import Labels, Lists, Report, Wishes

Headers = Sequence[tuple[bytes, bytes]]
KEYS = (b"authorization", b"x-api-key", b"api-key")  # shown to upstreams; tenants are named by them, in this order

_OURS = b"x-contextpilot"
# Of one connection, and never forwarded (RFC 9110, 7.6.1).
_HOP = frozenset(
    {b"connection", b"keep-alive", b"proxy-connection", b"te", b"trailer", b"transfer-encoding", b"upgrade"}
)
_DROPPED = _HOP | {b"host", b"expect"}  # a new Host is set, and a body that was asked for is not to be asked for again
_KEPT = frozenset({b"content-length", b"content-type", b"content-encoding"})  # whatever Connection says of them
_READ = _KEPT | {*KEYS, b"sec-websocket-key"}
_OFF = frozenset({b"off", b"0", b"false", b"no"})
_ON = frozenset({b"", b"on", b"1", b"true", b"yes"})
_LISTS = frozenset({"numbered", "headed"})
_LABELS = frozenset({"keep", "renumber"})
_ORDERS = get_args(Order)
_PLAIN = " !#$&'()*+./:;<=>?@[]^`{|}"
_CONTROL = re.compile(r"[^\t\x20-\x7e\xa0-\xff]")
_LONGEST = 4_000  # characters of one header of ours; clients take lines of 8 kB


@dataclass(slots=True)
class Head:
    """What was read in a request's headers.

    Args:
        headers: to forward, in order; a Content-Length is among them if there was one.
        length: of the body, in bytes; None: not said.
        chunked: the body comes in chunks of any number.
        readable: its body may be JSON.
        compressed: its body is.
        websocket: it asks for a WebSocket.
        shows_key: it says who asks.
        wishes: of its own headers for us.
    """

    headers: list[tuple[bytes, bytes]]
    length: int | None = None
    chunked: bool = False
    readable: bool = True
    compressed: bool = False
    websocket: bool = False
    shows_key: bool = False
    wishes: Wishes = field(default_factory=Wishes)

    @property
    def has_body(self) -> bool:
        """Whether a body follows."""
        return self.chunked or bool(self.length)


def read_head(headers: Headers) -> Head:
    """Read a request's headers; their names are in lower case.

    Raises:
        Unusable: one that this proxy has to understand makes no sense.

    >>> head = read_head([(b"host", b"a"), (b"te", b"x"), (b"content-length", b"2"), (b"x-contextpilot", b"off")])
    >>> head.headers, head.length, head.wishes.off
    ([(b'content-length', b'2')], 2, True)
    """
    head = Head([])
    kept = head.headers
    wishes: dict[bytes, bytes] = {}
    named: set[bytes] = set()
    for pair in headers:
        name, value = pair
        if name in _DROPPED:
            if name == b"connection":
                named |= _tokens(value)
            elif name == b"transfer-encoding":
                _check_chunked(value)
                head.chunked = True
            elif name == b"upgrade":
                head.websocket |= b"websocket" in value.lower()
        elif name.startswith(_OURS):
            wishes[name] = value
        else:
            if name in _READ:
                _read(head, name, value)
            kept.append(pair)
    if named:
        head.headers = [pair for pair in kept if pair[0] not in named - _KEPT]
    if head.chunked and head.length is not None:
        raise Unusable("a body cannot have both a Content-Length and a Transfer-Encoding")
    if wishes:
        head.wishes = _wishes(wishes)
    return head


def _read(head: Head, name: bytes, value: bytes) -> None:
    """Note what a header that is forwarded says."""
    if name == b"content-length":
        head.length = _length(value, head.length)
    elif name == b"content-type":
        head.readable &= _may_be_json(value)
    elif name == b"content-encoding":
        head.compressed |= value.strip().lower() not in {b"", b"identity"}
    elif name == b"sec-websocket-key":
        head.websocket = True
    else:
        head.shows_key = True


def with_length(headers: list[tuple[bytes, bytes]], length: int) -> list[tuple[bytes, bytes]]:
    """The headers with another Content-Length, where it stood.

    >>> with_length([(b"content-length", b"2"), (b"a", b"b")], 10)
    [(b'content-length', b'10'), (b'a', b'b')]
    """
    said = (b"content-length", b"%d" % length)
    for place, (name, _) in enumerate(headers):
        if name == b"content-length":
            return [*headers[:place], said, *headers[place + 1 :]]
    return [*headers, said]


def answer_headers(headers: Headers, status: int) -> list[tuple[bytes, bytes]]:
    """Those of an upstream's answer that are forwarded, as they were written.

    >>> answer_headers([(b"Connection", b"x-hop"), (b"X-Hop", b"1"), (b"Set-Cookie", b"a"), (b"Set-Cookie", b"b")], 200)
    [(b'Set-Cookie', b'a'), (b'Set-Cookie', b'b')]
    """
    dropped: frozenset[bytes] = _HOP
    if status in {204, 304}:  # it has no body, and servers count what it says of one
        dropped |= {b"content-length"}
    for name, value in headers:
        if name.lower() == b"connection":
            dropped |= _tokens(value) - _KEPT
    return [pair for pair in headers if pair[0].lower() not in dropped]


def report_headers(report: Report, upstream: str = "", *, looked: bool = True) -> list[tuple[bytes, bytes]]:
    """What the answer's headers say of what was done.

    Args:
        report: of the request.
        upstream: the name of the one that answered; empty: none did.
        looked: the request was looked into, so that there is something to count.

    >>> report_headers(Report(blocks=2, changed=True, labels=("2", "1, a")), "gpu")[0]
    (b'x-contextpilot-order', b'changed')
    >>> report_headers(Report(labels=("2", "1, a")))[-1]
    (b'x-contextpilot-labels', b'2, 1%2C a')
    """
    said: list[tuple[bytes, bytes]] = []
    if looked:
        said = [
            (b"x-contextpilot-order", b"changed" if report.changed else b"kept"),
            (b"x-contextpilot-blocks", b"%d" % report.blocks),
            (b"x-contextpilot-replaced", b"%d" % report.replaced),
            (b"x-contextpilot-left-out", b"%d" % report.left_out),
            (b"x-contextpilot-predicted-cached-tokens", b"%d" % report.predicted_cached_tokens),
        ]
    if report.reason:
        said.append((b"x-contextpilot-reason", _shown(report.reason)))
    if report.labels:
        labels = ", ".join(quote(label, safe=_PLAIN) for label in report.labels)
        if len(labels) <= _LONGEST:  # part of it would say something else
            said.append((b"x-contextpilot-labels", labels.encode("ascii")))
    if upstream:
        said.append((b"x-contextpilot-upstream", _shown(upstream)))
    return said


def _shown(text: str) -> bytes:
    return _CONTROL.sub("?", text)[:_LONGEST].strip().encode("latin-1")


def _wishes(given: dict[bytes, bytes]) -> Wishes:
    """The wishes that headers of ours name. Those that nobody knows are for later versions, and mean nothing."""
    switch = given.get(_OURS, b"").strip().lower()
    if switch not in _OFF and switch not in _ON:
        raise Unusable("x-contextpilot is off or on", "x-contextpilot")
    lists = labels = order = None
    if b"x-contextpilot-lists" in given:
        lists = frozenset(_words(given[b"x-contextpilot-lists"])) - {"none"}
        if not lists <= _LISTS:
            raise Unusable(
                "x-contextpilot-lists is numbered, headed, both with a comma, or none", "x-contextpilot-lists"
            )
    if b"x-contextpilot-labels" in given:
        labels = _text(given[b"x-contextpilot-labels"])
        if labels not in _LABELS:
            raise Unusable("x-contextpilot-labels is keep or renumber", "x-contextpilot-labels")
    if b"x-contextpilot-order" in given:
        order = _text(given[b"x-contextpilot-order"])
        if order not in _ORDERS:
            raise Unusable(f"x-contextpilot-order is one of {', '.join(_ORDERS)}", "x-contextpilot-order")
    return Wishes(
        switch in _OFF,
        cast("frozenset[Lists] | None", lists),
        cast("Labels | None", labels),
        cast("Order | None", order),
    )


def _text(value: bytes) -> str:
    return value.decode("latin-1").strip().lower()


def _words(value: bytes) -> Iterable[str]:
    return [word for word in (one.strip() for one in _text(value).split(",")) if word]


def _tokens(value: bytes) -> set[bytes]:
    return {token.strip().lower() for token in value.split(b",")}


def _length(value: bytes, before: int | None) -> int:
    if not value.isdigit() or len(value) > 18 or before is not None:
        raise Unusable("Content-Length is no number of bytes")
    return int(value)


def _check_chunked(value: bytes) -> None:
    """Any other coding would have to be undone here, or lost."""
    if value.strip().lower() != b"chunked":
        raise Unusable("of Transfer-Encoding only chunked is understood")


def _may_be_json(value: bytes) -> bool:
    if value == b"application/json":
        return True
    kind = value.partition(b";")[0].strip().lower()
    return kind in {b"", b"application/json", b"text/json"} or kind.endswith(b"+json")
