"""Exposition: the metrics as Prometheus reads them.

Tokens are counters, and never shares: the share of two counters over any time is a query away.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .._version import __version__
from ..replicas.status import ReplicaStatus
from .engine_watch import FollowedFigures
from .followed_exposition import followed_metrics
from .metrics import Histogram, Metrics
from .replica_exposition import replica_metrics
from .tally import Tally

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

    from .hub import Hub

MEDIA = "text/plain; version=0.0.4; charset=utf-8"
PREFIX = "contextpilot_"
_TURN_SECONDS = 0.001  # of work, before others have their turn

_TOKENS = (
    ("prompt_tokens", "block_tokens", "Tokens of the blocks that were asked for."),
    ("predicted_cached_tokens", "predicted", "Of these, believed cached in the order chosen."),
    ("retrieved_cached_tokens", "retrieved", "Of these, believed cached had the retriever's order been kept."),
    ("dedup_tokens_saved", "dedup", "Of these, replaced by hints, as the conversation had the blocks before."),
    ("reported_prompt_tokens", "reported_prompt", "Prompt tokens of requests whose cached tokens were reported."),
    ("reported_cached_tokens", "reported_cached", "Of these, cached as the engine says."),
    ("reported_predicted_tokens", "reported_predicted", "What was expected to be cached of these."),
    ("usage_reports", "reports", "Usage reports that say what was cached."),
    ("cached_not_reported", "not_reported", "Usage reports that do not say what was cached."),
    ("requests_changed", "changed", "Requests put into another order than the retriever's."),
)


@dataclass(slots=True)
class Sizes:
    """How much the service holds.

    Args:
        tenants: that were seen.
        namespaces: of all.
        blocks: entries of all trees.
        tokens: of all trees.
        tickets: of all.
        conversations: of all.
        plans: by state.
        state: what the service can do now.
    """

    tenants: int = 0
    namespaces: int = 0
    blocks: int = 0
    tokens: int = 0
    tickets: int = 0
    conversations: int = 0
    plans: dict[str, int] = field(default_factory=dict)
    state: str = "starting"


async def sizes_of(hub: Hub) -> Sizes:
    """What a service holds now. Others have their turn in between: there may be thousands of tenants."""
    sizes = Sizes(state=hub.state.value, plans={} if hub.plans is None else hub.plans.states())
    tenants = hub.service.tenants
    sizes.tenants = len(tenants)
    began = time.perf_counter()
    for tenant in tenants.values():
        sizes.tickets += len(tenant.tickets)
        sizes.conversations += len(tenant.ledgers)
        began = await _turn(began)
    for pool in hub.service.pools().values():
        stats = pool.index.stats()
        sizes.namespaces += stats.namespaces
        sizes.blocks += stats.tree_blocks
        sizes.tokens += stats.tree_tokens
        began = await _turn(began)
    return sizes


async def followed_of(hub: Hub) -> FollowedFigures:
    """The engines that a service follows. They are looked at in a thread, as their locks may be held for a moment."""
    return FollowedFigures() if hub.followed is None else await asyncio.to_thread(hub.followed.figures)


def replica_of(hub: Hub) -> ReplicaStatus | None:
    """How it stands to the other replicas; None: there are none."""
    return None if hub.replicas is None else hub.replicas.status()


async def text(hub: Hub, metrics: Metrics) -> bytes:
    """All metrics, in Prometheus' text format."""
    collector = Collector(metrics, await sizes_of(hub), await followed_of(hub), replica_of(hub))
    return await asyncio.to_thread(_generate, collector)


def _generate(collector: Collector) -> bytes:
    from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest

    registry = CollectorRegistry(auto_describe=False)
    registry.register(collector)
    ProcessCollector(registry=registry)
    return generate_latest(registry)


class Collector:
    """What Prometheus' client asks for metrics. Made in the event loop; what it holds then changes in size no more.

    Args:
        metrics: what was counted.
        sizes: what the service holds.
        followed: engines, and what is known of their caches.
        replica: how it stands to the others; None: there are none.
    """

    def __init__(
        self,
        metrics: Metrics,
        sizes: Sizes,
        followed: FollowedFigures | None = None,
        replica: ReplicaStatus | None = None,
    ) -> None:
        self._replica = replica
        self._metrics = metrics
        self._sizes = sizes
        self._followed = followed
        self._outcomes = sorted(metrics.outcomes.items())
        self._tallies = sorted(metrics.tallies.items())
        self._responses = sorted(metrics.responses.items())
        self._problems = metrics.problems.copy()
        self._plans_ended = metrics.plans_ended.copy()

    def collect(self) -> Iterator[Metric]:
        """All of them."""
        yield from self._requests()
        yield from self._tokens()
        yield from self._answers()
        yield from self._times()
        yield from self._gauges()
        if self._followed is not None and self._followed.engines:
            yield from followed_metrics(self._followed, PREFIX, named=self._metrics.names_engines)
        if self._replica is not None:
            yield from replica_metrics(self._replica, PREFIX)

    def _requests(self) -> Iterator[Metric]:
        from prometheus_client.core import CounterMetricFamily

        told = self._told_apart()
        requests = CounterMetricFamily(
            PREFIX + "requests",
            "Requests to align, by the rule or the problem that decided.",
            labels=["outcome", *told],
        )
        for (tenant, outcome), count in self._outcomes:
            requests.add_metric([outcome, *([tenant] if told else [])], count)
        yield requests

    def _tokens(self) -> Iterator[Metric]:
        from prometheus_client.core import CounterMetricFamily

        told = self._told_apart()
        tallies = self._tallies or ([] if told else [(("", ""), Tally())])
        for name, field_, help_ in _TOKENS:
            family = CounterMetricFamily(PREFIX + name, help_, labels=["engine", *told])
            for (tenant, engine), tally in tallies:
                family.add_metric([engine, *([tenant] if told else [])], getattr(tally, field_))
            yield family

    def _answers(self) -> Iterator[Metric]:
        from prometheus_client.core import CounterMetricFamily

        metrics = self._metrics
        responses = CounterMetricFamily(
            PREFIX + "http_responses", "Answers, by operation and class of status.", labels=["operation", "status"]
        )
        for (operation, status), count in self._responses:
            responses.add_metric([operation, status], count)
        yield responses
        yield _counter("rejected", "Requests answered with a problem, by its kind.", "kind", self._problems)
        yield _counter("plans_ended", "Plans that were worked on, by how they ended.", "ended", self._plans_ended)
        yield CounterMetricFamily(
            PREFIX + "snapshot_failures", "Snapshots that could not be written.", value=metrics.snapshot_failures
        )

    def _times(self) -> Iterator[Metric]:
        metrics = self._metrics
        yield _histogram("align_seconds", "Time to answer one request to align.", metrics.align_seconds)
        yield _histogram("plan_duration_seconds", "Time that was worked on a plan.", metrics.plan_seconds)
        yield _histogram(
            "blocks_displaced", "Blocks of a request that are not where the retriever had them.", metrics.displaced
        )

    def _gauges(self) -> Iterator[Metric]:
        from prometheus_client.core import GaugeMetricFamily

        sizes, metrics = self._sizes, self._metrics
        for name, help_, value in (
            ("index_blocks", "Entries of all trees.", sizes.blocks),
            ("index_tokens", "Tokens of all trees.", sizes.tokens),
            ("namespaces", "Namespaces known.", sizes.namespaces),
            ("conversations", "Conversations known.", sizes.conversations),
            ("tickets", "Tickets that can be reported on.", sizes.tickets),
            ("tenants", "Tenants seen.", sizes.tenants),
            ("ready", "Whether requests are taken.", int(sizes.state == "ready")),
            ("uptime_seconds", "Since the start.", metrics.clock() - metrics.started),
        ):
            yield GaugeMetricFamily(PREFIX + name, help_, value=value)
        plans = GaugeMetricFamily(PREFIX + "plans", "Plans held, by state.", labels=["state"])
        for state, count in sorted(sizes.plans.items()):
            plans.add_metric([state], count)
        yield plans
        version = GaugeMetricFamily(PREFIX + "build_info", "Always 1.", labels=["version"])
        version.add_metric([__version__], 1)
        yield version
        for name, help_, age in (
            ("snapshot_age_seconds", "Since the last snapshot held all there was to know.", metrics.snapshot_age),
            ("snapshot_seconds", "What the last snapshot took.", metrics.snapshot_seconds),
        ):
            family = GaugeMetricFamily(PREFIX + name, help_)
            if age is not None:  # no value rather than a wrong one
                family.add_metric([], age)
            yield family

    def _told_apart(self) -> list[str]:
        return ["tenant"] if self._metrics.tells_tenants else []


def _counter(name: str, help_: str, label: str, counts: dict[str, int]) -> Metric:
    from prometheus_client.core import CounterMetricFamily

    family = CounterMetricFamily(PREFIX + name, help_, labels=[label])
    for value, count in sorted(counts.items()):
        family.add_metric([value], count)
    return family


def _histogram(name: str, help_: str, histogram: Histogram) -> Metric:
    from prometheus_client.core import HistogramMetricFamily

    return HistogramMetricFamily(PREFIX + name, help_, histogram.buckets(), histogram.total)


async def _turn(began: float) -> float:
    if time.perf_counter() - began < _TURN_SECONDS:
        return began
    await asyncio.sleep(0)
    return time.perf_counter()
