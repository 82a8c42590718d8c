"""Tenant: everything the service holds for one tenant, and what it does with it. No HTTP here, no input or output."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import msgspec

from ..engines.usage import usage_of
from ..index.share import Size
from ..index.state import TreePart
from ..prompt.hints import LOCATION_HINT
from ..remote import wire
from ..types import Alignment, IndexStats, Namespace, Request, Rule, Usage
from . import rendering
from .blocks import Distinct, distinct
from .covers import Cover, check
from .ledger import Labelled, Ledgers
from .leftovers import ServedIndex
from .problems import Conflict, Forbidden, Unusable
from .replica_records import Reported, ServiceJournal, TalkForgotten, Ticketed, covered, turned
from .settings import ServiceSettings
from .tickets import Ticket, Tickets, mark_of
from .watchers import Watcher


@dataclass(frozen=True, slots=True)
class Pool:
    """What may share cached prefixes at all: a tenant's own index, or that of a corpus that several tenants share.

    Args:
        index: its trees.
        salt: gives the cache salt of a namespace in it.
        shared: several tenants use it.
        named: its kind and name.
        journal: tells the other replicas; None: there are none.
    """

    index: ServedIndex
    salt: Callable[[Namespace], str | None]
    shared: bool = False
    named: tuple[str, str] = ("tenant", "")
    journal: ServiceJournal | None = None

    def tell(self, namespace: Namespace, record: msgspec.Struct) -> str | None:
        """Tell the other replicas of a namespace; the record's name; None: there are none."""
        return None if self.journal is None else self.journal.tell(replace(namespace, head=""), record)


class Tenant:
    """One tenant. Not thread-safe: the service's event loop owns it.

    Args:
        name: as in the file of keys; empty where no keys are asked for.
        settings: limits.
        clock: seconds that never run backwards.
        pool_of: the pool that a namespace of this tenant belongs to.
        watchers: are told what was done.
    """

    def __init__(
        self,
        name: str,
        settings: ServiceSettings,
        clock: Callable[[], float],
        pool_of: Callable[[Namespace], Pool],
        watchers: Sequence[Watcher] = (),
    ) -> None:
        self.name = name
        self.settings = settings
        self.tickets = Tickets(settings.tenant_tickets, settings.ticket_seconds, clock)
        self.ledgers = Ledgers(settings.tenant_conversations, settings.conversation_seconds, clock)
        self._pool_of = pool_of
        self._watchers = watchers
        self._counts: Counter[str] = Counter()
        self._rules: Counter[str] = Counter()

    def misses(self, given: wire.AlignIn | wire.ObserveIn | wire.CoverIn) -> bool:
        """Whether a request names an answer or a ticket that is not known here."""
        if isinstance(given, wire.AlignIn):
            turn = given.conversation
            return turn is not None and not self.ledgers.knows(wire.namespace_from(given.namespace), turn)
        return self.tickets.get(given.ticket) is None

    def checked(self, given: wire.AlignIn) -> Distinct:
        """The blocks of a request that could be aligned now, and until its ticket is let go. Changes nothing else.

        Raises:
            Rejected: it cannot be.
        """
        self._known(given, given.ticket)
        found = _blocks(given, self.settings)
        if given.ticket is not None:
            self.tickets.set_aside(given.ticket, mark_of(given))
        return found

    def align(self, given: wire.AlignIn, found: Distinct | None = None) -> wire.AlignOut:
        """Align a request, and take it as sent.

        Args:
            given: the request.
            found: its blocks, where it was `checked` before.

        Raises:
            Rejected: it cannot be aligned; nothing was changed.
        """
        before = self._known(given, given.ticket)
        if before is not None and before.answer is not None:
            return _with_content(given, before.answer)
        found = found or _blocks(given, self.settings)
        namespace = wire.namespace_from(given.namespace)
        request = Request(found.refs, namespace, wire.budget_from(given.budget), given.key)
        pool = self._pool_of(namespace)
        ticket = given.ticket or self.tickets.new()
        again = before is not None and len(before.alignment.order) == len(found.refs)
        if again and before is not None:  # another replica was asked before: as there, and it is counted there
            alignment = replace(before.alignment, request=request)
        elif given.conversation is None or self.ledgers.opens(given.conversation):
            alignment = pool.index.align(request)
        else:
            alignment = Alignment(request, tuple(range(len(found.refs))), rule=Rule.CONVERSATION)
        labelled, this = self._labelled(given.conversation, alignment)
        answer = wire.AlignOut(
            ticket=ticket,
            order=[found.positions[rank] for rank in alignment.order],
            labels=list(labelled.labels),
            cached_blocks=alignment.cached_blocks,
            predicted_cached_tokens=alignment.predicted_cached_tokens,
            retrieved_cached_tokens=alignment.retrieved_cached_tokens,
            rule=alignment.rule.value,
            reason=alignment.reason,
            key=given.key,
            merged=found.merged,
            location_hints=dict.fromkeys(labelled.again, LOCATION_HINT),
            cache_salt=pool.salt(namespace),
            turn=this,
        )
        chosen = given.ticket is not None
        kept = Ticket(alignment, given.engine, mark_of(given) if chosen else None, answer if chosen else None)
        if again and before is not None:
            kept.observed, kept.covered = before.observed, before.covered
            self.tickets.put(ticket, kept)
        else:
            self._put(ticket, kept, pool)
            self._count(alignment, given.engine, _again_tokens(labelled, alignment), changed=alignment.changed)
        return _with_content(given, answer)

    def _labelled(self, turn: wire.TurnIn | None, alignment: Alignment) -> tuple[Labelled, str | None]:
        """The labels of an alignment's blocks; and the answer's name, if it is part of a conversation."""
        if turn is None:
            return Labelled(tuple(range(1, len(alignment.order) + 1)), ()), None
        namespace = alignment.request.namespace
        placed = [alignment.request.blocks[rank] for rank in alignment.order]
        this = self.tickets.new()  # a ticket may be the client's, and have been answered before
        labelled = self.ledgers.turn(namespace, turn, placed, this)
        own = self._pool_of(Namespace())  # also where others share the corpus: a conversation is its tenant's alone
        record = None if labelled.delta is None else own.tell(namespace, turned(labelled.delta))
        if record is not None:
            self.ledgers.told(record, this)
        return labelled, this

    def _put(self, name: str, ticket: Ticket, pool: Pool) -> None:
        """Keep a ticket, on all replicas."""
        self.tickets.put(name, ticket)
        if pool.journal is not None:
            alignment = ticket.alignment
            space, of, blocks = alignment.request.namespace, alignment.ticket or "", len(alignment.order)
            record = Ticketed(self.name, space.head, name, of, ticket.given or b"", ticket.engine, blocks)
            pool.tell(space, record)

    def sent(self, given: wire.SentIn) -> wire.SentOut:
        """Take a request as sent in an order that was chosen elsewhere.

        Raises:
            Rejected: it cannot be; nothing was changed.
        """
        if self._known(given, given.ticket) is not None:
            return wire.SentOut(given.ticket or "")
        found = distinct(given.blocks, self.settings)
        if found.merged or sorted(given.order) != list(range(len(found.refs))):
            raise Unusable("order: not every block's position exactly once")
        request = Request(found.refs, wire.namespace_from(given.namespace), wire.budget_from(given.budget), given.key)
        counts = (given.cached_blocks, given.predicted_cached_tokens, given.retrieved_cached_tokens)
        if counts[0] > len(found.refs) or max(counts[1:]) > request.tokens:
            raise Unusable("cached_blocks, predicted_cached_tokens or retrieved_cached_tokens: more than there is")
        try:
            rule = Rule(given.rule)
        except ValueError:
            raise Unusable(f"rule: none of {', '.join(map(str, Rule))}") from None
        alignment = Alignment(request, tuple(given.order), *counts, rule)
        ticket = given.ticket or self.tickets.new()
        pool = self._pool_of(request.namespace)
        alignment = pool.index.taken(alignment)
        self._put(ticket, Ticket(alignment, given.engine, mark_of(given) if given.ticket else None), pool)
        self._count(alignment, given.engine, 0, changed=alignment.changed)
        return wire.SentOut(ticket)

    def observe(self, given: wire.ObserveIn) -> wire.ObserveOut | None:
        """Learn what the engine reported; None: the ticket is not known, or not any more."""
        ticket = self.tickets.get(given.ticket)
        if ticket is None:
            return None
        if ticket.observed:
            return wire.ObserveOut(counted=False)
        ticket.observed = True
        usage = _usage(given.usage)
        namespace = ticket.alignment.request.namespace
        pool = self._pool_of(namespace)
        pool.index.observe(ticket.alignment, usage)
        pool.tell(namespace, Reported(self.name, given.ticket))
        self._counts["observed"] += 1
        self._counts["reported_prompt"] += usage.prompt_tokens or 0
        self._counts["reported_cached"] += usage.cached_tokens or 0
        self._counts["not_reported"] += usage.cached_tokens is None
        if usage.cached_tokens is not None:
            expected = ticket.alignment.expected_cached_tokens
            if expected is not None:
                self._counts["expected"] += expected
                self._counts["reported_of_expected"] += usage.cached_tokens
        for watcher in self._watchers:
            watcher.observed(self.name, ticket.alignment, ticket.engine, usage)
        return wire.ObserveOut(counted=True)

    def cover(
        self, given: wire.CoverIn, put: Callable[[Cover], bool] | None, *, tell: bool = True
    ) -> wire.CoverOut | None:
        """Take in where the blocks of an answered prompt stand; None: the ticket is not known, or not any more.

        Args:
            given: by the client.
            put: has it taken in, later; None: nobody follows engines here.
            tell: the other replicas, too.

        Raises:
            Unusable: it cannot be; nothing was changed.
        """
        ticket = self.tickets.get(given.ticket)
        if ticket is None:
            return None
        alignment = ticket.alignment
        check(given, len(alignment.order))
        if put is None or ticket.covered or alignment.rule is Rule.CONVERSATION:
            return wire.CoverOut(taken=False)
        namespace = alignment.request.namespace
        pool = self._pool_of(namespace)
        blocks = tuple([alignment.request.blocks[rank] for rank in alignment.order])
        space = (*pool.named, namespace)
        ticket.covered = put(Cover(space, pool.salt(namespace), blocks, given, ticket.engine))
        if ticket.covered and tell and pool.journal is not None:
            pool.tell(namespace, covered(self.name, given))
        return wire.CoverOut(taken=ticket.covered)

    def predict(self, given: wire.AlignIn) -> wire.PredictOut:
        """Tokens that would be cached if the request were sent now. Changes nothing.

        Raises:
            Rejected: it cannot be aligned.
        """
        found = _blocks(given, self.settings)
        namespace = wire.namespace_from(given.namespace)
        request = Request(found.refs, namespace, wire.budget_from(given.budget))
        return wire.PredictOut(self._pool_of(namespace).index.predict(request))

    def forget(self, namespace: Namespace | None = None, *, operator: bool = False) -> int:
        """Drop what the index knows of a namespace, under any head if it names none, or of all that are this tenant's.

        Args:
            namespace: None: all, but for corpora that others share.
            operator: may forget what others share.

        Returns:
            How many namespaces.

        Raises:
            Forbidden: it belongs to others, too.
        """
        pool = self._pool_of(namespace or Namespace())
        if namespace is not None and pool.shared and not operator:
            raise Forbidden("other tenants share this corpus; its operator may forget it")
        before = pool.index.stats().namespaces
        pool.index.forget(namespace)
        for watcher in self._watchers:
            watcher.forgot(self.name, namespace)
        return before - pool.index.stats().namespaces

    def forget_talks(self, namespace: Namespace | None = None, name: str | None = None) -> int:
        """Forget conversations, as `Ledgers.forget` has it, on all replicas. Returns how many were known here."""
        own = self._pool_of(Namespace())
        if own.journal is not None:
            head = "" if namespace is None else namespace.head
            if namespace is None:
                spaces = list(dict.fromkeys([*own.journal.known(), *self.ledgers.spaces()]))
            else:  # nobody is told of what nobody knows
                spaces = list(filter(own.journal.knows, [replace(namespace, head="")]))
            for space in spaces:
                record = own.journal.tell(space, TalkForgotten(head, name))
                self.ledgers.bar(record, replace(space, head=head), name)
        return self.ledgers.forget(namespace, name)

    def namespaces(self, most: int | None = None) -> dict[Namespace, Size]:
        """The namespaces of this tenant alone, used last first, and how large their trees are; at most so many."""
        return self._pool_of(Namespace()).index.namespaces(most)

    def size(self, namespace: Namespace) -> Size:
        """How large the trees of a namespace are, under any head if it names none."""
        known = self._pool_of(namespace).index.namespaces()
        sizes = [size for other, size in known.items() if namespace in {other, replace(other, head="")}]
        return Size(sum(size.blocks for size in sizes), sum(size.tokens for size in sizes))

    def salt(self, namespace: Namespace) -> str | None:
        """The cache salt of a namespace."""
        return self._pool_of(namespace).salt(namespace)

    def tree_parts(self, namespace: Namespace) -> Iterator[TreePart]:
        """What is believed to be cached for a namespace, in parts: the index may be used between any two of them."""
        return self._pool_of(namespace).index.dump_tree(namespace)

    def stats(self) -> IndexStats:
        """This tenant's counts since the start, and the sizes of its own trees."""
        own = self._pool_of(Namespace()).index.stats()
        return IndexStats(
            requests=sum(self._rules.values()),
            changed=self._counts["changed"],
            block_tokens=self._counts["block_tokens"],
            predicted_cached_tokens=self._counts["predicted"],
            retrieved_cached_tokens=self._counts["retrieved"],
            observed=self._counts["observed"],
            reported_prompt_tokens=self._counts["reported_prompt"],
            reported_cached_tokens=self._counts["reported_cached"],
            cached_not_reported=self._counts["not_reported"],
            namespaces=own.namespaces,
            tree_blocks=own.tree_blocks,
            tree_tokens=own.tree_tokens,
            rules=dict(self._rules),
            predicted_of_reported=self._counts["expected"],
            cold_prefixes=own.cold_prefixes,
            pruned_blocks=own.pruned_blocks,
            reported_of_expected=self._counts["reported_of_expected"],
        )

    def _known(self, given: wire.AlignIn | wire.SentIn, name: str | None) -> Ticket | None:
        """What was answered to a request before, if this is the same one again."""
        if name is None:
            return None
        ticket, aside = self.tickets.get(name), self.tickets.aside(name)
        if (ticket or aside) and mark_of(given) != (ticket.given if ticket else aside):
            raise Conflict("ticket: it stands for another request")
        return ticket

    def _count(self, alignment: Alignment, engine: str | None, again_tokens: int, *, changed: bool) -> None:
        self._rules[alignment.rule.value] += 1
        self._counts["changed"] += changed
        self._counts["block_tokens"] += alignment.request.tokens
        self._counts["predicted"] += alignment.predicted_cached_tokens
        self._counts["retrieved"] += alignment.retrieved_cached_tokens
        for watcher in self._watchers:
            watcher.aligned(self.name, alignment, engine, again_tokens)


def _blocks(given: wire.AlignIn, limits: ServiceSettings) -> Distinct:
    """The blocks of a request, once its turn is known to be sound."""
    turn = given.conversation
    if turn is not None and turn.after is not None and turn.next_label is None:
        # Without it, labels would begin anew if the service has forgotten the conversation: two blocks under one label.
        raise Unusable("conversation.next_label: has to be given with after")
    rendering.check(given)
    return distinct(given.blocks, limits)


def _with_content(given: wire.AlignIn, answer: wire.AlignOut) -> wire.AlignOut:
    """The answer as it is sent; a ticket keeps it without texts."""
    told = msgspec.structs.replace(answer, order_hint=rendering.told(given, answer))
    return msgspec.structs.replace(told, content=rendering.content(given, told))


def _again_tokens(labelled: Labelled, alignment: Alignment) -> int:
    """Tokens of the blocks that were given before."""
    if not labelled.again:
        return 0
    again, refs = set(labelled.again), alignment.request.blocks
    pairs = zip(alignment.order, labelled.labels, strict=True)
    return sum(refs[rank].tokens for rank, label in pairs if label in again)


def _usage(given: wire.UsageIn | None) -> Usage:
    """What was reported, in whichever of the documented forms; what was not stays None."""
    found = usage_of(given) or Usage()
    if found.cached_tokens is None and given is not None:
        found = replace(found, cached_tokens=given.cached_tokens)
    return found
