"""Line: one connection of a thread. Each step gets what is left of the call's deadline; what is sent goes in one piece.

Where httpcore passes a time-out on, it passes on the `Deadline`.
"""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import weakref
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from typing import Any

import httpcore

from .asks import Deadline, Late
from .lookup import Found
from .told import Told

NO_ADDRESS = "its name has no address"
READ_MOST = 16_384  # bytes at a time: all that is in them is looked at between two glances at the clock


class Line(Told, httpcore.NetworkStream):
    """An open connection.

    Args:
        sock: connected.
    """

    def __init__(self, sock: socket.socket) -> None:
        super().__init__()
        self._sock = sock
        self._unsent = b""
        weakref.finalize(self, sock.close)  # nobody has to close what is forgotten

    @classmethod
    def open(cls, found: Found | Future[Found], deadline: Deadline, context: ssl.SSLContext | None, host: str) -> Line:
        """A new connection to the first of the addresses that takes it.

        Raises:
            OSError: none of them did.
            Late: not in time.
        """
        return cls(connected(found, deadline, context, host))

    def write(self, buffer: bytes, timeout: Any = None) -> None:  # noqa: ANN401, ARG002
        """Note what is to be sent; it goes out when the answer is waited for."""
        self._unsent += buffer

    def read(self, max_bytes: int, timeout: Any = None) -> bytes:  # noqa: ANN401
        """The next bytes of the answer; empty at its end."""
        deadline: Deadline = timeout
        if self._unsent:
            unsent, self._unsent = memoryview(self._unsent), b""
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # perhaps it said why before it closed
                while unsent:
                    self._sock.settimeout(deadline.left())
                    unsent = unsent[self._sock.send(unsent) :]
        self._sock.settimeout(deadline.left())
        return self.came(self._sock.recv(min(max_bytes, READ_MOST)))

    def close(self) -> None:
        """End it."""
        if not self.answered and not isinstance(self._sock, ssl.SSLSocket):  # of TLS nobody knows what it is that came
            self.unread = self.unread or readable(self._sock)
        self._sock.close()

    @property
    def usable(self) -> bool:
        """Whether it can carry another request: one with something to read was closed, or is out of step."""
        return usable(self._sock) and not (isinstance(self._sock, ssl.SSLSocket) and self._sock.pending())


def connected(
    found: Found | Future[Found], deadline: Deadline, context: ssl.SSLContext | None, host: str
) -> socket.socket:
    """A new connection to the first of the addresses that takes it, over TLS where there is a context.

    Raises:
        OSError: none of them did.
        Late: not in time.
    """
    if isinstance(found, Future):
        try:
            found = found.result(deadline.left())
        except FutureTimeout:
            raise Late from None
    error = OSError(NO_ADDRESS)
    for number, (family, address) in enumerate(found):
        try:
            sock = socket.socket(family, socket.SOCK_STREAM)
        except OSError as failed:  # a machine without this kind of address
            error = failed
            continue
        try:
            sock.settimeout(deadline.left() / (len(found) - number))
            sock.connect(address)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if context is not None:
                sock.settimeout(deadline.left())
                sock = context.wrap_socket(sock, server_hostname=host)
        except OSError as failed:
            sock.close()
            error = failed
        except BaseException:
            sock.close()
            raise
        else:
            return sock
    deadline.left()
    raise error


def usable(sock: socket.socket) -> bool:
    """Whether nothing is there to be read on an idle connection."""
    return sock.fileno() >= 0 and not readable(sock)


def readable(sock: socket.socket) -> bool:
    """Whether something is there to be read; not where it is closed."""
    if sock.fileno() < 0:
        return False
    if hasattr(select, "poll"):
        poll = select.poll()
        poll.register(sock, select.POLLIN)
        return bool(poll.poll(0))
    return bool(select.select([sock], [], [], 0)[0])
