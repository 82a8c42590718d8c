"""Names: the numbers of the hosts that engines' events come from.

ZeroMQ would look names up by itself, in the one thread that all its connections share: one name server that does not
answer would silence all engines. So it gets numbers only.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from ..remote.lookup import Found, Lookup

AGAIN = 2.0
"""Seconds after which a name is looked up again, if somebody still asks."""
MAX_NAMES = 4096

Find = Callable[..., Sequence[Any]]


@dataclass(slots=True)
class _Name:
    """What is known of a host."""

    looking: Future[Found] | None = None
    looked: float | None = None  # the last time
    found: list[str] = field(default_factory=list)
    why: str = ""


class Names:
    """See above. Not thread-safe, and never waits: names are looked up in threads, each by one at a time.

    Args:
        find: as `socket.getaddrinfo`, which is the default.

    >>> Names().numeric("tcp://127.0.0.1:5557", 0.0), Names().numeric("ipc:///tmp/events", 0.0)
    ('tcp://127.0.0.1:5557', 'ipc:///tmp/events')
    """

    def __init__(self, find: Find | None = None) -> None:
        self._find = find
        self._names: dict[str, _Name] = {}

    def numeric(self, address: str, now: float) -> str | None:
        """The same address with the host's number, as far as that is known by now; None: not yet, or there is none.

        Args:
            address: tcp://HOST:PORT, or ipc.
            now: seconds of a clock that never runs backwards.
        """
        host, port = _host_of(address)
        if not host:
            return address
        name = self._names.get(host)
        if name is None:
            if len(self._names) >= MAX_NAMES:
                del self._names[next(iter(self._names))]
            name = self._names[host] = _Name()
        if name.looking is None and (name.looked is None or now - name.looked >= AGAIN):
            self._look(name, host, port, now)
        if name.looking is not None and name.looking.done():
            self._take(name, now)
        return f"tcp://{name.found[0]}:{port}" if name.found else None

    def why(self, address: str) -> str:
        """Why there is no number; empty: it is being looked up, or there is one."""
        name = self._names.get(_host_of(address)[0])
        return "" if name is None or name.found else name.why

    def _look(self, name: _Name, host: str, port: int, now: float) -> None:
        found = Lookup(host, port, self._find or socket.getaddrinfo).addresses()
        name.looked = now
        if isinstance(found, Future):
            name.looking = found

    def _take(self, name: _Name, now: float) -> None:
        looking, name.looking, name.looked = name.looking, None, now
        assert looking is not None  # noqa: S101  asked before
        try:
            found = looking.result(0)
        except OSError as error:
            name.why = str(error)  # what was found before may still be right
            return
        # As ZeroMQ does, unless it is told otherwise: version 4 where there is one.
        four = [address[0] for family, address in found if family == socket.AF_INET]
        six = [f"[{address[0]}]" for family, address in found if family == socket.AF_INET6]
        numbers = four + six
        if name.found[:1] and name.found[0] in numbers:
            numbers = name.found[:1]  # where there are several, they come in any order
        name.found, name.why = numbers, "" if numbers else "it has no number"


def _host_of(address: str) -> tuple[str, int]:
    """Host and port; an empty host where there is no name to look up."""
    transport, _, rest = address.partition("://")
    host, _, port = rest.rpartition(":")
    if transport != "tcp" or host.startswith("[") or ";" in host:
        return "", 0
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return host, int(port)
    return "", 0
