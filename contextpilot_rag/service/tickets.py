"""Tickets: what was aligned and waits for its usage report. Bounded in number, age and blocks."""

from __future__ import annotations

import hashlib
import secrets
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from ..remote.wire import AlignIn, AlignOut, SentIn
from ..types import Alignment

_BLOCKS_EACH = 50  # tickets together hold so many blocks times their number; beyond, the oldest go


@dataclass(slots=True)
class Ticket:
    """One request that was answered.

    Args:
        alignment: what was answered.
        engine: which engine it went to, as the client says.
        given: `mark_of` the request, where the client chose the ticket, and may send it again.
        answer: what was answered to it.
        observed: whether its usage was reported.
        covered: whether it was told where its blocks stand in the engine's cache.
        at: when.
    """

    alignment: Alignment
    engine: str | None
    given: bytes | None = None
    answer: AlignOut | None = None
    observed: bool = False
    covered: bool = False
    at: float = 0.0

    @property
    def blocks(self) -> int:
        """How many it holds, repeated ones too."""
        return len(self.alignment.request.blocks) + (len(self.answer.merged) if self.answer else 0)


def mark_of(given: AlignIn | SentIn) -> bytes:
    """Equal exactly for equal requests. Their texts are not kept, and long ones take no memory."""
    return hashlib.blake2b(type(given).__name__.encode() + msgspec.json.encode(given), digest_size=16).digest()


class Tickets:
    """The tickets of one tenant.

    Args:
        most: tickets kept.
        seconds: how long.
        clock: seconds that never run backwards.
    """

    def __init__(self, most: int, seconds: float, clock: Callable[[], float]) -> None:
        self._most = most
        self._seconds = seconds
        self._clock = clock
        self._tickets: OrderedDict[str, Ticket] = OrderedDict()
        self._aside: dict[str, tuple[bytes, int]] = {}  # mark, and how often it was set aside
        self._blocks = 0

    def __len__(self) -> int:
        return len(self._tickets)

    @staticmethod
    def new() -> str:
        """A name that nobody can guess."""
        return secrets.token_urlsafe(16)

    def get(self, name: str) -> Ticket | None:
        """A ticket, if it is still known."""
        self._forget_old()
        return self._tickets.get(name)

    def aside(self, name: str) -> bytes | None:
        """The mark of the request that a ticket is set aside for."""
        mark, _ = self._aside.get(name, (None, 0))
        return mark

    def set_aside(self, name: str, mark: bytes) -> None:
        """Let no request but those of this mark take a ticket, until as many have let it go."""
        self._aside[name] = (mark, self._aside.get(name, (mark, 0))[1] + 1)

    def let_go(self, name: str) -> None:
        """Set a ticket aside no longer."""
        mark, times = self._aside.pop(name)
        if times > 1:
            self._aside[name] = (mark, times - 1)

    def put(self, name: str, ticket: Ticket) -> None:
        """Keep a ticket."""
        ticket.at = self._clock()
        self._tickets[name] = ticket
        self._blocks += ticket.blocks
        self._forget_old()
        while len(self._tickets) > self._most or self._blocks > self._most * _BLOCKS_EACH:
            self._pop()

    def _forget_old(self) -> None:
        oldest = self._clock() - self._seconds
        while self._tickets and next(iter(self._tickets.values())).at <= oldest:
            self._pop()

    def _pop(self) -> None:
        _, ticket = self._tickets.popitem(last=False)
        self._blocks -= ticket.blocks
