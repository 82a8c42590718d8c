"""Nodes: one server's connections, and who of a cluster has which keys."""

from __future__ import annotations

import ssl
import threading
import weakref
from bisect import bisect_right
from collections.abc import Sequence
from typing import Protocol

from redis.crc import key_slot
from redis.exceptions import ExecAbortError, RedisError, ResponseError

from ..errors import LogUnavailable
from ..remote.asks import Late
from ..remote.lookup import Lookup
from .address import LogAddress
from .asking import Ask, Command
from .budget import Budget
from .wire import Answer, Wire, reason, redirected

_REDIRECTS = 3  # of one command, while keys move

Place = tuple[str, int]
Owners = tuple[list[int], list[Place | None]]
"""Where ranges of slots begin, each of which goes to the next one, and whose they are."""


class Nodes(Protocol):
    """Who is asked. All methods raise what redis-py raises, or `LogUnavailable`."""

    @property
    def opened(self) -> int:
        """Connections that were opened so far."""
        ...

    def ask(self, asks: Sequence[Ask], deadline: Budget, *, whole: bool = False) -> list[Answer]:
        """Answers to commands, in their order; those for one key are done in this order.

        Args:
            asks: what is asked.
            deadline: for all of it.
            whole: all of it is to be done in one step, if this is one server.
        """
        ...

    def close(self) -> None:
        """End all connections, also those that are in use."""
        ...


class Node:
    """One server. Thread-safe: each call has a connection of its own, which is kept for the next one.

    Args:
        place: host and port.
        address: as whom it is asked.
        context: for TLS.
    """

    def __init__(self, place: Place, address: LogAddress, context: ssl.SSLContext | None) -> None:
        self.place = place
        self.opened: int = 0
        self._address = address
        self._context = context
        self._lookup = Lookup(*place)
        self._idle: list[Wire] = []
        self._all: weakref.WeakSet[Wire] = weakref.WeakSet()
        self._lock = threading.Lock()
        self._closed = False

    def send(self, commands: Sequence[Command], deadline: Budget) -> Wire:
        """Send commands over a connection; `receive` gives their answers."""
        wire = self._take()
        try:
            wire.send(commands, deadline)
        except BaseException:
            wire.end()
            raise
        return wire

    def receive(self, wire: Wire, number: int, *, whole: bool = False) -> list[Answer]:
        """The answers on a connection, which is free for others then.

        Args:
            wire: the connection.
            number: of answers.
            whole: the last one ends a transaction; where it does not, the connection is of no use any more.
        """
        try:
            answers = wire.receive(number)
        except BaseException:
            wire.end()
            raise
        with self._lock:
            if not self._closed and not (whole and not isinstance(answers[-1], (list, ExecAbortError))):
                self._idle.append(wire)
                return answers
        wire.end()
        return answers

    def ask(self, asks: Sequence[Ask], deadline: Budget, *, whole: bool = False) -> list[Answer]:
        """See `Nodes.ask`."""
        commands = [command for _, command in asks]
        if not whole or len(commands) == 1:
            return self.receive(self.send(commands, deadline), len(commands))
        said = self.receive(self.send([("MULTI",), *commands, ("EXEC",)], deadline), len(commands) + 2, whole=True)
        if isinstance(said[-1], list) and len(said[-1]) == len(commands):
            return said[-1]
        raise next((answer for answer in said if isinstance(answer, RedisError)), RedisError("no transaction"))

    def close(self) -> None:
        """See `Nodes.close`."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
            busy = [wire for wire in self._all if wire not in idle]
        for wire in idle:
            wire.end()
        for wire in busy:
            wire.cut()

    def _take(self) -> Wire:
        with self._lock:
            if self._closed:
                raise LogUnavailable("the log was closed here")
            while self._idle:
                wire = self._idle.pop()
                if wire.usable:
                    return wire
                wire.end()
            wire = Wire(self._lookup.addresses(), self.place[0], self._address, self._context)
            self.opened += 1
            self._all.add(wire)
            return wire


class ClusterNodes:
    """A cluster. Who has what is asked of any node that answers, and again when it was wrong.

    Args:
        seed: a node that is known.
        address: as whom nodes are asked.
        context: for TLS.
    """

    def __init__(self, seed: Node, address: LogAddress, context: ssl.SSLContext | None) -> None:
        self._address = address
        self._context = context
        self._seed = seed.place
        self._nodes = {seed.place: seed}
        self._owners: Owners | None = None  # None: to be asked for
        self._lock = threading.Lock()

    @property
    def opened(self) -> int:
        """Connections that were opened so far."""
        with self._lock:
            return sum(node.opened for node in self._nodes.values())

    def ask(self, asks: Sequence[Ask], deadline: Budget, *, whole: bool = False) -> list[Answer]:  # noqa: ARG002
        """See `Nodes.ask`."""
        answers: list[Answer] = [None] * len(asks)
        left = list(range(len(asks)))
        for _ in range(_REDIRECTS):
            owners = self._owners or self._learn(deadline)
            try:
                left = self._round(asks, left, answers, owners, deadline)
            except (RedisError, Late):
                self._owners = None  # perhaps another has taken its place by now
                raise
            if not left:
                return answers
        raise LogUnavailable("the log's cluster is moving keys")

    def close(self) -> None:
        """See `Nodes.close`."""
        with self._lock:
            nodes = list(self._nodes.values())
        for node in nodes:
            node.close()

    def _round(
        self, asks: Sequence[Ask], numbers: list[int], answers: list[Answer], owners: Owners, deadline: Budget
    ) -> list[int]:
        """Ask those who should have the keys, all at a time; returns the asks for which they don't."""
        shares: dict[Place, list[int]] = {}
        for number in numbers:
            shares.setdefault(self._owner(asks[number][0], owners), []).append(number)
        sent = []
        failed: BaseException | None = None
        for place, share in shares.items():
            node = self._node(place)
            try:
                sent.append((node, share, node.send([asks[number][1] for number in share], deadline)))
            except (RedisError, LogUnavailable) as error:
                failed = failed or error
        left: list[int] = []
        for node, share, wire in sent:  # also after a failure: what was sent has to be read
            try:
                got = node.receive(wire, len(share))
                for number, answer in zip(share, got, strict=True):
                    answers[number] = self._followed(asks[number], answer, node.place, deadline)
                    if redirected(answers[number]) is not None:
                        left.append(number)
            except (RedisError, LogUnavailable) as error:
                failed = failed or error
        if failed is not None:
            raise failed
        return left

    def _followed(self, ask: Ask, answer: Answer, place: Place, deadline: Budget) -> Answer:
        """An answer; where it says that the key is just moving, that of the node it moves to."""
        to = redirected(answer)
        if to is None:
            return answer
        kind, host, port = to
        if kind == "MOVED":
            self._owners = None
            return answer
        node = self._node((host or place[0], port))
        return node.ask([("", ("ASKING",)), ask], deadline)[1]

    def _owner(self, key: str, owners: Owners) -> Place:
        starts, places = owners
        owner = places[bisect_right(starts, key_slot(key.encode())) - 1]
        if owner is None:
            self._owners = None
            raise LogUnavailable("the log's cluster has nobody for some keys")
        return owner

    def _node(self, place: Place) -> Node:
        with self._lock:
            if place not in self._nodes:
                self._nodes[place] = Node(place, self._address, self._context)
            return self._nodes[place]

    def _learn(self, deadline: Budget) -> Owners:
        """Ask who has what: of the nodes that are known, the first that answers."""
        with self._lock:
            places = [self._seed, *(place for place in self._nodes if place != self._seed)]
        last = ""
        for number, place in enumerate(places):
            try:
                turn = Budget(deadline.left() / (len(places) - number))
                slots = self._node(place).ask([("", ("CLUSTER", "SLOTS"))], turn)[0]
                if isinstance(slots, ResponseError):
                    raise slots
            except RedisError as error:
                last = reason(error)
            else:
                return self._take_over(slots, place)
        raise LogUnavailable(f"the log's cluster does not say who has what; the last node {last}")

    def _take_over(self, slots: Answer, told_by: Place) -> Owners:
        starts: list[int] = [0]
        places: list[Place | None] = [None]
        for first, last, master, *_ in sorted(slots, key=lambda ranged: int(ranged[0])):
            host = (master[0] or b"").decode()
            if starts[-1] == first:
                places.pop()
                starts.pop()
            starts += [first, last + 1]
            places += [(told_by[0] if host in {"", "?"} else host, int(master[1])), None]
        kept = {*places, self._seed, told_by}
        with self._lock:
            self._owners = owners = (starts, places)
            gone = [self._nodes.pop(place) for place in list(self._nodes) if place not in kept]
        for node in gone:
            node.close()
        return owners
