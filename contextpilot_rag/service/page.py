"""Page: the status page, one file that needs nothing else: no scripts, no fonts, no requests.

Everything that clients named is escaped by the template, and cannot run: the page's policy allows its style alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._version import __version__
from ..replicas.status import ReplicaStatus
from . import shown
from .chart import HEIGHT, WIDTH, Chart
from .engine_table import Engine
from .engine_watch import FollowedFigures
from .exposition import Sizes
from .hot import HotPrefix
from .metrics import Metrics
from .summary import Summary
from .tally import Shares, Tally

if TYPE_CHECKING:
    from jinja2 import Template

MEDIA = "text/html; charset=utf-8"
REFRESH_SECONDS = 30
HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
}
_ROWS = 12
_PREFIXES = 8
_TEMPLATES = Path(__file__).parent / "templates"


@dataclass(frozen=True, slots=True)
class Figures:
    """What the page is made from; what is made of it may be made in another thread.

    Args:
        summary: of the last hour.
        hottest: prefixes.
        engines: those with the most traffic: level, and seconds since the last report.
        sizes: of what is held.
        uptime: seconds.
        snapshot_age: seconds; None: there was none.
        snapshot_failures: since the start.
        keeps: whether there is a folder for snapshots.
        keyed: whether tenants have names.
        at: now.
        followed: engines that the index is kept in step with.
        replica: how it stands to the others; None: there are none.
    """

    summary: Summary
    hottest: list[HotPrefix]
    engines: dict[tuple[str, str | None], tuple[str, float | None]]
    sizes: Sizes
    uptime: float
    snapshot_age: float | None
    snapshot_failures: int
    keeps: bool
    keyed: bool
    at: datetime
    followed: FollowedFigures = field(default_factory=FollowedFigures)
    replica: ReplicaStatus | None = None

    @classmethod
    async def of(
        cls,
        metrics: Metrics,
        sizes: Sizes,
        at: datetime,
        *,
        keeps: bool,
        keyed: bool,
        followed: FollowedFigures | None = None,
        replica: ReplicaStatus | None = None,
    ) -> Figures:
        """Those of a service."""
        summary = await Summary.of(metrics.hour.minutes())
        now = metrics.clock()
        return cls(
            summary=summary,
            hottest=metrics.hot.hottest(_PREFIXES),
            engines={
                (tenant, name): _level(metrics.engines.find(tenant, name), now)
                for tenant, name in list(summary.engines)[:_ROWS]
            },
            sizes=sizes,
            uptime=now - metrics.started,
            snapshot_age=metrics.snapshot_age,
            snapshot_failures=metrics.snapshot_failures,
            keeps=keeps,
            keyed=keyed,
            at=at,
            followed=followed or FollowedFigures(),
            replica=replica,
        )


def render(figures: Figures) -> bytes:
    """The page."""
    summary = figures.summary
    total = summary.total
    spaces, engines = list(summary.spaces.items()), list(summary.engines.items())
    most = max((prefix.tokens for prefix in figures.hottest), default=0)
    text = _template().render(
        version=__version__,
        refresh=REFRESH_SECONDS,
        figures=figures,
        total=total,
        shares=Shares.of(total),
        saved=max(0, total.predicted - total.retrieved),
        chart=Chart.of(summary.minutes),
        width=WIDTH,
        height=HEIGHT,
        spaces=[_space(tenant, namespace, tally) for (tenant, namespace), tally in spaces[:_ROWS]],
        more_spaces=len(spaces[_ROWS:]),
        engines=[_engine(tenant, name, tally, figures) for (tenant, name), tally in engines[:_ROWS]],
        more_engines=len(engines[_ROWS:]),
        hottest=[_prefix(prefix, most) for prefix in figures.hottest],
        errors=summary.errors.most_common(),
    )
    return text.encode("utf-8", "replace")  # a lone surrogate in a name


@lru_cache(maxsize=1)
def _template() -> Template:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(percent=shown.percent, amount=shown.amount, span=shown.span, shown=shown.name)
    return environment.get_template("status.html")


def _level(engine: Engine | None, now: float) -> tuple[str, float | None]:
    engine = Engine() if engine is None else engine
    return engine.level(now), None if engine.reported_at is None else now - engine.reported_at


def _space(tenant: str, namespace: tuple[str, str, str] | None, tally: Tally) -> dict[str, Any]:
    return {"tenant": tenant, "name": shown.space(namespace), "tally": tally, "shares": Shares.of(tally)}


def _engine(tenant: str, name: str | None, tally: Tally, figures: Figures) -> dict[str, Any]:
    level, age = figures.engines[tenant, name]
    return {
        "tenant": tenant,
        "name": name,
        "tally": tally,
        "shares": Shares.of(tally),
        "level": level,
        "age": age,
    }


def _prefix(prefix: HotPrefix, most: int) -> dict[str, Any]:
    return {
        "prefix": prefix,
        "space": shown.space(prefix.namespace),
        "share": prefix.tokens / most if most else 0,
    }
