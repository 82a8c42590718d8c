"""The engines that the service follows, as Prometheus reads them."""

from __future__ import annotations

from collections.abc import Iterator
from operator import attrgetter
from typing import TYPE_CHECKING

from ..engines.engine import Level
from .engine_watch import FollowedEngine, FollowedFigures
from .shown import name

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

_OF_EVENTS = (
    ("engine_events", "counts.events", "Cache events that an engine told."),
    ("engine_event_gaps", "counts.gaps", "Times that events were missing."),
    ("engine_event_replays", "counts.replays", "Replays that were asked for, also to check that nothing is missing."),
    ("engine_event_restarts", "counts.restarts", "Times that an engine's events began anew."),
    ("engine_events_lost", "lost", "Times that all that an engine had told was dropped."),
)
_SIZES = (
    ("mirror_kv_blocks", "mirror.kv_blocks", "KV blocks that engines told of and have."),
    ("mirror_orphans", "mirror.orphans", "KV blocks that nobody knows the prompt of."),
    ("mirror_passages", "mirror.passages", "Paths of trees whose KV blocks are known."),
    ("handover_steps", "waiting", "Changes of engines' caches that trees have not followed yet."),
)
_COUNTS = (
    ("covered", "mirror.covered", "Prompts that clients told the place of, and that events had to be expected of."),
    ("covered_matched", "mirror.matched", "Of these, told of by an engine as well."),
    ("covered_mismatched", "mirror.mismatched", "Of these, never told of: the engine has other tokens for them."),
    ("covers_dropped", "covers_dropped", "Prompts whose place was let go, as there was no room, or it could not be."),
    ("engine_pruned_blocks", "pruned", "Entries of trees that were dropped, as engines do not have them any more."),
    ("engine_restored_paths", "restored", "Paths of trees that engines have again."),
    ("engine_emptied", "emptied", "Times that no engine had anything, and all trees were dropped."),
)


def followed_metrics(figures: FollowedFigures, prefix: str, *, named: bool) -> Iterator[Metric]:
    """All of them.

    Args:
        figures: what is known.
        prefix: of each metric's name.
        named: engines go by their names; else by their places.
    """
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    engines = [(name(one.name) if named else str(place), one) for place, one in enumerate(figures.engines)]
    up = GaugeMetricFamily(f"{prefix}engine_up", "Whether an engine answers the service.", labels=["engine"])
    level = GaugeMetricFamily(
        f"{prefix}engine_level",
        "How an engine is followed: 1 for its level, 0 for each other that it could have.",
        labels=["engine", "level"],
    )
    for label, engine in engines:
        up.add_metric([label], int(engine.alive))
        for possible in _possible(engine):
            level.add_metric([label, possible], int(engine.level == possible))
    yield up
    yield level
    for metric, field, help_ in _OF_EVENTS:
        family = CounterMetricFamily(prefix + metric, help_, labels=["engine"])
        for label, engine in engines:
            if engine.listened:
                family.add_metric([label], attrgetter(field)(engine))
        yield family
    for metric, field, help_ in _SIZES:
        yield GaugeMetricFamily(prefix + metric, help_, value=attrgetter(field)(figures))
    for metric, field, help_ in _COUNTS:
        yield CounterMetricFamily(prefix + metric, help_, value=attrgetter(field)(figures))


def _possible(engine: FollowedEngine) -> tuple[Level, ...]:
    return ("model", "usage", "events") if engine.listened else ("model", "usage")
