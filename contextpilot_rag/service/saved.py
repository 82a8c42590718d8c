"""What a snapshot says: all indexes and conversations of a service in parts, and back. No texts, no salts, no keys."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from ..errors import StateError
from ..index.state import StatePart
from ..types import Namespace
from .core import Service
from .ledger import Given, Ledger, Ledgers

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
    """A conversation; or one of its answers that none follows, where it has several.

    Args:
        tenant: of its namespace.
        model: likewise.
        corpus: likewise.
        head: likewise.
        name: of the conversation.
        keys: of the blocks that stand in its messages, as far as they are answered.
        labels: theirs.
        last: the answer that stands there last.
        next_label: above all these labels.
        waiting: an answer of which it is not known yet whether it stands there.
        waiting_keys: of the blocks that it gave first.
        waiting_labels: theirs.
    """

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
        for some in dump_ledgers(tenant.ledgers):
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
    if sharing is not None:
        service.share(sharing)
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
                restore(service.tenant(part.tenant).ledgers, part.ledgers)
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


def dump_ledgers(ledgers: Ledgers, space: Namespace | None = None) -> Iterator[list[SavedLedger]]:
    """Conversations in parts, those used longest ago first; they may be used between any two of them.

    Args:
        ledgers: of a tenant.
        space: those of this namespace alone, under any head; None: all.
    """
    some: list[SavedLedger] = []
    blocks = 0
    for (namespace, name), ledger in ledgers.items(space):
        if not ledgers.holds(namespace, name, ledger):
            continue
        some += _saved(namespace, name, ledger)
        blocks += ledger.blocks + 10
        if blocks >= _PART:
            yield some
            some, blocks = [], 0
    if some:
        yield some


def restore(ledgers: Ledgers, saved: Iterable[SavedLedger]) -> None:
    """Let a tenant know conversations that were saved.

    Raises:
        StateError: they tell of none; some may be known by then.
    """
    for one in saved:
        ledgers.restore(*conversation(one))


def conversation(saved: SavedLedger) -> tuple[Namespace, str, list[tuple[str, Given]]]:
    """Namespace, name and answers of a conversation that was saved.

    Raises:
        StateError: it is none.
    """
    labels, new = _labels(saved.keys, saved.labels), _labels(saved.waiting_keys, saved.waiting_labels)
    answers = []
    if saved.last is not None:
        answers.append((saved.last, Given(labels, saved.next_label)))
    if saved.waiting is not None:
        above = max([saved.next_label, *(label + 1 for label in new.values())])
        answers.append((saved.waiting, Given({**labels, **new}, above, saved.last, len(new))))
    return Namespace(saved.tenant, saved.model, saved.corpus, saved.head), saved.name, answers


def _saved(namespace: Namespace, name: str, ledger: Ledger) -> Iterator[SavedLedger]:
    """Each of its answers that no other follows, with the one that it follows."""
    fields = (namespace.tenant, namespace.model, namespace.corpus, namespace.head, name)
    followed = {given.base for given in ledger.answers.values()}
    for answer, given in list(ledger.answers.items()):
        if answer in followed:
            continue
        labels, base = given.labels, given.base
        before = None if base is None else ledger.answers.get(base)
        if base is not None and before is None:  # which is known no more
            yield SavedLedger(*fields, list(labels), list(labels.values()), answer, given.next_label, None, [], [])
            continue
        kept = {} if before is None else before.labels
        new = {key: label for key, label in labels.items() if key not in kept}
        above = given.next_label - len(new) if before is None else before.next_label
        yield SavedLedger(*fields, list(kept), list(kept.values()), base, above, answer, list(new), list(new.values()))


def _labels(keys: list[Any], labels: list[int]) -> dict[Hashable, int]:
    if len(keys) != len(labels) or not set(map(type, keys)) <= {bytes, str}:
        raise StateError("a conversation in it has no label for each block")
    return dict(zip(keys, labels, strict=True))
