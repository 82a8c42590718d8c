"""What a snapshot says: all indexes and conversations of a service in parts, and back. No texts, no salts, no keys."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from ..errors import StateError
from ..index.state import StatePart
from ..types import Namespace
from .core import Service
from .ledger import Ledger, Ledgers

_PART = 500  # blocks of conversations in one part, or a few more

Positive = Annotated[int, Meta(ge=1)]


class PoolPart(Struct, array_like=True, forbid_unknown_fields=True, tag="pool"):
    """An index; the parts that follow are of it.

    Args:
        kind: whose: a tenant's, or a corpus's that several share.
        name: of these.
        members: the tenants that share it.
    """

    kind: Literal["tenant", "corpus"]
    name: str
    members: list[str]


class SavedLedger(Struct, array_like=True, forbid_unknown_fields=True):
    """A conversation; see `Ledger`."""

    tenant: str
    model: str
    corpus: str
    head: str
    name: str
    keys: list[Any]
    labels: list[Positive]
    last: str | None
    next_label: Positive
    waiting: str | None
    waiting_keys: list[Any]
    waiting_labels: list[Positive]


class LedgersPart(Struct, array_like=True, forbid_unknown_fields=True, tag="ledgers"):
    """Some conversations of a tenant, used longest ago first."""

    tenant: str
    ledgers: list[SavedLedger]


SavedPart = PoolPart | StatePart | LedgersPart


def dump(service: Service) -> Iterator[SavedPart]:
    """All that outlives a process, in parts of about a millisecond's work; it may be used between any two of them."""
    for (kind, name), pool in service.pools().items():
        shared = kind == "corpus"
        yield PoolPart("corpus" if shared else "tenant", name, sorted(service.sharing.get(name, ())) if shared else [])
        yield from pool.index.dump()
    for name, tenant in service.tenants.items():
        for some in _dump_ledgers(tenant.ledgers):
            yield LedgersPart(name, some)


def load(
    parts: Iterable[SavedPart],
    service: Service,
    tenants: frozenset[str] | None = None,
    sharing: Mapping[str, frozenset[str]] | None = None,
) -> None:
    """Let a new service know what another knew, within its own limits.

    Args:
        parts: what `dump` gave.
        service: holds nothing yet.
        tenants: those that there are now; None: any.
        sharing: who shares which corpus now. A corpus begins anew where somebody has left.

    Raises:
        StateError: the parts tell of no service; this one holds nothing of them.
    """
    try:
        _load(parts, service, tenants, sharing or {})
    except StateError:
        service.drop([name for kind, name in service.pools() if kind == "tenant"] + list(service.tenants))
        for pool in service.pools().values():
            pool.index.forget()
        raise


def _load(
    parts: Iterable[SavedPart], service: Service, tenants: frozenset[str] | None, sharing: Mapping[str, frozenset[str]]
) -> None:
    pools: list[tuple[PoolPart, list[StatePart]]] = []
    for part in parts:
        if isinstance(part, PoolPart):
            pools.append((part, []))
        elif isinstance(part, LedgersPart):
            if tenants is None or part.tenant in tenants:
                for saved in part.ledgers:
                    _load_ledger(saved, service.tenant(part.tenant).ledgers)
        elif pools:
            pools[-1][1].append(part)
        else:
            raise StateError("it begins with no index")
    for pool, states in pools:
        if pool.kind == "corpus":
            wanted = pool.name in sharing and frozenset(pool.members) <= sharing[pool.name]
        else:
            wanted = tenants is None or pool.name in tenants
        if wanted:
            service.pool(pool.kind, pool.name).index.load(states)


def _dump_ledgers(ledgers: Ledgers) -> Iterator[list[SavedLedger]]:
    some: list[SavedLedger] = []
    blocks = 0
    for (namespace, name), ledger in ledgers.items():
        if not ledgers.holds(namespace, name, ledger):
            continue
        waiting, new = ledger.waiting or (None, {})
        some.append(
            SavedLedger(
                namespace.tenant,
                namespace.model,
                namespace.corpus,
                namespace.head,
                name,
                list(ledger.given),
                list(ledger.given.values()),
                ledger.last,
                ledger.next_label,
                waiting,
                list(new),
                list(new.values()),
            )
        )
        blocks += ledger.blocks + 10
        if blocks >= _PART:
            yield some
            some, blocks = [], 0
    if some:
        yield some


def _load_ledger(saved: SavedLedger, ledgers: Ledgers) -> None:
    given = _labels(saved.keys, saved.labels)
    new = _labels(saved.waiting_keys, saved.waiting_labels)
    waiting = None if saved.waiting is None else (saved.waiting, new)
    namespace = Namespace(saved.tenant, saved.model, saved.corpus, saved.head)
    ledgers.restore(namespace, saved.name, Ledger(given, saved.last, saved.next_label, waiting))


def _labels(keys: list[Any], labels: list[int]) -> dict[Hashable, int]:
    if len(keys) != len(labels) or not set(map(type, keys)) <= {bytes, str}:
        raise StateError("a conversation in it has no label for each block")
    return dict(zip(keys, labels, strict=True))
