"""Exposition: what the proxy counted, as Prometheus reads it. Tokens are counters, and never shares."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

from .._version import __version__
from ..replicas.status import ReplicaStatus
from ..service.replica_exposition import replica_metrics
from .counts import Counts

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

MEDIA = "text/plain; version=0.0.4; charset=utf-8"
PREFIX = "contextpilot_proxy_"

_COUNTS = (
    ("blocks", "blocks", "Blocks that were recognised in requests."),
    ("orders_changed", "orders_changed", "Requests whose blocks stand in another order than they came in."),
    ("replaced", "replaced", "Parts of prompts that location hints stand for."),
    ("left_out_characters", "left_out", "Characters that were not sent because of them."),
    ("predicted_cached_tokens", "predicted", "Tokens of blocks that were believed cached."),
    ("reported_prompt_tokens", "reported_prompt", "Prompt tokens of answers that say what was cached."),
    ("reported_cached_tokens", "reported_cached", "Of these, cached as the upstream says."),
    ("cached_not_reported", "not_reported", "Answers with usage that does not say what was cached."),
)


class Alive(Protocol):
    """An upstream, as far as metrics show it."""

    @property
    def name(self) -> str:
        """Its name."""
        ...

    @property
    def alive(self) -> bool:
        """Whether it answers."""
        ...


def text(counts: Counts, upstreams: Sequence[Alive], replica: ReplicaStatus | None = None) -> bytes:
    """All metrics, in Prometheus' text format.

    Args:
        counts: of the proxy.
        upstreams: how they stand.
        replica: how it stands to a log; None: it has none, or somebody else says so.
    """
    from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest

    registry = CollectorRegistry(auto_describe=False)
    registry.register(Collector(counts, upstreams, replica))
    ProcessCollector(registry=registry)
    return generate_latest(registry)


class Collector:
    """What Prometheus' client asks for metrics.

    Args:
        counts: of the proxy.
        upstreams: how they stand.
        replica: how it stands to a log.
    """

    def __init__(self, counts: Counts, upstreams: Sequence[Alive], replica: ReplicaStatus | None = None) -> None:
        self._replica = replica
        self._counts = counts
        self._upstreams = upstreams

    def collect(self) -> Iterator[Metric]:
        """All of them."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

        counts = self._counts
        requests = CounterMetricFamily(
            PREFIX + "requests", "Requests, by API and what became of them.", labels=["api", "outcome"]
        )
        for names, count in sorted(counts.requests.items()):
            requests.add_metric(names, count)
        yield requests
        responses = CounterMetricFamily(
            PREFIX + "responses", "Answers, by API and class of status.", labels=["api", "status"]
        )
        for names, count in sorted(counts.responses.items()):
            responses.add_metric(names, count)
        yield responses
        yield HistogramMetricFamily(
            PREFIX + "request_seconds",
            "Time of the proxy's own, until a request was forwarded.",
            counts.seconds.buckets(),
            counts.seconds.total,
        )
        for name, attribute, help_ in _COUNTS:
            yield CounterMetricFamily(PREFIX + name, help_, value=getattr(counts, attribute))
        failures = CounterMetricFamily(
            PREFIX + "failures", "What failed inside, by reason; the requests passed as they were.", labels=["reason"]
        )
        for reason, count in sorted(counts.failures.items()):
            failures.add_metric([reason], count)
        yield failures
        alive = GaugeMetricFamily(PREFIX + "upstream_alive", "Whether an upstream answers.", labels=["upstream"])
        for upstream in self._upstreams:
            alive.add_metric([upstream.name], upstream.alive)
        yield alive
        yield GaugeMetricFamily(PREFIX + "streams", "Requests that are being answered.", value=counts.streams)
        yield GaugeMetricFamily(PREFIX + "uptime_seconds", "Since the start.", value=counts.clock() - counts.started)
        if self._replica is not None:
            yield from replica_metrics(self._replica, PREFIX)
        version = GaugeMetricFamily(PREFIX + "build_info", "Always 1.", labels=["version"])
        version.add_metric([__version__], 1)
        yield version
