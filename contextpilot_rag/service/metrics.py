"""Metrics: counts what the service does. Counting is a few additions; `exposition` makes text of it when asked.

A request is added in one place; from there it goes to all others when a minute is over, or somebody looks.

Nothing here grows with what clients send: engines, tenants, operations and kinds of problems have so many names, and
what is beyond goes under "other".
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from operator import ne

from ..identity import secret_salt
from ..types import Alignment, Namespace, Usage
from . import shown
from .engine_table import OTHER, Engines
from .hot import Hot
from .hour import Hour, Row
from .settings import ServiceSettings
from .tally import Tally

ALIGN = "POST /v1/align"
_ENGINES = 64
_ENGINES_EACH = 16  # of one tenant: nobody takes all the names there are
_TENANTS = 1_000
_OPERATIONS = 100
_NEW = 200
_SECONDS = (0.0005, 0.001, 0.0015, 0.002, 0.0025, 0.005, 0.0075, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
_LONG_SECONDS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0)
_PLACES = (0.0, 1.0, 2.0, 3.0, 5.0, 8.0, 13.0, 20.0, 50.0, 100.0, 500.0)


_Key = tuple[str, str, str, str, str | None]  # tenant; namespace's tenant, model, corpus; engine


@dataclass(slots=True)
class _New:
    """Figures of one tenant, namespace and engine that are not yet where they belong."""

    tally: Tally = field(default_factory=Tally)
    reported_at: float | None = None


class Histogram:
    """Counts values by upper bounds.

    >>> histogram = Histogram((1.0, 2.0))
    >>> for value in (1, 1.5, 7):
    ...     histogram.add(value)
    >>> histogram.buckets(), histogram.total
    ([('1.0', 1), ('2.0', 2), ('+Inf', 3)], 9.5)
    """

    __slots__ = ("_bounds", "_counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = tuple(bounds)
        self._counts = [0] * (len(self._bounds) + 1)
        self.total = 0.0

    def add(self, value: float) -> None:
        """Count a value."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self.total += value

    def buckets(self) -> list[tuple[str, int]]:
        """How many are not above each bound; as Prometheus has it."""
        return list(zip([*map(str, self._bounds), "+Inf"], accumulate(self._counts), strict=True))


class Metrics:
    """A watcher of the service, and a meter of its answers. Not thread-safe: the event loop owns it.

    Args:
        settings: whether metrics tell tenants apart, and who may see them.
        secret: what tenants' labels are derived with; they cannot be guessed without it.
        clock: seconds that never run backwards.

    Attributes:
        outcomes: requests by label of tenant and what became of them: a rule, or a kind of problem.
        responses: by operation and class of status.
        problems: by kind.
        displaced: blocks of a request that are not where the retriever had them.
        align_seconds: of the operation that aligns one request.
        plan_seconds: of plans that were worked on.
        plans_ended: by how.
        snapshot_seconds: what the last snapshot took; None: there was none.
        snapshot_at: when it was complete.
        snapshot_failures: how many failed.
        hot: prefixes that save the most.
        tells_tenants: whether labels tell tenants apart.
        names_engines: whether labels have engines' names.
    """

    def __init__(
        self, settings: ServiceSettings, secret: str = "", clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.clock = clock
        self.started = clock()
        self.hot = Hot(clock)
        self._hour = Hour(clock)
        self._engines = Engines()
        self._tallies: dict[tuple[str, str], Tally] = {}
        self._new: dict[_Key, _New] = {}
        self._until = 0.0
        self.outcomes: Counter[tuple[str, str]] = Counter()
        self.responses: Counter[tuple[str, str]] = Counter()
        self.problems: Counter[str] = Counter()
        self.displaced = Histogram(_PLACES)
        self.align_seconds = Histogram(_SECONDS)
        self.plan_seconds = Histogram(_LONG_SECONDS)
        self.plans_ended: Counter[str] = Counter()
        self.snapshot_seconds: float | None = None
        self.snapshot_at: float | None = None
        self.snapshot_failures = 0
        self.tells_tenants = settings.tenant_labels
        self.names_engines = settings.operator_metrics  # they are their tenants' own; not for everybody to see
        self._secret = secret
        self._tenant_labels: dict[str, str] = {}
        self._engine_labels: dict[str, dict[str, str]] = {}
        self._engine_names: set[str] = set()

    def aligned(self, tenant: str, alignment: Alignment, engine: str | None, again_tokens: int) -> None:
        """A request was aligned, or taken as sent."""
        request, order = alignment.request, alignment.order
        displaced = sum(map(ne, order, range(len(order))))
        tally = self._added_to(tenant, request.namespace, engine).tally
        tally.requests += 1
        tally.changed += displaced > 0
        tally.block_tokens += request.tokens
        tally.predicted += alignment.predicted_cached_tokens
        tally.retrieved += alignment.retrieved_cached_tokens
        tally.dedup += again_tokens
        self.displaced.add(displaced)
        self.outcomes[self._tenant_label(tenant), alignment.rule.value] += 1
        if alignment.cached_blocks:
            self.hot.add(tenant, alignment)

    def observed(self, tenant: str, alignment: Alignment, engine: str | None, usage: Usage) -> None:
        """Usage was reported for an alignment."""
        new = self._added_to(tenant, alignment.request.namespace, engine)
        if usage.cached_tokens is None or usage.prompt_tokens is None:
            new.tally.not_reported += 1
            return
        new.tally.reports += 1
        new.tally.reported_prompt += usage.prompt_tokens
        new.tally.reported_cached += usage.cached_tokens
        expected = alignment.expected_cached_tokens
        new.tally.reported_predicted += alignment.predicted_cached_tokens if expected is None else expected
        new.reported_at = self.clock()

    def forgot(self, tenant: str, namespace: Namespace | None) -> None:
        """What was forgotten is shown no more; figures stay."""
        self.hot.forget(tenant, namespace)

    def left(self, tenant: str) -> None:
        """A tenant is no more. What a later one of its name would be shown goes; sums of all tenants stay."""
        self._settle()
        self._engines.drop(tenant)

    def took(self, operation: str, seconds: float, status: int, kind: str | None = None) -> None:
        """An answer was made.

        Args:
            operation: method and path of the `Operation`; "none" where there was none.
            seconds: from the request's head to its answer.
            status: of HTTP.
            kind: of the problem, if it was one.
        """
        answer = (operation, f"{status // 100}xx")
        if answer not in self.responses and len(self.responses) >= _OPERATIONS:
            answer = (OTHER, answer[1])
        self.responses[answer] += 1
        if operation == ALIGN:
            self.align_seconds.add(seconds)
        if kind is not None:
            self.problems[kind] += 1
            if self.clock() >= self._until:
                self._settle()
            self._hour.rejected(kind)
            if operation == ALIGN:
                self.outcomes["", kind] += 1

    def planned(self, ended: str, seconds: float) -> None:
        """A plan that was worked on came to its end.

        Args:
            ended: "done", "failed" or "cancelled".
            seconds: that were worked on it.
        """
        self.plans_ended[ended] += 1
        self.plan_seconds.add(seconds)

    def snapshot_saved(self, seconds: float) -> None:
        """A snapshot is complete, and took so long."""
        self.snapshot_seconds = seconds
        self.snapshot_at = self.clock()

    def snapshot_current(self) -> None:
        """Nothing has changed since the last snapshot, or the start: what is on disk is as good as a new one."""
        self.snapshot_at = self.clock()

    def snapshot_failed(self) -> None:
        """A snapshot could not be written."""
        self.snapshot_failures += 1

    @property
    def snapshot_age(self) -> float | None:
        """Seconds since a snapshot held all there was to know; None: this process has written none."""
        return None if self.snapshot_at is None else self.clock() - self.snapshot_at

    @property
    def tallies(self) -> dict[tuple[str, str], Tally]:
        """By labels of tenant and engine."""
        self._settle()
        return self._tallies

    @property
    def hour(self) -> Hour:
        """The last hour by minute."""
        self._settle()
        return self._hour

    @property
    def engines(self) -> Engines:
        """By tenant."""
        self._settle()
        return self._engines

    def _added_to(self, tenant: str, space: Namespace, engine: str | None) -> _New:
        """Where a request's figures are added."""
        if self.clock() >= self._until or len(self._new) >= _NEW:
            self._settle()
        key = (tenant, space.tenant, space.model, space.corpus, engine)
        new = self._new.get(key)
        if new is None:
            new = self._new[key] = _New()
        return new

    def _settle(self) -> None:
        """Put what is new where it belongs. All of it is of one minute, the one that the hour has under way."""
        for (tenant, *space, engine), new in self._new.items():
            labels = (self._tenant_label(tenant), self._engine_label(tenant, engine))
            tally = self._tallies.get(labels)
            if tally is None:
                tally = self._tallies[labels] = Tally()
            tally.add(new.tally)
            self._hour.add(Row(tenant, (space[0], space[1], space[2]), engine), new.tally)
            self._engines.add(tenant, engine, new.tally, new.reported_at)
        self._new.clear()
        self._until = self._hour.turn()

    def _tenant_label(self, tenant: str) -> str:
        """Empty, if tenants are not told apart; else a hash: names are never shown here."""
        if not self.tells_tenants:
            return ""
        label = self._tenant_labels.get(tenant)
        if label is None:
            if len(self._tenant_labels) >= _TENANTS:
                return OTHER
            label = self._tenant_labels[tenant] = secret_salt(b"metrics tenant v1", (tenant,), self._secret)[:12]
        return label

    def _engine_label(self, tenant: str, engine: str | None) -> str:
        """Its name, if that may be seen and there are not too many. A NUL in it would end what Prometheus reads."""
        if engine is None or not self.names_engines:
            return ""
        labels = self._engine_labels.get(tenant)
        if labels is None:
            if len(self._engine_labels) >= _TENANTS:
                return OTHER
            labels = self._engine_labels[tenant] = {}
        label = labels.get(engine)
        if label is None:
            text = shown.name(engine)
            known = text in self._engine_names
            if len(labels) >= _ENGINES_EACH or (not known and len(self._engine_names) >= _ENGINES):
                return OTHER
            self._engine_names.add(text)
            label = labels[engine] = text
        return label
