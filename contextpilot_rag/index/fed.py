"""FedIndex: a `LocalIndex` that takes in what was sent where a log has it, so that all who follow the log agree.

It decides as `LocalIndex` does, and tells the log; its trees change only by `apply`, with what the log brings back, in
the log's order. So indexes that have applied the same records are equal, whoever made them (Schneider, "Implementing
Fault-Tolerant Services Using the State Machine Approach", 1990). What was sent here and has not come back yet counts
for decisions made here (`Ahead`), and for nothing else.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, Protocol

from ..forking import after_fork
from ..types import Alignment, Namespace, Request, Usage
from . import records
from .ahead import Ahead
from .lengths import plain
from .local import LocalIndex
from .plain_keys import plain_request
from .records import Failed, Forgot, IndexRecord, Observed, Sent
from .reports import UNANSWERED
from .share import Share, dump_share, load_shares
from .state import StatePart
from .tree import PrefixTree

_APPLIED = 20_000  # records of all who tell that can still be reported on, where anybody may


class Journal(Protocol):
    """Where an index tells what it did. It is called while a namespace is locked, so it must be quick."""

    def append(self, space: Namespace, record: IndexRecord) -> str:
        """Tell the log of a namespace. It comes back by `FedIndex.apply`, after all that was appended there before.

        Args:
            space: without a head: heads share a log.
            record: what was done.

        Returns:
            The record's name, which no other record has.
        """
        ...

    def forgot(self, namespace: Namespace | None) -> None:
        """A namespace (under any head if it names none), or all, is to be forgotten: append that wherever it is known.

        For each log that is told, `FedIndex.forgetting` is called with the record's name.
        """
        ...


class FedIndex(LocalIndex):
    """A context index whose trees follow a log.

    Args:
        *args: as `LocalIndex` has them.
        journal: where what is done here is told. None: there is no log; it is a `LocalIndex`.
        keep_all: records that others made can be observed here, too.
        **more: as `LocalIndex` has them.

    What an engine's own events tell (`prune`, `restore`) concerns this process alone: they reach every one.
    """

    def __init__(self, *args: Any, journal: Journal | None = None, keep_all: bool = False, **more: Any) -> None:  # noqa: ANN401
        super().__init__(*args, **more)
        self._journal = journal
        self._keep_all = keep_all
        self._applied: OrderedDict[str, Alignment] = OrderedDict()  # by record, with its belief
        self._early: OrderedDict[str, Usage | None] = OrderedDict()  # answers (None: failed) before the record was back
        self._forgetting: dict[Namespace, OrderedDict[str, str]] = {}  # heads by record, as long as these are not back
        self._feeding = threading.Lock()  # for whoever takes in a record, or forgets; no request takes it
        after_fork(self, FedIndex._renew)

    def align(self, request: Request) -> Alignment:
        """Choose an order for the request and take it as sent."""
        if self._journal is None:
            return super().align(request)
        own = plain_request(request)
        while True:
            share = self._share(own.namespace)
            with share.lock:
                if share.dropped:  # it is being read anew from the log; what is told here would be lost with it
                    continue
                share.expire(self._now())
                alignment = self._decide(own, share)
                told = self._tell(alignment, share, learn=own.budget.order == "throughput")
            return told if own is request else replace(told, request=request)

    def predict(self, request: Request) -> int:
        """Tokens of the request that would be cached if it were sent now. Changes nothing."""
        return super().predict(request if self._journal is None else plain_request(request))

    def sent(self, alignment: Alignment) -> None:
        """Take a request as sent in an order that was not chosen here."""
        if self._journal is None:
            return super().sent(alignment)
        own = replace(alignment, request=plain_request(alignment.request))
        while True:
            share = self._share(own.request.namespace)
            with share.lock:
                if share.dropped:
                    continue
                self._tell(own, share, learn=False)
            return None

    def tree(self, namespace: Namespace) -> PrefixTree | None:
        """A copy of what is believed to be cached for a namespace; None if nothing is known of it."""
        tree = super().tree(namespace)
        with self._lock:
            share = self._shares.get(namespace)
        if tree is not None and share is not None:
            with share.lock:
                if share.ahead is not None:
                    for sequence in share.ahead.sequences():
                        tree.insert(sequence)
        return tree

    def observe(self, alignment: Alignment, usage: Usage) -> None:
        """Count what the engine reported, and tell the log of it."""
        if self._journal is None:
            return super().observe(alignment, usage)
        usage = plain(usage)
        self._counts.observed(usage, alignment.expected_cached_tokens)
        self._answer(alignment, usage)
        return None

    def answered(self, alignment: Alignment) -> None:
        """A request was answered, and nothing was reported. Its prompt is cached; nothing is counted."""
        if self._journal is None:
            return super().answered(alignment)
        self._answer(alignment, Usage())
        return None

    def failed(self, alignment: Alignment) -> None:
        """A request was not computed, and will not be: what is taken as cached on its account alone is not."""
        if self._journal is None:
            return super().failed(alignment)
        self._answer(alignment, None)
        return None

    def forget(self, namespace: Namespace | None = None) -> None:
        """Drop what is known of a namespace, under any head if it names none, or of all. Counts stay."""
        if self._journal is None:
            return super().forget(namespace)
        with self._feeding:  # so that nothing that stands behind it in the log was taken in before
            super().forget(namespace)
            self._journal.forgot(namespace)
        return None

    def forgetting(self, space: Namespace, name: str, head: str) -> None:
        """What the log brings of a namespace before this record is to be forgotten anyway: it is not taken in."""
        with self._lock:
            self._forgetting.setdefault(space, OrderedDict())[name] = head

    def apply(self, space: Namespace, name: str, record: IndexRecord, *, own: bool) -> None:
        """Take in the next record of a namespace's log.

        Args:
            space: without a head.
            name: of the record.
            record: `checked`.
            own: it was appended here.
        """
        with self._feeding:
            if isinstance(record, Forgot):
                self._clear(space, record.head)  # of what was taken in while it was being told, too
                self._forgotten(space, name)
            elif not self._wanted(space, record.head):
                if own:
                    self.included(space, [name])
            elif isinstance(record, Sent):
                self._apply_sent(replace(space, head=record.head), name, record, own=own)
            else:
                self._apply_answer(replace(space, head=record.head), record, own=own)

    def applied(self, name: str) -> Alignment | None:
        """What a record was about, with the belief that goes with it here; None: not known, or not any more."""
        with self._lock:
            return self._applied.get(name)

    def included(self, space: Namespace, names: Iterable[str]) -> None:
        """Own records will not come back one by one: they are part of what `replace_space` is given, or given up."""
        shares = self._of(space).values()
        for name in names:
            for share in shares:
                with share.lock:
                    if share.ahead is not None and share.ahead.arrived(name) and not share.ahead:
                        share.ahead = None
            self._early.pop(name, None)  # after that: until then an answer may be put there
            self._forgotten(space, name)

    def stray(self, space: Namespace) -> None:
        """From here on a namespace no longer follows its log: what is told of it here says nothing elsewhere."""
        for share in self._of(space).values():
            with share.lock:
                share.reports.rename()
                share.origin = share.origin or "stray"

    def dump_space(self, space: Namespace) -> Iterator[StatePart]:
        """All that is known of a namespace, under all heads, so that it can be the very same elsewhere.

        As long as nothing is applied between two parts. What was sent and has not come back is no part of it.

        Raises:
            StateError: a block's key cannot be written.
        """
        shares = self._of(space).items()
        for namespace, share in sorted(shares, key=lambda item: item[0].head):  # not by their use, which differs
            if share.origin:
                yield from dump_share(namespace, share, exact=True)

    def replace_space(self, space: Namespace, parts: Iterable[StatePart]) -> None:
        """Know of a namespace, under all heads, what was dumped elsewhere, and nothing else.

        Raises:
            StateError: the parts tell of no such thing; nothing was changed.
        """
        shares = [
            (namespace, share)
            for namespace, share in load_shares(parts, self._limits)
            if replace(namespace, head="") == space
        ]
        self._clear(space, "")
        for namespace, share in shares:
            standing = self._share(namespace)  # with what has not come back yet
            with standing.lock, self._lock:
                if {"", namespace.head} & set(self._forgetting.get(space, {}).values()):
                    continue  # the log has it, and its end further on
                share.ahead, standing.ahead = standing.ahead, None
                if namespace in self._shares:
                    self._drop(namespace)
                self._shares[namespace] = share
                share.size = share.entries
                self._blocks += share.size
                self._make_room(share)

    def _tell(self, alignment: Alignment, share: Share, *, learn: bool) -> Alignment:
        """Take a request as sent, as far as this process is concerned, and tell the log. The share's lock is held."""
        journal, namespace = self._journal, alignment.request.namespace
        if journal is None:
            raise AssertionError("there is no log to tell")
        expected = alignment.expected_cached_tokens
        if expected is None:
            expected = share.reports.expected(alignment, self._limits.terms)
        name = journal.append(replace(namespace, head=""), records.sent(alignment, learn=learn))
        if share.ahead is None:
            share.ahead = Ahead(share.tree.capacity_tokens, share.tree.max_blocks)
        share.ahead.add(name, [alignment.request.blocks[rank] for rank in alignment.order])
        self._counts.aligned(alignment)
        self._resized(share)
        return replace(alignment, expected_cached_tokens=expected, ticket=name)

    def _answer(self, alignment: Alignment, usage: Usage | None) -> None:
        """Tell the log what became of a request; None: it failed."""
        name = alignment.ticket
        if self._journal is None or name is None:
            return
        while True:
            with self._lock:
                applied = self._applied.get(name)
                share = self._shares.get(alignment.request.namespace)
            if applied is None and share is not None:
                with share.lock:
                    if share.dropped:  # another may stand in its place, with what waited here
                        continue
                    if share.ahead is not None and name in share.ahead:
                        self._early[name] = usage
                        if len(self._early) > UNANSWERED:
                            self._early.popitem(last=False)
                        return
                with self._lock:
                    applied = self._applied.get(name)  # it came back just now
            break
        if applied is not None:
            self._tell_answer(applied, usage, name)

    def _tell_answer(self, applied: Alignment, usage: Usage | None, name: str) -> None:
        if self._journal is not None:
            record = records.failed(applied) if usage is None else records.observed(applied, usage, name)
            self._journal.append(replace(applied.request.namespace, head=""), record)

    def _apply_sent(self, namespace: Namespace, name: str, record: Sent, *, own: bool) -> None:
        alignment = records.alignment_of(record, namespace)
        share, early = self._share(namespace), False
        with share.lock:
            if own and share.ahead is not None:
                share.ahead.arrived(name)
                if not share.ahead:
                    share.ahead = None
            if not share.origin:
                share.origin = name
                share.reports.name = _tree_name(name)
            if record.learn is not None:
                self._learn(alignment.request, share)
            taken = share.sent(alignment, self._limits, self._now())
            self._resized(share)
            if own or self._keep_all:
                with self._lock:
                    self._applied[name] = taken
                    if len(self._applied) > (_APPLIED if self._keep_all else UNANSWERED):
                        self._applied.popitem(last=False)
            early = own and name in self._early
            usage = self._early.pop(name, None)
        if early:
            self._tell_answer(taken, usage, name)

    def _apply_answer(self, namespace: Namespace, record: Observed | Failed, *, own: bool) -> None:
        with self._lock:
            share = self._shares.get(namespace)
        if share is None:
            return
        alignment = records.alignment_of(record, namespace)
        with share.lock:
            if not share.origin:  # what is there has not come by the log, so the others do not have it
                return
            if record.at > share.tree.clock:  # of another tree's time
                alignment = replace(alignment, belief=None)
            if isinstance(record, Failed):
                share.reports.failed(alignment, share.tree)
            else:
                pruned = share.answered(alignment, records.usage_of(record), self._limits, self._now())
                if own:
                    self._counts.pruned(pruned)
            self._resized(share)

    def _wanted(self, space: Namespace, head: str) -> bool:
        """Whether what the log brings of a namespace is not forgotten anyway."""
        with self._lock:
            return not any(one in {"", head} for one in self._forgetting.get(space, {}).values())

    def _forgotten(self, space: Namespace, name: str) -> None:
        """A record that has something forgotten is waited for no longer."""
        with self._lock:
            waiting = self._forgetting.get(space)
            if waiting is not None and waiting.pop(name, None) is not None and not waiting:
                del self._forgetting[space]

    def _of(self, space: Namespace) -> dict[Namespace, Share]:
        """The shares of a namespace under all heads."""
        corpus, model, tenant = space.corpus, space.model, space.tenant
        with self._lock:  # there may be many others
            return {
                name: share
                for name, share in self._shares.items()
                if name.corpus == corpus and name.model == model and name.tenant == tenant
            }

    def _clear(self, space: Namespace, head: str) -> None:
        """Forget what came by the log; what has not come back yet stands after it there."""
        for namespace, share in self._of(space).items():
            if head in {"", namespace.head}:
                with share.lock, self._lock:  # at once: nobody finds the namespace without what was told just now
                    if self._shares.get(namespace) is not share:
                        continue
                    self._drop(namespace)
                    ahead, share.ahead = share.ahead, None
                    if ahead is not None:
                        fresh = self._shares[namespace] = self._limits.new_share()
                        fresh.ahead = ahead
                        self._make_room(fresh)

    def _renew(self) -> None:
        """In a forked child: what the parent has told the log comes back as the parent's."""
        super()._renew()
        self._feeding = threading.Lock()
        for share in self._shares.values():
            share.ahead = None
        self._early.clear()
        self._forgetting.clear()


def _tree_name(record: str) -> int:
    """The same number for all who begin a tree with this record."""
    return int.from_bytes(hashlib.blake2b(record.encode(), digest_size=8).digest(), "big") >> 2
