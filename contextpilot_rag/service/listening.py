"""Where the service may listen, and its socket there."""

from __future__ import annotations

import os
import socket
from typing import Protocol

from ..errors import SettingsError
from .heads import is_loopback_address

_BACKLOG = 1024
OPEN = (
    "others can reach this service there, and it has no keys; make some with `contextpilot-rag keys add --file FILE "
    "--tenant NAME` and give --keys FILE (or CONTEXTPILOT_SERVE_KEYS), or listen on 127.0.0.1"
)


class Place(Protocol):
    """Where a server listens."""

    @property
    def host(self) -> str:
        """Its address."""
        ...

    @property
    def port(self) -> int:
        """0: a free one."""
        ...


def check_address(place: Place, closed: str) -> None:
    """Without keys whoever reaches the address is served: so nobody else's machine may.

    Args:
        place: where it is to listen.
        closed: why others must not reach it, in words; empty: they may.

    Raises:
        SettingsError: another address than loopback, and others must not reach it.
    """
    if closed and not (place.host == "localhost" or is_loopback_address(place.host)):
        raise SettingsError(f"--host {place.host}: {closed}")


def listening(place: Place, closed: str) -> socket.socket:
    """A socket that listens there.

    Args:
        place: where.
        closed: why others must not reach it, in words; empty: they may.

    Raises:
        SettingsError: the address cannot be had; or a name stands for one that others reach, and they must not.
    """
    host, port = place.host, place.port
    try:
        found = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP, flags=socket.AI_PASSIVE
        )
    except (OSError, UnicodeError) as error:
        raise SettingsError(f"--host {host}: no address of this machine: {error}") from None
    if closed:  # localhost is whatever the machine's own table of names says
        for *_, address in found:
            if not is_loopback_address(str(address[0])):
                raise SettingsError(f"--host {host}: here it stands for {address[0]}, and {closed}")
    family, kind, protocol, _, address = found[0]
    # asyncio sends small packets at once only on sockets that say they are TCP; else each answer waits some 40 ms.
    listener = socket.socket(family, kind, protocol)
    try:
        if os.name == "posix":  # elsewhere it would let two servers share a port
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(_BACKLOG)
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        raise SettingsError(f"--host {host} --port {port}: cannot be had: {error.strerror or error}") from None
    return listener
