"""Outbox: records that were told here and have not come back by the log yet."""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from dataclasses import dataclass
from itertools import chain

from .entries import MOST_RECORDS
from .space import Space

_MOST_BYTES = 2**20  # of one entry's records, or one record


@dataclass(slots=True)
class Waiting:
    """A record.

    Args:
        number: of this writer's records.
        data: the record.
        at: when it was told.
        forgets: it has something forgotten.
        sent: the log has taken it.
        settled: it was taken in without the log.
    """

    number: int
    data: bytes
    at: float
    forgets: bool = False
    sent: bool = False
    settled: bool = False


class Outbox:
    """All that waits, by space. Not thread-safe: its owner holds a lock.

    Args:
        most: records kept; beyond, the oldest of the space that one is added to are given up. What has something
            forgotten is given up last, and after that of other spaces.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._boxes: OrderedDict[Space, deque[Waiting]] = OrderedDict()
        self._unsent: OrderedDict[Space, None] = OrderedDict()
        self._forgets: Counter[Space] = Counter()
        self._number = 0
        self.size = 0
        self.given_up: deque[tuple[Space, Waiting]] = deque()

    def add(self, space: Space, data: bytes, now: float, *, forgets: bool) -> Waiting:
        """Put a record in."""
        self._number += 1
        box = self._boxes.get(space)
        if box is None:
            box = self._boxes[space] = deque()
        waiting = Waiting(self._number, data, now, forgets)
        box.append(waiting)
        self.size += 1
        self._forgets[space] += forgets
        self._unsent[space] = None
        if self.size > self._most:
            self._give_up(space)
        return waiting

    def _give_up(self, space: Space) -> None:
        oldest = None
        for other in chain((space,), self._boxes):
            oldest = next((one for one in self._boxes[other] if not one.forgets), None)
            if oldest is not None:
                break
        else:
            other, oldest = space, self._boxes[space][0]
        self._boxes[other].remove(oldest)
        self._gone(other, oldest)
        self.given_up.append((other, oldest))

    def _gone(self, space: Space, waiting: Waiting) -> None:
        self.size -= 1
        self._forgets[space] -= waiting.forgets
        if not self._boxes[space]:
            del self._boxes[space], self._forgets[space]
            self._unsent.pop(space, None)

    def forgets(self, space: Space) -> bool:
        """Whether anything that waits has something of a space forgotten."""
        return self._forgets[space] > 0

    @property
    def unsent(self) -> bool:
        """Whether the log is to be told of anything."""
        return bool(self._unsent)

    def to_send(self, most: int) -> list[tuple[Space, list[Waiting]]]:
        """For each of so many spaces, the oldest records that the log has not taken: as many as go into one entry."""
        found = []
        for space in list(self._unsent)[:most]:
            some: list[Waiting] = []
            size = 0
            for waiting in self._boxes.get(space, ()):
                if waiting.sent:
                    continue
                size += len(waiting.data)
                if some and (size > _MOST_BYTES or len(some) == MOST_RECORDS):
                    break
                some.append(waiting)
            if some:
                found.append((space, some))
            else:
                del self._unsent[space]
        return found

    def sent(self, space: Space, some: list[Waiting]) -> None:
        """The log has taken these; the space goes to the end of those that have more."""
        for waiting in some:
            waiting.sent = True
        if space in self._unsent:
            del self._unsent[space]
            if any(not waiting.sent for waiting in self._boxes.get(space, ())):
                self._unsent[space] = None

    def came_back(self, space: Space, number: int) -> list[Waiting]:
        """The log has brought a space's records up to this number; those."""
        box = self._boxes.get(space)
        gone = []
        while box and box[0].number <= number:
            gone.append(box.popleft())
            self._gone(space, gone[-1])
        return gone

    def again(self, space: Space) -> None:
        """The log may have lost what it took of a space: all that waits is sent again, and not taken in meanwhile."""
        for waiting in self._boxes.get(space, ()):
            waiting.sent = waiting.settled = False
            self._unsent[space] = None

    def of(self, space: Space) -> list[Waiting]:
        """What waits of a space, oldest first."""
        return list(self._boxes.get(space, ()))

    def older(self, time: float) -> list[tuple[Space, list[Waiting]]]:
        """What was told before a time and was not taken in, by space."""
        found = []
        for space, box in self._boxes.items():
            if box and box[0].at < time:
                some = [waiting for waiting in box if waiting.at < time and not waiting.settled]
                if some:
                    found.append((space, some))
        return found

    def overdue(self, time: float) -> list[tuple[Space, list[Waiting]]]:
        """What was told before a time and is to be taken in without the log, by space.

        Where something is to be forgotten, nothing is: the log has still to say what comes before that, and after it.
        """
        return [(space, some) for space, some in self.older(time) if not self.forgets(space)]

    @property
    def oldest(self) -> float | None:
        """When the record was told that waits longest."""
        return min((box[0].at for box in self._boxes.values() if box), default=None)
