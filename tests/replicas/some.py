"""Some replicas without threads, and a clock that is moved."""

from __future__ import annotations

from contextpilot_rag.replicas.log import Snapshot
from contextpilot_rag.types import BlockRef, OrderBudget, Request

from .world import SPACES, Member, Server, stream_of

HERE = SPACES[0]
STREAM = stream_of(HERE)


class Some:
    """Replicas and the time."""

    def __init__(self, number=2, **options):
        self.server, self.now, self.options = Server(), 1_000.0, options
        self.members = [self.join() for _ in range(number)]

    def join(self):
        return Member(self.server, lambda: self.now, self.options)

    def go(self, seconds=0.3):
        for _ in range(round(seconds / 0.1)):
            for member in self.members:
                member.tell()
                member.read()
            self.now += 0.1

    def alike(self):
        first, *others = [member.dump(HERE) for member in self.members]
        return all(other == first for other in others)


def mark(name):
    return BlockRef(name, 50)


def send(member, *names):
    return [member.index.align(Request((mark(name), mark("with")), HERE, OrderBudget("retrieved"))) for name in names]


def knows(member, name):
    return member.predict(HERE, [mark(name)]) > 0


def damage_snapshot(server):
    whole = server.snapshot(STREAM)
    server.replace_snapshot(STREAM, Snapshot(whole.position, whole.mac, whole.data[:-1] + b"?"))
