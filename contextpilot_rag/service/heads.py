"""What the service reads of a request's head; all else in it is ignored."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable

from .problems import Malformed, Misdirected, NotJson

_ONCE = frozenset({b"host", b"authorization", b"content-type", b"content-length"})
_WANTED = _ONCE | {b"traceparent", b"tracestate", b"transfer-encoding"}


def wanted(headers: Iterable[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    """The headers that matter, by their names in lower case.

    Raises:
        Malformed: one that may stand once stands twice: which of them counts would be a guess.
    """
    found: dict[bytes, bytes] = {}
    for name, value in headers:
        if name in _WANTED:
            if name in found and name in _ONCE:
                raise Malformed(f"two {name.decode()} headers")
            found[name] = value
    return found


def length_of(found: dict[bytes, bytes]) -> int | None:
    """The body's length, where the head says it.

    Raises:
        Malformed: it is no number.
    """
    text = found.get(b"content-length")
    if text is None:
        return None
    if not text.isdigit() or len(text) > 18:
        raise Malformed("Content-Length is no number of bytes")
    return int(text)


def check_json(found: dict[bytes, bytes]) -> None:
    """Bodies say that they are JSON: a form on some web page cannot.

    Raises:
        NotJson: it does not say so.
    """
    kind = found.get(b"content-type", b"")
    if kind != b"application/json" and kind.partition(b";")[0].strip().lower() != b"application/json":
        raise NotJson("send the body as Content-Type: application/json")


class LoopbackHosts:
    """Which Host a request without a key may name: a web page can make a name of its own point to loopback."""

    def __init__(self) -> None:
        self._known: set[bytes] = set()

    def check(self, host: bytes | None) -> None:
        """Let through who asks for a loopback address, or for localhost.

        Raises:
            Misdirected: another name.
        """
        if host in self._known:
            return
        if host is None or not is_loopback_host(host.decode("latin-1")):
            raise Misdirected("without keys this service is asked as localhost, or by a loopback address, only")
        if len(self._known) < 64:
            self._known.add(host)


def is_loopback_host(host: str) -> bool:
    """Whether a Host header's value is loopback, with or without a port.

    >>> is_loopback_host("localhost:80"), is_loopback_host("[::1]:80"), is_loopback_host("localhost.example")
    (True, True, False)
    """
    name = host[1 : host.find("]")] if host.startswith("[") else host.partition(":")[0]
    return name.lower() == "localhost" or is_loopback_address(name)


def is_loopback_address(text: str) -> bool:
    """Whether it is a loopback address, of either version of IP.

    >>> is_loopback_address("127.0.0.2"), is_loopback_address("::1"), is_loopback_address("0.0.0.0")
    (True, True, False)
    """
    try:
        return ipaddress.ip_address(text).is_loopback
    except ValueError:
        return False
