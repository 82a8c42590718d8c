"""Asks: what is sent, what comes back, by when, and what can go wrong on the way."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from .told import Told


class Lost(Exception):
    """No answer came: the connection broke, or there was none."""


class Late(Lost):
    """No answer came in time."""


class Busy(Late):
    """No answer came in time, but there was too much of our own at a time, and the service may well be healthy."""


class Full(Lost):
    """All connections were busy until the time was up; the service was not asked."""


@dataclass(frozen=True, slots=True)
class Ask:
    """What is asked. It may be sent twice: it carries a ticket, or changes nothing, or nothing more the second time.

    Args:
        method: of HTTP.
        path: with the query, if any; encoded.
        body: JSON, or None.
        seconds: for all of it.
        most: bytes that the answer's body may have.
        patient: it is no request's own business, and waits with its like only.
        fresh: over a new connection, since those that are kept may lead nowhere.
    """

    method: str
    path: str
    body: bytes | None
    seconds: float
    most: int
    patient: bool = False
    fresh: bool = False


@dataclass(frozen=True, slots=True)
class Reply:
    """What came back.

    Args:
        status: of HTTP.
        headers: names in lower case.
        body: all of it.
    """

    status: int
    headers: Mapping[bytes, bytes]
    body: bytes


class Deadline:
    """The one moment by which a whole call must be over. It is handed on where httpcore expects a time-out.

    Args:
        seconds: from now.
    """

    __slots__ = ("at", "began", "line", "turn")

    def __init__(self, seconds: float) -> None:
        self.began: float = time.monotonic()
        self.at: float = self.began + seconds
        self.turn: float | None = None  # when the service could be asked, after waiting for one's own other calls
        self.line: Told | None = None  # the connection tried last

    def left(self) -> float:
        """Seconds that are left; always more than 0.

        Raises:
            Late: none are.
        """
        left = self.at - time.monotonic()
        if left <= 0:
            raise Late
        return left

    def begin(self) -> None:
        """Note that it is this call's turn; what comes later is the service's time."""
        if self.turn is None:
            self.turn = time.monotonic()

    @property
    def waited(self) -> bool:
        """Whether most of the time went by before the service could be asked."""
        return self.turn is None or self.turn - self.began > self.at - self.turn
