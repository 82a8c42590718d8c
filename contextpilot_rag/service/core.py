"""Service: the tenants, what is theirs and what they share. No HTTP here, no input or output."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

from ..identity import cache_salt, secret_salt
from ..types import Namespace
from .leftovers import Leftovers, ServedIndex
from .replica_records import ServiceJournal
from .settings import ServiceSettings
from .tenant import Pool, Tenant
from .watchers import Watcher


class Service:
    """All tenants, each with an index of its own; and one index for each corpus that several of them share.

    Not thread-safe: one event loop owns it.

    Args:
        settings: limits, for each tenant.
        secret: what cache salts are derived with.
        clock: seconds that never run backwards.
        watchers: are told what was done.
        leftovers: takes what is forgotten; None: it is freed at once.

    >>> from contextpilot_rag.remote import wire
    >>> acme = Service(ServiceSettings()).tenant("acme")
    >>> a, b = wire.BlockIn(id="a", tokens=100), wire.BlockIn(id="b", tokens=100)
    >>> acme.align(wire.AlignIn([a, b])).order, acme.align(wire.AlignIn([b, a])).order
    ([0, 1], [1, 0])
    """

    def __init__(
        self,
        settings: ServiceSettings,
        secret: str = "",
        clock: Callable[[], float] = time.monotonic,
        watchers: Sequence[Watcher] = (),
        leftovers: Leftovers | None = None,
    ) -> None:
        self.settings = settings
        self.sharing: Mapping[str, frozenset[str]] = {}  # corpus: tenants that share it
        self.leaving: list[Callable[[Tenant], None]] = []  # called with a tenant that is no more
        self.forgetting: list[Callable[[str, str, Namespace | None], None]] = []  # with a pool, and what goes of it
        self.journals: Callable[[str, str, ServedIndex], ServiceJournal] | None = None  # of a pool; None: no replicas
        self._secret = secret
        self._clock = clock
        self._watchers = watchers
        self._leftovers = Leftovers() if leftovers is None else leftovers
        self._capacity: int | None = settings.capacity_tokens
        self._kv_block: int | None = None
        self._tenants: dict[str, Tenant] = {}
        self._own: dict[str, Pool] = {}
        self._shared: dict[str, Pool] = {}

    def tenant(self, name: str) -> Tenant:
        """A tenant, made when first asked for. Who may ask is not decided here."""
        tenant = self._tenants.get(name)
        if tenant is None:
            pool_of = partial(self._pool_of, name)
            tenant = self._tenants[name] = Tenant(name, self.settings, self._clock, pool_of, self._watchers)
        return tenant

    @property
    def tenants(self) -> dict[str, Tenant]:
        """All that were asked for, by name."""
        return dict(self._tenants)

    def pools(self) -> dict[tuple[str, str], Pool]:
        """All indexes: by ("tenant", its name) or ("corpus", its name); for snapshots and sizes."""
        own = {("tenant", name): pool for name, pool in self._own.items()}
        return own | {("corpus", name): pool for name, pool in self._shared.items()}

    def pool(self, kind: str, name: str) -> Pool:
        """One of them, made when first asked for."""
        pools = self._own if kind == "tenant" else self._shared
        pool = pools.get(name)
        if pool is None:
            chosen = self.settings
            index = ServedIndex(
                self._leftovers,
                self._capacity,
                chosen.tenant_blocks,
                chosen.tenant_namespaces,
                history=chosen.history_requests,
                max_total_blocks=chosen.tenant_blocks,
                kv_block_tokens=self._kv_block,
            )
            journal = None if self.journals is None else self.journals(kind, name, index)
            index.follow(journal)
            index.on_forget = partial(self._tell_forgetting, kind, name)
            pool = Pool(index, partial(self._salt, kind, name), kind != "tenant", (kind, name), journal)
            pools[name] = pool
        return pool

    def known_pool(self, kind: str, name: str) -> Pool | None:
        """One of them, if it is there."""
        return (self._own if kind == "tenant" else self._shared).get(name)

    def resize(self, capacity_tokens: int | None, kv_block_tokens: int | None) -> Iterator[None]:
        """Take over what is known of the engines' caches now, in steps of about a millisecond's work.

        Args:
            capacity_tokens: for one namespace; None: not known.
            kv_block_tokens: tokens of a KV block; None: not known.
        """
        self._capacity, self._kv_block = capacity_tokens, kv_block_tokens
        for pool in self.pools().values():
            yield from pool.index.shrink(capacity_tokens, kv_block_tokens)

    def empty(self) -> Iterator[bool]:
        """Take it that no engine has anything in its cache, a pool at a time; whether something was known of it."""
        for pool in self.pools().values():
            known = bool(pool.index.namespaces(1))
            pool.index.empty()
            yield known

    def share(self, sharing: Mapping[str, frozenset[str]]) -> None:
        """Let tenants share corpora as told from now on.

        Where one may no longer, the corpus begins anew, in the index and (by its salt) in the engine: what the others
        put there after that is none of its business. Corpora that nobody shares any more are forgotten. Where there are
        replicas, it begins anew, too, where somebody joins: those who share it have a log of their own.
        """
        for corpus in list(self._shared):
            before, now = self.sharing.get(corpus), sharing.get(corpus)
            kept = now is not None and (before is None or (before == now if self.journals else before <= now))
            if not kept:
                self._shared.pop(corpus).index.forget()
                self._tell_forgotten("", Namespace(corpus=corpus))
        self.sharing = sharing

    def forget_shared(self, namespace: Namespace) -> int:
        """Drop what is known of a namespace of a corpus that tenants share, whoever they are. Returns how many."""
        pool = self._shared.get(namespace.corpus)
        if pool is None and self.journals is not None and namespace.corpus in self.sharing:
            pool = self.pool("corpus", namespace.corpus)  # others may know of it
        if pool is None:
            return 0
        before = pool.index.stats().namespaces
        pool.index.forget(namespace)
        for member in self.sharing.get(namespace.corpus, ()):
            self._tell_forgotten(member, namespace)
        return before - pool.index.stats().namespaces

    def drop(self, names: Sequence[str]) -> None:
        """Forget tenants that are no more."""
        for name in names:
            if self.journals is not None:
                self.tenant(name).forget_talks()
            tenant, pool = self._tenants.pop(name, None), self._own.pop(name, None)
            if pool is not None:
                pool.index.forget()
            if tenant is not None or pool is not None:
                self._tell_forgotten(name, None)
            if tenant is not None:
                for leave in self.leaving:
                    leave(tenant)

    def forgotten_elsewhere(self, kind: str, name: str, namespace: Namespace) -> None:
        """Another replica had a namespace of a pool forgotten, under any head if it names none; its index knows."""
        self._tell_forgetting(kind, name, namespace)
        for tenant in (name,) if kind == "tenant" else self.sharing.get(name, ()):
            self._tell_forgotten(tenant, namespace)

    def _tell_forgotten(self, tenant: str, namespace: Namespace | None) -> None:
        """What is no more shall not be shown, nor stay on disk for long."""
        for watcher in self._watchers:
            watcher.forgot(tenant, namespace)

    def _tell_forgetting(self, kind: str, name: str, namespace: Namespace | None) -> None:
        for tell in self.forgetting:
            tell(kind, name, namespace)

    def _pool_of(self, tenant: str, namespace: Namespace) -> Pool:
        if namespace.corpus and tenant in self.sharing.get(namespace.corpus, ()):
            return self.pool("corpus", namespace.corpus)
        return self.pool("tenant", tenant)

    def _salt(self, kind: str, name: str, namespace: Namespace) -> str | None:
        """Where no keys are asked for, as `cache_salt` has it; else never None: tenants do not meet in the engine."""
        if kind == "tenant" and not name:
            return cache_salt(namespace, self._secret)
        members = () if kind == "tenant" else sorted(self.sharing.get(name, ()))  # a former one has no salt that counts
        fields = (kind, name, namespace.tenant, namespace.model, namespace.corpus, *members)
        return secret_salt(b"service cache salt v1", fields, self._secret)
