"""Proxies as replicas without threads, a server or a network: what each tells is delivered when a test says so."""

from __future__ import annotations

import asyncio
import itertools

import msgspec

from contextpilot_rag.replicas.sink import Arrived

_encode = msgspec.msgpack.Encoder().encode


class Node:
    """A `Carrier`. What it told goes into a log that it has in common with others, in an order of the test's.

    Args:
        log: space, name of the record, data, and whose it is.
        name: of this one.
    """

    joined = False  # nobody waits: a test delivers

    def __init__(self, log, name):
        self.log, self.name = log, name
        self.numbers = itertools.count()
        self.outbox, self.position, self.seen = [], 0, set()
        self.sink = None

    def carry(self, pool, sink):
        assert pool == "proxy"
        self.sink = sink

    def look_again(self): ...

    def ready(self, seconds):
        return True

    def catch_up(self, seconds):
        return True

    def append(self, space, record):
        name = f"{self.name}-{next(self.numbers)}"
        self.outbox.append((space, name, _encode(record), self.name))
        return name

    def flush(self, random, *, everything):
        """Some of what was told reaches the log, or all of it; of different tenants in any order."""
        many = len(self.outbox) if everything else random.randint(0, len(self.outbox))
        some, self.outbox = self.outbox[:many], self.outbox[many:]
        random.shuffle(some)
        self.log += some

    async def read(self, many, *, doubled):
        """Take in what comes next; if it is to be doubled, twice."""
        some = self.log[self.position : self.position + many]
        self.position += len(some)
        for space, name, data, whose in [*some, *(some if doubled else ())]:
            await asyncio.to_thread(self.sink.apply, space, [Arrived(name, data, whose == self.name)])

    def orders(self):
        """What the log said of each message."""
        memory = self.sink._memory
        found = {}
        for tenant in memory._of:
            for key in memory.kept(tenant):
                known = memory.settled(key, tenant)
                if known is not None:
                    found[tenant, key] = known[0].order
        return found
