"""The arms that are compared: every preset, limit and wording on offer, layouts that were tried, and controls."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from ..errors import SettingsError
from ..settings import Settings
from .layouts import OFFERED
from .talks import TALKS as TALKS_OFFERED
from .words import Arm

BASE = "as retrieved"
"""What every other arm is compared with."""

_SINGLE = (
    Arm(BASE, "retrieved", about="the retriever's order"),
    Arm("balanced", "balanced", about="the default: gains of a quarter, and nothing is said of it"),
    Arm("balanced, hint: order", "balanced", "order", about="all labels, best first"),
    Arm("min_gain 0, hint: order", "gain-0", "order", about="every gain is taken"),
    Arm("min_gain 10 %", "gain-10", about="smaller gains are taken, too"),
    Arm("min_gain 10 %, hint: order", "gain-10", "order", about="all labels, best first"),
    Arm("min_gain 10 %, hint: best", "gain-10", "best", about="the best block's label"),
    Arm("min_gain 10 %, hint: title", "gain-10", "title", about="label, and how the best block begins"),
    Arm("min_gain 10 %, hint: sentence", "gain-10", "sentence", about="label, and the best block's nearest sentence"),
    Arm("min_gain 10 %, hint: order, echo 1", "gain-10", "order", echo=1, about="the best block once more at the end"),
    Arm("min_gain 10 %, hint: order, echo 2", "gain-10", "order", echo=2, about="the two best blocks once more"),
    Arm("protect_top 1, hint: order", "protect-1", "order", about="gains of a tenth; the best block stays first"),
    Arm("protect_top 3, hint: order", "protect-3", "order", about="gains of a tenth; the three best stay"),
    Arm("displacement 2, hint: order", "near-2", "order", about="gains of a tenth; no block moves further than two"),
    Arm("gap, hint: order", "gap", "order", about="gains of a tenth, unless the best score is a fifth above"),
    Arm("best last, hint: order", "best-last", "order", about="gains of a tenth; the best block stands last"),
    Arm("min_gain 40 %", "gain-40", about="only very large gains"),
    Arm("min_gain 40 %, hint: order", "gain-40", "order", about="all labels, best first"),
    Arm("throughput", "throughput", about="heaviest prefix, the rest by what is shared"),
    Arm("throughput, hint: order", "throughput", "order", about="all labels, best first"),
    Arm("throughput, hint: sentence", "throughput", "sentence", about="with the best block's sentence"),
    Arm("sorted by id", "sorted", about="control"),
    Arm("shuffled", "shuffled", about="control"),
    Arm("reversed", "reversed", about="control: the best block last"),
)

SINGLE: Mapping[str, Arm] = {arm.name: arm for arm in _SINGLE}
"""For questions that stand alone."""

_TALKS = (
    Arm(BASE, "each turn everything", about="every block each turn, in the retriever's order"),
    Arm("blocks replaced", "blocks once", about="location hints for blocks that were given"),
    Arm("blocks and chunks replaced", "blocks and chunks once", about="and for parts of blocks"),
    Arm("aligned", "aligned, everything", about="every block each turn, aligned"),
    Arm("aligned, blocks replaced", "aligned, blocks once", about="the default of a conversation"),
    Arm("aligned, blocks and chunks replaced", "aligned, chunks once", about="all of it"),
    Arm("throughput, blocks replaced", "aligned for throughput, blocks once", about="the other preset"),
)

TALKS: Mapping[str, Arm] = {arm.name: arm for arm in _TALKS}
"""For turns of conversations."""

USUAL: tuple[str, ...] = (
    BASE,
    "balanced",
    "balanced, hint: order",
    "min_gain 10 %",
    "min_gain 40 %",
    "throughput",
    "shuffled",
    "blocks replaced",
    "aligned",
    "aligned, blocks replaced",
)
"""What is asked where nobody says which: those that differ most, and a control that shows what questions can tell."""


def settings_of(arm: Arm) -> Settings | None:
    """The settings that a pilot makes an arm's prompts with; None: it has none for that.

    >>> settings_of(SINGLE["min_gain 40 %"]).min_gain
    0.4
    >>> settings_of(SINGLE["shuffled"]) is None
    True
    """
    own = OFFERED.get(arm.layout) or TALKS_OFFERED.get(arm.layout)
    if own is None:
        return None
    hint: Any = {None: False, "order": True}.get(arm.hint, arm.hint)
    told = {} if own["order"] == "retrieved" else {"order_hint": hint}
    try:
        return Settings(**own, **told, echo=arm.echo)
    except SettingsError:  # a wording that the pilot does not offer
        return None


def written(settings: Settings) -> str:
    """Settings as they stand in code, those only that are not what they are anyway.

    >>> written(Settings(order="throughput", order_hint=True))
    'ContextPilot(order="throughput", order_hint=True)'
    """
    usual = Settings()
    shown = {one.name: getattr(settings, one.name) for one in fields(Settings)}
    own = [f"{name}={_literal(value)}" for name, value in shown.items() if value != getattr(usual, name)]
    return f"ContextPilot({', '.join(own)})"


def _literal(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else repr(value)
