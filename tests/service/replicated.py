"""Services as replicas without threads, a server or a network: what each tells is delivered when a test says so."""

from __future__ import annotations

import itertools
from dataclasses import replace

import msgspec

from contextpilot_rag.replicas.space import Space
from contextpilot_rag.service.auth import OpenGate
from contextpilot_rag.service.core import Service
from contextpilot_rag.service.elsewhere import Elsewhere
from contextpilot_rag.service.pool_names import pool_name
from contextpilot_rag.service.replica_records import Record, sound
from contextpilot_rag.service.replica_sink import LogPart, ServiceSink, _parts
from contextpilot_rag.service.saved import conversation
from contextpilot_rag.types import Namespace

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Record).decode


class AnyTenant(OpenGate):
    """Whoever is named is a tenant."""

    tenants = frozenset({"", "t", "acme", "globex"})


class SharedLog:
    """What has been appended, in order: the space, the record's name, the record, who told it."""

    def __init__(self):
        self.entries = []


class Node:
    """One service, how far it has read, and what it has told that is still on its way to the log."""

    names = itertools.count()

    def __init__(self, log, settings, clock=lambda: 0.0, secret="s"):
        self.name = f"node{next(Node.names)}"
        self.log, self.outbox, self.position = log, [], len(log.entries)
        self.numbers = itertools.count(1)
        self.covers = []
        self.service = Service(settings, secret, clock)
        self.service.journals = self.journal
        self.elsewhere = Elsewhere(self.service, lambda cover: self.covers.append(cover) or True)
        self.sink = ServiceSink(self.service, AnyTenant(), self.elsewhere)

    def tenant(self, name="t"):
        return self.service.tenant(name)

    def journal(self, kind, name, index):
        return Told(self, pool_name(kind, name, self.service.sharing.get(name, ())), index)

    def flush(self, most=None):
        """What was told reaches the log: the oldest so many."""
        most = len(self.outbox) if most is None else most
        self.log.entries += self.outbox[:most]
        del self.outbox[:most]

    def read(self, most=None):
        """Take in what the log has: the next so many."""
        end = len(self.log.entries) if most is None else min(self.position + most, len(self.log.entries))
        for space, name, data, writer in self.log.entries[self.position : end]:
            pool = self.sink._pool(space)
            if pool is not None:
                own = writer == self.name
                self.elsewhere.take(pool, space.namespace, name, sound(_decode(data)), own=own)
        self.position = end

    def spaces(self):
        return list(dict.fromkeys(space for space, *_ in [*self.log.entries, *self.outbox]))

    def reload(self, other):
        """Read all anew: a snapshot that another node wrote just now, and later what comes after it in the log."""
        for space in dict.fromkeys([*self.spaces(), *other.spaces()]):
            parts = [_parts.decode(_encode(part)) for part in other.sink._dump(space)]
            pool = self.sink._pool(space)
            talks = [saved for part in parts if isinstance(part, LogPart) for saved in part.ledgers]
            pool.index.replace_space(space.namespace, [part for part in parts if not isinstance(part, LogPart)])
            if not pool.shared:
                ledgers = self.service.tenant(pool.named[1]).ledgers
                told = {(space, name): answers for space, name, answers in map(conversation, talks)}
                for key in dict.fromkeys([*(key for key, _ in ledgers.items(space.namespace)), *told]):
                    ledgers.replace(*key, told.get(key, ()))
        self.position = other.position


class Told:
    """A node's journal."""

    def __init__(self, node, pool, index):
        self.node, self.pool, self.index = node, pool, index

    def append(self, space, record):
        assert not space.head
        name = f"{self.node.name}-{next(self.node.numbers)}"
        self.node.outbox.append((Space(self.pool, space), name, _encode(record), self.node.name))
        return name

    tell = append

    def knows(self, space):
        return True

    def known(self):
        return [space.namespace for space in self.node.spaces() if space.pool == self.pool]

    def forgot(self, namespace):
        from contextpilot_rag.index.records import Forgot

        head = "" if namespace is None else namespace.head
        for space in self.known() if namespace is None else [replace(namespace, head="")]:
            self.index.forgetting(space, self.append(space, Forgot(head)), head)


def nodes(count, settings, **given):
    log = SharedLog()
    return [Node(log, settings, **given) for _ in range(count)]


def settle(all_nodes):
    """All is told, and read by all, until nobody has anything to say."""
    while any(node.outbox or node.position < len(node.log.entries) for node in all_nodes):
        for node in all_nodes:
            node.flush()
        for node in all_nodes:
            node.read()


def without_head(namespace):
    return Namespace(namespace.tenant, namespace.model, namespace.corpus)
