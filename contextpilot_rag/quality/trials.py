"""Trials: which requests are aligned and which only compared with, and what their ratings lead to."""

from __future__ import annotations

import hashlib
import logging
import threading
from collections import Counter
from dataclasses import replace

from ..errors import InputError
from ..forking import after_fork
from ..index.align import placement_rule
from ..index.fixed import fixed_order
from ..intake import share_of
from ..prompt.prompt import AlignedPrompt
from ..settings import Settings
from ..types import IndexStats, Namespace, Rule, short
from .judge import Judge, Quality, Role

logger = logging.getLogger("contextpilot_rag")


class Trials:
    """The fallback of one pilot. Thread-safe.

    Args:
        judge: decides; None: nothing is tried, and every request is aligned.
    """

    def __init__(self, judge: Judge | None) -> None:
        self._judge = judge
        self._sent: Counter[Rule] = Counter()
        self._renew()
        after_fork(self, Trials._renew)

    @classmethod
    def of(cls, settings: Settings) -> Trials:
        """What a pilot's settings ask for."""
        if settings.quality_drop is None:
            return cls(None)
        return cls(Judge(settings.quality_drop, settings.quality_control, settings.max_namespaces))

    def role(self, prepared: AlignedPrompt) -> Role | None:
        """What is to become of a request; None: it is to be aligned, and shows nothing."""
        if self._judge is None or prepared.request.budget.order == "retrieved":
            return None
        return self._judge.role(_space(prepared), _name(prepared))

    def allowed(self, prepared: AlignedPrompt) -> AlignedPrompt:
        """A request of a plan: to be kept as retrieved, where alignment is turned off."""
        off = self._judge is not None and self._judge.is_off(_space(prepared))
        return as_retrieved(prepared) if off else prepared

    def shown(
        self, prepared: AlignedPrompt, decided: AlignedPrompt, role: Role | None, gain: int | None
    ) -> AlignedPrompt:
        """What was decided, marked with what its answer will show.

        Args:
            prepared: the request.
            decided: how it is sent.
            role: what was to become of it.
            gain: tokens that another order was to gain, as asked before; None: what was decided tells.
        """
        if role is None:
            return decided
        if role == "off":
            return self._counted(replace(decided, rule=Rule.QUALITY))
        if gain is None:
            gain = decided.predicted_cached_tokens - decided.retrieved_cached_tokens
        if not _reordered(prepared, gain):
            return decided if role == "aligned" else self._counted(replace(decided, rule=Rule.NOTHING_GAINED))
        if role == "control":
            return self._counted(replace(decided, rule=Rule.CONTROL, trial="control"))
        return replace(decided, trial="aligned")

    def rate(self, alignment: object, score: float) -> bool:
        """As `ContextPilot.rate`."""
        if not isinstance(alignment, AlignedPrompt):
            raise InputError(f"rate takes what align returned, not {type(alignment).__name__}")
        share = None if isinstance(score, bool) else share_of(score)
        if share is None:
            raise InputError(f"a score is a number from 0 to 1, not {short(score)}")
        if self._judge is None or alignment.trial is None:
            return False
        space = _space(alignment)
        decided = self._judge.rate(space, alignment.trial, _name(alignment), share)
        if decided is not None:
            _say(space, decided)
        return True

    def quality(self, namespace: Namespace) -> Quality:
        """As `ContextPilot.quality`."""
        return Quality() if self._judge is None else self._judge.quality(_without_head(namespace))

    def forget(self, namespace: Namespace | None) -> None:
        """Forget the ratings of a namespace, or of all."""
        if self._judge is not None:
            self._judge.forget(None if namespace is None else _without_head(namespace))

    def counted(self, stats: IndexStats) -> IndexStats:
        """An index's counts, with the rules that it does not know: it was told to keep the order, no more."""
        with self._lock:
            sent = Counter({rule.value: count for rule, count in self._sent.items()})
        if not sent:
            return stats
        off = max(0, stats.rules.get(Rule.OFF.value, 0) - sent.total())
        rules = Counter({**stats.rules, Rule.OFF.value: off}) + sent
        return replace(stats, rules={rule: count for rule, count in rules.items() if count})

    def _counted(self, prompt: AlignedPrompt) -> AlignedPrompt:
        with self._lock:
            self._sent[prompt.rule] += 1
        return prompt

    def _renew(self) -> None:
        self._lock = threading.Lock()


def as_retrieved(prepared: AlignedPrompt) -> AlignedPrompt:
    """The same request, to be sent in the retriever's order."""
    budget = replace(prepared.request.budget, order="retrieved")
    return replace(prepared, request=replace(prepared.request, budget=budget))


def _reordered(prepared: AlignedPrompt, gain: int) -> bool:
    """Whether alignment puts a request into another order, for a gain, or by a rule that asks for none."""
    request = prepared.request
    if request.budget.order != "fixed":
        return gain > 0
    return fixed_order(request.blocks, placement_rule(request.budget)) != tuple(range(len(request.blocks)))


def _space(prompt: AlignedPrompt) -> Namespace:
    return _without_head(prompt.request.namespace)


def _without_head(namespace: Namespace) -> Namespace:
    return replace(namespace, head="") if namespace.head else namespace


def _name(prompt: AlignedPrompt) -> int:
    """Stands for a request, in every process: whose it is, what was retrieved and what is asked."""
    space, digest = _space(prompt), hashlib.blake2b(digest_size=8)
    for part in (space.tenant, space.model, space.corpus, prompt.question, *(ref.key for ref in prompt.request.blocks)):
        own = part if isinstance(part, bytes) else str(part).encode("utf-8", "surrogatepass")
        digest.update(b"%d:" % len(own) + own)
    return int.from_bytes(digest.digest(), "big")


def _say(space: Namespace, decided: Quality) -> None:
    where = f"namespace {short((space.tenant, space.model, space.corpus))}" if space else "the default namespace"
    said = [f"{_mean(arm.mean)} of {arm.count:,}" for arm in (decided.aligned, decided.control)]
    logger.warning(
        "alignment is turned %s for %s: answers were rated %s, %s as retrieved (mean ratings)",
        "off" if decided.off else "on again",
        where,
        *said,
    )


def _mean(mean: float | None) -> str:
    return "-" if mean is None else f"{mean:.3f}"
