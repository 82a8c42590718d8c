"""How a replica stands to its log, as Prometheus reads it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..replicas.status import REJECTIONS, ReplicaStatus

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

_COUNTS = (
    ("appended", "Records that the log took."),
    ("applied", "Records that the log brought, own ones too."),
    ("founded", "Times that this replica gave a log what the others begin with."),
    ("compacted", "Snapshots that this replica wrote beside a log."),
    ("outages", "Times that this replica had to go on alone."),
    ("dropped", "Records that the other replicas will not hear of, because too many waited."),
)


def replica_metrics(status: ReplicaStatus, prefix: str) -> Iterator[Metric]:
    """All of them.

    Args:
        status: of the replica.
        prefix: of each metric's name.
    """
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    for name, help_, value in (
        ("joined", "Whether the other replicas are heard, and hear this one.", int(status.joined)),
        ("spaces", "Namespaces that have a log.", status.spaces),
        ("pending_records", "Records that were told and have not come back yet.", status.pending),
        ("pending_seconds", "How long the oldest of them waits.", status.pending_seconds),
    ):
        yield GaugeMetricFamily(f"{prefix}replica_{name}", help_, value=value)
    behind = GaugeMetricFamily(
        f"{prefix}replica_behind_seconds", "From telling an own record until the log brought it, for the last one."
    )
    if status.behind_seconds is not None:
        behind.add_metric([], status.behind_seconds)
    yield behind
    for name, help_ in _COUNTS:
        yield CounterMetricFamily(f"{prefix}replica_{name}", help_, value=getattr(status, name))
    rejected = {**dict.fromkeys(REJECTIONS, 0), **status.rejected}  # 0, too: an increase is seen from a value on
    for name, help_, counts in (
        ("rejected", "Entries and records that were left out, as they could not be believed.", rejected),
        ("reloads", "Times that a namespace was read anew, by why.", status.reloads),
    ):
        family = CounterMetricFamily(f"{prefix}replica_{name}", help_, labels=["reason"])
        for reason, count in sorted(counts.items()):
            family.add_metric([reason], count)
        yield family
