"""Where the service may listen, and its socket there."""

from __future__ import annotations

import os
import socket

from ..errors import SettingsError
from .heads import is_loopback_address
from .settings import ServiceSettings

_BACKLOG = 1024


def check_address(settings: ServiceSettings) -> None:
    """Without keys whoever reaches the address is served: so nobody else's machine may.

    Raises:
        SettingsError: another address than loopback, without keys.
    """
    if settings.keys is None and not (settings.host == "localhost" or is_loopback_address(settings.host)):
        raise SettingsError(
            f"host: on {settings.host!r} others can reach this service, and it has no keys; "
            "make some with `contextpilot-rag keys add` and name their file in keys, or listen on 127.0.0.1"
        )


def listening(host: str, port: int) -> socket.socket:
    """A socket that listens.

    Raises:
        SettingsError: the address cannot be had.
    """
    try:
        found = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP, flags=socket.AI_PASSIVE
        )
    except (OSError, UnicodeError) as error:
        raise SettingsError(f"host: {host!r} is no address here: {error}") from None
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
        raise SettingsError(f"host, port: {host}:{port} cannot be had: {error.strerror or error}") from None
    return listener
