"""Rewriter: the half of the proxy that knows prompts, from a request's bytes to those that are forwarded."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from ..async_pilot import AsyncContextPilot
from ..conversation.history import Dedup
from ..identity import block_key
from ..prompt.prompt import AlignedPrompt
from ..prompt.wording import wording_of
from ..remote.index import RemoteIndex
from ..settings import RequestOptions
from ..types import Namespace, Usage
from ..waiting import AlignmentWindow
from . import reading
from .apart import apart
from .attached import Attached
from .cache_hints import changed
from .decisions import Decisions, Others
from .explicit import FIELD, Explicit, explicit_of, is_explicit, opening_key
from .formats.parts import model_of
from .lasting import lasting
from .located import NotLocated, splice
from .memory import Decision, chain
from .noting import Noting
from .opening import Opening, Openings, Ordered, follows_of
from .orders import Orders
from .problems import Busy, Refused, Unusable
from .reading import Found
from .repeating import Repeating
from .replaying import Replaying, replayed
from .rewriting import Call, Outcome
from .salts import FIELD as SALT_FIELD
from .salts import NOWHERE, OURS, kept_apart, salted, salted_unread
from .settings import ProxySettings
from .words import Asked, Edit, Labels, Lists, Removal, Report
from .writing import Written, written

T = TypeVar("T")
_QUOTED_FIELD = f'"{FIELD}"'.encode()
_BYTES_PER_TOKEN = 4
_OFF = "switched off by the request"


@dataclass(frozen=True, slots=True)
class _Known:
    """A request as far as it is known before its blocks are looked at.

    Args:
        call: itself.
        asked: its messages.
        keys: of these, see `memory.chain`.
        namespace: whose it is, without a head.
        engine: where its conversation went so far; None: nowhere, or nobody remembers.
        salting: what keeps its tenant apart, and is done whatever else is.
        waited: what other replicas tell was waited for.
    """

    call: Call
    asked: Asked
    keys: list[bytes]
    namespace: Namespace
    engine: str | None
    salting: list[Edit]
    waited: bool = False

    def outcome(self, body: bytes, report: Report, alignment: AlignedPrompt | None = None) -> Outcome:
        """The request as it is to be forwarded.

        Args:
            body: all of it.
            report: what was done.
            alignment: of its blocks; None: none were aligned.
        """
        last = self.keys[-1] if self.keys else b""
        tokens = len(self.call.raw) // _BYTES_PER_TOKEN
        beginning = b"" if alignment is None else _beginning(alignment)
        return Outcome(body, report, self.engine, alignment, last, tokens, beginning, self.call.tenant)


class Rewriter:
    """Rewrites requests. One event loop owns it, between `start` and `stop`.

    Args:
        pilot: aligns.
        settings: of the proxy.
        clock: seconds that never run backwards.
        others: share what is decided; None: nobody does.

    Attributes:
        decisions: what was decided.
    """

    def __init__(
        self,
        pilot: AsyncContextPilot,
        settings: ProxySettings,
        clock: Callable[[], float] = time.monotonic,
        others: Others | None = None,
    ) -> None:
        self._pilot = pilot
        self._settings = settings
        self.decisions = Decisions(settings, clock, pilot.blocking.asker.failures, others)
        self._attached = Attached(settings.memory_seconds, clock)
        self._window: AlignmentWindow | None = None
        if settings.window:
            self._window = pilot.window(settings.window, settings.window_seconds)
        self._orders = Orders(pilot, self._window)
        self._openings = Openings(self._orders)
        told = isinstance(pilot.blocking.index, RemoteIndex)  # it may listen to events itself
        self._noting = Noting(followed=told or any(engine.events for engine in settings.engines))

    async def start(self) -> None:
        """Let requests wait for each other, where that is wanted, and share what is decided, where others do."""
        if self._window is not None:
            await self._window.__aenter__()
        await self.decisions.start()

    async def stop(self) -> None:
        """Let all go that wait."""
        self.decisions.stop()
        if self._window is not None:
            await self._window.__aexit__(None, None, None)

    def salt(self, tenant: str) -> str | None:
        """As `Rewriting.salt`."""
        return self._pilot.blocking.asker.salt(Namespace(tenant=tenant))

    async def rewrite(self, call: Call) -> Outcome:
        """As `Rewriting.rewrite`."""
        body = reading.decoded(call.raw)
        if body is None:
            return await self._unread(call)
        salt = await self._salt(call, model_of(body))
        salting = salted(body, salt, self._settings.client_salt, call.cloud)
        if call.wishes.off and not is_explicit(body):
            return Outcome(self._spliced(call, salting), Report(reason=_OFF))
        try:
            return await self._rewritten(call, body, salting)
        except Refused:
            raise
        except Exception as error:
            if is_explicit(body):
                raise Unusable(
                    "the contextpilot field of this request cannot be used, and without it its blocks would be lost",
                    "contextpilot",
                ) from error
            self._pilot.blocking.asker.failures.note(error)
            return Outcome(self._spliced(call, salting), Report(reason="the proxy failed; its log says why"))

    async def answered(self, outcome: Outcome, usage: Usage | None, engine: str | None) -> None:
        """As `Rewriting.answered`."""
        failures = self._pilot.blocking.asker.failures
        try:
            if outcome.chain and engine is not None:
                self.decisions.went(outcome.tenant, outcome.chain, engine)
            if outcome.alignment is not None:
                await self._pilot.observe(outcome.alignment, usage)
        except Exception as error:  # noqa: BLE001  fails open: the client has its answer
            failures.note(error)

    def failed(self, outcome: Outcome) -> None:
        """As `Rewriting.failed`."""
        if outcome.alignment is None:
            return
        try:
            pilot = self._pilot.blocking
            if len(pilot.engines):
                pilot.engines.failed(outcome.alignment)
            else:
                tell = getattr(pilot.index, "failed", None)
                if callable(tell):
                    tell(outcome.alignment)
        except Exception as error:  # noqa: BLE001  fails open
            self._pilot.blocking.asker.failures.note(error)

    async def _salt(self, call: Call, model: str = "") -> str | None:
        """The salt that a request has to carry; None: it has to carry none.

        It is the one that others who ask the same index have for this tenant and model: else they would share what is
        believed to be cached, and not the cache.

        Raises:
            Busy: it is not known, and without it others could read what is this tenant's.
        """
        if call.cloud:
            return None
        try:
            if self.salt(call.tenant) is None:  # whoever has none has none, whatever the model
                return None
            return await self._pilot.blocking.asker.asalt(Namespace(tenant=call.tenant, model=model))
        except Exception as error:
            self._pilot.blocking.asker.failures.note(error)
            raise Busy("the tenant's cache salt is not known at present") from error

    async def _unread(self, call: Call) -> Outcome:
        """A body that is not read here. Some engine may take it nevertheless, so its tenant is kept apart."""
        if _QUOTED_FIELD in call.raw:
            raise Unusable("the body is no JSON that can be read here, and without it its blocks would be lost", FIELD)
        report = Report(reason="the body is no JSON object that everybody reads the same way")
        salt = await self._salt(call)
        if salt is None:
            return Outcome(call.raw, report)
        names = reading.names_in(call.raw)
        if names is not None and SALT_FIELD in names:  # which of two would count is up to whoever reads it
            raise Unusable(OURS, SALT_FIELD)
        body = None if names is None else salted_unread(call.raw, salt)
        if body is None:
            raise Unusable(NOWHERE)
        return Outcome(body, report)

    async def _rewritten(self, call: Call, body: Mapping[str, Any], salting: list[Edit]) -> Outcome:
        """A request that is looked into."""
        known = await self._known(call, body, salting)
        if known is None:
            if is_explicit(body):
                raise Unusable("this request has nowhere to put blocks", "contextpilot")
            return Outcome(self._spliced(call, salting), Report(reason="nothing in it can be read"))
        explicit = explicit_of(known.asked)
        return await self._found(known) if explicit is None else await self._given(known, explicit)

    async def _known(self, call: Call, body: Mapping[str, Any], salting: list[Edit]) -> _Known | None:
        """A request by the chain of its messages; None: it has none that can be read."""
        asked = await apart(len(call.raw), reading.read, call.api, body)
        if asked is None:
            return None
        namespace = Namespace(tenant=call.tenant, model=asked.model, corpus=kept_apart(body, salting))
        within = (
            self.decisions.keyed,
            call.tenant,
            asked.model,
            namespace.corpus,
            call.api,
            self._labels(call),
            *sorted(self._lists(call)),
        )
        keys = await apart(len(call.raw), lambda: chain("proxy v1", within, map(lasting, asked.messages)))
        engine, waited = await self.decisions.where(call.tenant, keys, old=_goes_on(asked))
        return _Known(call, asked, keys, namespace, engine, salting, waited)

    async def _found(self, known: _Known) -> Outcome:
        """A request whose blocks are those that its texts name."""
        call, asked = known.call, known.asked
        lists = self._lists(call)
        found: Found = await apart(
            len(call.raw), lambda: reading.recognised(asked, lists, tool_results=self._settings.tool_results)
        )
        if found.nothing:
            return self._kept(known, "nothing was recognised")
        if _continues(asked):
            return self._kept(known, "its history stands upstream and is not known here")
        ordered = None
        if found.opening is not None:
            ordered = await self._ordered(known, found.opening)
            known = replace(known, engine=ordered.alignment.engine or known.engine)
        chosen = self._pilot.settings
        repeating = Repeating(chosen.dedup, chosen.normalise, chosen.max_text)
        hint, labels = wording_of(chosen.order_hint), self._labels(call)
        write = lambda: written(asked, found, ordered, repeating, labels=labels, hint=hint)  # noqa: E731
        done: Written = await apart(len(call.raw), write)
        told = call.cloud if self._settings.cache_hints == "auto" else ""
        changes = changed(asked, done, found.opening, ordered, told, chosen.salt_secret)
        try:
            raw = splice(call.raw, [*changes, *known.salting])
        except NotLocated as error:  # nobody can say what such a body means, so nothing in it is moved
            return self._kept(known, f"the body is ambiguous: {error}")
        alignment = None
        if ordered is not None:
            alignment = self._noting.noted(ordered.alignment, asked, done.texts, raw, known.salting)
        return known.outcome(raw, _report(found, ordered, done, repeating), alignment)

    async def _ordered(self, known: _Known, opening: Opening) -> Ordered:
        """The order of the blocks that stand first, as it is remembered from now on."""
        call = known.call
        key = known.keys[opening.message.number - 1]
        wait = not opening.new and not known.waited
        before = await self.decisions.before(call.tenant, key, known.engine, wait=wait)
        follows = await apart(len(call.raw), follows_of, opening, known.asked, known.namespace)
        ordered = await self._openings.ordered(
            opening, known.asked, known.namespace, before, follows, self._labels(call), _options(call)
        )
        decision = Decision(ordered.order, ordered.alignment.engine, ordered.cached)
        self.decisions.put(call.tenant, key, decision)
        return ordered

    async def _given(self, known: _Known, explicit: Explicit) -> Outcome:
        """A request that says itself what its blocks are."""
        call, asked = known.call, known.asked
        whose = f"{call.tenant}\0{known.namespace.corpus}"
        joined = self._attached.joined(asked, explicit, whose)
        key = opening_key(joined, known.keys) or b""
        off = call.wishes.off  # then blocks stand in full, as they were given: nothing but the field has them
        before = None
        if key and not off:
            first = min(number for number, one in joined.given.items() if one.blocks)
            wait = _goes_on(asked, first) and not known.waited
            before = await self.decisions.before(call.tenant, key, known.engine, wait=wait)
        chosen = self._pilot.settings
        dedup = "off" if off or _continues(asked) else chosen.dedup
        level = Dedup(dedup != "off", dedup == "blocks+chunks", chosen.normalise, chosen.max_text)
        shown = _as_given(joined) if off else joined
        request = Replaying(asked, shown, known.namespace, level, _options(call))
        done = await replayed(request, self._orders, before)
        raw = self._spliced(call, [*done.changes, *known.salting])
        self._attached.keep(asked, joined, whose)
        aligned = done.alignment
        if aligned is not None:
            known = replace(known, engine=aligned.engine or known.engine)
            aligned = self._noting.noted(aligned, asked, None, raw, known.salting)
        if done.order is not None and not off:
            self.decisions.put(call.tenant, key, Decision(done.order, known.engine))
        return known.outcome(raw, replace(done.report, reason=_OFF) if off else done.report, aligned)

    def _kept(self, known: _Known, reason: str) -> Outcome:
        """A request in which nothing is changed but what has to be."""
        return known.outcome(self._spliced(known.call, known.salting), Report(reason=reason))

    def _lists(self, call: Call) -> frozenset[Lists]:
        return self._settings.known_lists if call.wishes.lists is None else call.wishes.lists

    def _labels(self, call: Call) -> Labels:
        return call.wishes.labels or self._settings.labels

    def _spliced(self, call: Call, changes: Sequence[Edit | Removal]) -> bytes:
        """The body with changes that it cannot be forwarded without.

        Raises:
            Unusable: a key stands twice where that matters, so that nobody can say what it means.
        """
        try:
            return splice(call.raw, changes)
        except NotLocated as error:
            raise Unusable(f"the body is ambiguous: {error}") from None


def _as_given(explicit: Explicit) -> Explicit:
    """The same blocks, to stand in the order that they were given in."""
    given = {number: replace(one, options=RequestOptions(order="retrieved")) for number, one in explicit.given.items()}
    return replace(explicit, given=given)


def _continues(asked: Asked) -> bool:
    """Whether it goes on from messages that are not in it, so that nothing in it can be named by its number."""
    return any(asked.body.get(name) is not None for name in ("previous_response_id", "conversation"))


def _goes_on(asked: Asked, number: int = 0) -> bool:
    """Whether an answer follows a message, so that it was sent before; 0: whether there is any."""
    return any(message.role == "assistant" for message in asked.messages[number:])


def _options(call: Call) -> RequestOptions:
    return {} if call.wishes.order is None else {"order": call.wishes.order}


def _beginning(aligned: AlignedPrompt) -> bytes:
    """What prompts have in common that share a prefix: what stands before the first block, and that block."""
    request = aligned.request
    first = request.blocks[aligned.order[0]].key if aligned.order else b""
    return block_key(repr((request.namespace, first)))


def _report(found: Found, ordered: Ordered | None, done: Written, repeating: Repeating) -> Report:
    moved = ordered is not None and ordered.order != tuple(range(len(ordered.order)))
    return Report(
        blocks=found.blocks,
        changed=moved,
        replaced=repeating.replaced,
        left_out=repeating.left_out,
        predicted_cached_tokens=0 if ordered is None else ordered.alignment.predicted_cached_tokens,
        reason=ordered.reason if ordered is not None else "" if repeating.replaced else "nothing stands in it twice",
        labels=done.labels,
    )
