"""Wire: one connection to the log's server, as redis-py has them, each step of which gets what is left of a deadline.

Nothing is tried again here, and whatever went wrong on a connection, it is not used any more: an answer that comes late
is nobody's.
"""

from __future__ import annotations

import inspect
import socket
import ssl
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

from redis.connection import AbstractConnection, Connection
from redis.exceptions import (
    AskError,
    AuthenticationError,
    BusyLoadingError,
    ClusterCrossSlotError,
    NoPermissionError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    ResponseError,
)
from redis.exceptions import ConnectionError as NoConnection
from redis.exceptions import TimeoutError as NoAnswer

from ..remote.asks import Late
from ..remote.line import connected, usable
from ..remote.lookup import Found
from .address import LogAddress
from .asking import Command
from .budget import Budget

Answer = Any
"""As the server gives it: bytes, numbers, None, lists of them; an error in place of a command's answer is a value."""

_KNOWN = inspect.signature(AbstractConnection.__init__).parameters
_NAMELESS: dict[str, Any] = (  # it would cost two round trips, and another right, to say which library this is
    {"driver_info": None} if "driver_info" in _KNOWN else {"lib_name": None, "lib_version": None}
)
_PIECE = 2**18  # bytes that are sent at a time
IS_CLUSTER = "is a cluster"
_KINDS = (
    (AuthenticationError, "refuses the user or the password"),
    (AskError, IS_CLUSTER),  # a MovedError is one, too
    (ClusterCrossSlotError, IS_CLUSTER),
    (BusyLoadingError, "is still reading its data"),
    (NoPermissionError, "does not allow this user a command or a key"),
    (OutOfMemoryError, "is full"),
    (ReadOnlyError, "is a copy that cannot be written to"),
    (NoAnswer, "does not answer in time"),
)
_NOT_TRUSTED = frozenset({18, 19, 20, 21})
"""OpenSSL's codes for a certificate that signed itself, or whose signer is not known."""
_CODES = {
    "NOAUTH": "asks for a password",
    "WRONGPASS": "refuses the user or the password",
    "NOPERM": "does not allow this user a command or a key",
    "ACL": "does not allow this user a command or a key",  # where a script met that
    "OOM": "is full",
    "MISCONF": "cannot write to its disk",
    "LOADING": "is still reading its data",
    "BUSY": "is busy with a script",
    "READONLY": "is a copy that cannot be written to",
    "MASTERDOWN": "is a copy that has lost its master",
    "NOREPLICAS": "has lost its copies",
    "MOVED": IS_CLUSTER,
    "ASK": IS_CLUSTER,
    "CROSSSLOT": IS_CLUSTER,
    "CLUSTERDOWN": "is a cluster that is down",
    "TRYAGAIN": "is moving keys",
    "UNBLOCKED": "has changed its part",
}
_TEXTS = (  # of errors without a code of their own: any, or those of older servers, where a script met one
    ("OOM command not allowed", _CODES["OOM"]),
    ("The user executing the script can't", _CODES["NOPERM"]),
    ("DB index is out of range", "has no database of that number"),
    ("SELECT is not allowed in cluster mode", "has no database of that number"),
)


class Unreachable(NoConnection):
    """There is no connection; the message says why, and may be shown."""


class Wire(Connection):
    """A connection, which is opened when it is first asked.

    Args:
        found: the server's addresses.
        host: its name.
        address: as whom it is asked.
        context: for TLS.
    """

    def __init__(
        self, found: Found | Future[Found], host: str, address: LogAddress, context: ssl.SSLContext | None
    ) -> None:
        self.deadline: Budget = Budget(0.0)
        self._found = found
        self._context = context
        who = {"username": address.user or None, "password": address.password or None}
        given = {"host": host, "db": address.db, "protocol": 2, "socket_timeout": None, **who, **_NAMELESS}
        super().__init__(**given)  # type: ignore[no-untyped-call]

    def send(self, commands: Sequence[Command], deadline: Budget) -> None:
        """Send commands; `receive` has to follow."""
        self.deadline = deadline
        packed = self.pack_commands(commands)  # type: ignore[no-untyped-call]
        self.send_packed_command(packed, check_health=False)  # type: ignore[no-untyped-call]

    def receive(self, number: int) -> list[Answer]:
        """As many answers."""
        answers: list[Answer] = []
        for _ in range(number):
            try:
                answers.append(self.read_response())
            except ResponseError as error:
                answers.append(error)
        return answers

    @property
    def usable(self) -> bool:
        """Whether it can be asked again: one with something to read was closed, or is out of step."""
        sock: Any = self._sock
        return sock is not None and usable(sock.plain)

    def end(self) -> None:
        """End it; nobody is using it."""
        self.disconnect()  # type: ignore[no-untyped-call]

    def cut(self) -> None:
        """End it, though another thread may be waiting for an answer; that thread then sees the end."""
        sock: Any = self._sock
        if sock is not None:
            with suppress(OSError):
                sock.plain.shutdown(socket.SHUT_RDWR)

    def _connect(self) -> Timed:
        """What redis-py calls for a socket."""
        try:
            return Timed(connected(self._found, self.deadline, self._context, self.host), self)
        except ssl.SSLCertVerificationError as error:
            raise Unreachable(f"TLS: {error.verify_message}{_remedy(error.verify_code)}") from None
        except ssl.SSLError as error:
            raise Unreachable(f"TLS: {(error.reason or 'failed').lower().replace('_', ' ')}") from None
        except (Late, TimeoutError):
            raise NoAnswer from None
        except OSError as error:
            raise Unreachable(error.strerror or str(error)) from None


class Timed:
    """A socket whose steps get what is left of its wire's deadline."""

    __slots__ = ("plain", "wire")

    def __init__(self, plain: socket.socket, wire: Wire) -> None:
        self.plain = plain
        self.wire = wire

    def recv(self, size: int) -> bytes:
        """As a socket's."""
        self._limit()
        data = self.plain.recv(size)
        self.wire.deadline.moved(len(data))
        return data

    def recv_into(self, buffer: Any, *more: int) -> int:  # noqa: ANN401
        """As a socket's."""
        self._limit()
        size = self.plain.recv_into(buffer, *more)
        self.wire.deadline.moved(size)
        return size

    def sendall(self, data: bytes) -> None:
        """As a socket's."""
        left = memoryview(data)
        while left:
            self._limit()
            size = self.plain.send(left[:_PIECE])
            self.wire.deadline.moved(size)
            left = left[size:]

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        return getattr(self.plain, name)

    def _limit(self) -> None:
        try:
            self.plain.settimeout(self.wire.deadline.left())
        except Late:
            raise TimeoutError from None


def _remedy(code: int) -> str:
    """What helps, where the certificate is signed by somebody who is not trusted here."""
    trusted = "the file that ssl_ca_certs names in the log's address, or this machine, has to trust its signer"
    return f"; {trusted}" if code in _NOT_TRUSTED else ""


def reason(error: BaseException) -> str:
    """What is wrong with the server, in a few words of our own: its words may repeat what it was sent."""
    for kind, words in _KINDS:
        if isinstance(error, kind):
            return words
    if isinstance(error, Unreachable):
        return f"cannot be reached: {error}"
    if isinstance(error, NoConnection):
        return "broke the connection off"
    if isinstance(error, ResponseError):
        text = str(error).rpartition("because of: ")[2]  # where a transaction was refused
        code = text.split(" ", 1)[0]
        for part, words in _TEXTS if code not in _CODES else ():
            if part in text:
                return words
        return _CODES.get(code) or f"answers with an error{f' ({code})' if code.isalpha() and code.isupper() else ''}"
    return "answers with what is no answer" if isinstance(error, RedisError) else type(error).__name__


def redirected(answer: Answer) -> tuple[str, str, int] | None:
    """MOVED or ASK, and the node that an answer points to; its host is empty where it is the one that was asked."""
    if not isinstance(answer, ResponseError):
        return None
    if isinstance(answer, AskError):
        return ("MOVED" if type(answer) is not AskError else "ASK"), str(answer.host), int(answer.port)
    words = str(answer).split()
    if len(words) != 3 or words[0] not in {"MOVED", "ASK"}:
        return None
    host, _, port = words[2].rpartition(":")
    return (words[0], host, int(port)) if port.isdecimal() else None
