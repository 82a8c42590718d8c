"""A verdict as text, and as plain values for JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from .intervals import Difference
from .verdict import JOINTS, ArmVerdict, Judged, Verdict

_NO = ""


def as_text(found: Verdict) -> str:
    """The verdict for people: what decides, the other measures, places, lengths, and which settings to use."""
    lines = _table(_deciding(found))
    others = _others(found)
    if others:
        lines += ["", "differences in what does not decide", *_table(others)]
    for measure, places in found.places.items():
        if places:
            head = ("gold block stands", "prompts", measure, f"against {found.base}")
            rows = [(one.place, f"{one.prompts:,}", f"{one.mean:.3f}", _shown(one.against)) for one in places]
            lines += ["", *_table([head, *rows])]
    lines += ["", *_lengths(found), *_blind(found), "", _use(found)]
    return "\n".join(lines)


def as_plain(found: Verdict) -> dict[str, Any]:
    """The same for programs."""
    return {
        "base": found.base,
        "margin": found.margin,
        "deciding": list(found.deciding),
        "arms": [_plain(one) for one in found.arms],
        "places": {measure: [asdict(one) for one in places] for measure, places in found.places.items()},
        "uneven": [one.arm.name for one in found.uneven],
        "blind": list(found.blind),
        "use": {"arm": found.use.arm.name, "settings": found.use.settings},
    }


def _plain(one: ArmVerdict) -> dict[str, Any]:
    return {
        "arm": one.arm.name,
        "about": one.arm.about,
        "questions": one.questions,
        "differing": one.differing,
        "means": dict(one.means),
        "differences": {measure: asdict(difference) for measure, difference in one.differences.items()},
        "judged": {measure: asdict(said) for measure, said in one.judged.items()},
        "verdict": one.said,
        "predicted": None if one.share is None else one.share.ratio,
        "computed_tokens": None if one.share is None else one.share.computed,
        "reported": one.reported,
        "lengths": asdict(one.lengths),
        "settings": one.settings,
    }


def _deciding(found: Verdict) -> list[Sequence[str]]:
    head = ["arm", *(text for measure in found.deciding for text in (measure, "difference (95 %)"))]
    rows: list[Sequence[str]] = [[*head, "predicted", "reported", "verdict"]]
    for one in found.arms:
        row = [one.arm.name]
        for measure in found.deciding:
            mean = one.means.get(measure)
            row += [_NO if mean is None else f"{mean:.3f}", _shown(one.differences.get(measure))]
        shares = [None if one.share is None else one.share.ratio, one.reported]
        row += [_NO if share is None else f"{share:.1%}" for share in shares]
        rows.append([*row, _NO if one.arm.name == found.base else _said(one)])
    return rows


def _said(one: ArmVerdict) -> str:
    """Of several that are open, the one that asks for most."""
    if one.said != "open":
        return one.said
    open_ = [judged for judged in one.judged.values() if judged.said == "open"]
    return str(max(open_, key=lambda judged: judged.more or 0, default=Judged("open")))


def _others(found: Verdict) -> list[Sequence[str]]:
    measures = list(dict.fromkeys(measure for one in found.arms for measure in one.differences))
    measures = [measure for measure in measures if measure not in found.deciding]
    if not measures:
        return []
    rows = [[one.arm.name, *(_shown(one.differences.get(measure)) for measure in measures)] for one in found.arms]
    return [["arm", *measures], *[row for row in rows if any(row[1:])]]


def _lengths(found: Verdict) -> list[str]:
    """What is to be known of the prompts' lengths."""
    sizes = [one.lengths for one in found.arms]
    alike, largest = sum(size.alike for size in sizes), max(size.largest for size in sizes)
    lines = [f"prompts that hold the same in another order: {alike:,}; the largest difference is {largest} tokens"]
    lines += [
        f"WARNING: {one.arm.name}: equally many characters, and up to {one.lengths.largest} tokens apart, more than "
        f"{JOINTS}; what is compared is not alike"
        for one in found.uneven
    ]
    return lines


def _blind(found: Verdict) -> list[str]:
    base = found.arms[0]
    return [
        f"WARNING: {measure}: {base.arm.name}, answers have {base.means[measure]:.3f}, so none can lose more than "
        f"{found.margin}; by this measure nothing can be told"
        for measure in found.blind
    ]


def _use(found: Verdict) -> str:
    if found.use.arm.name == found.base:
        safe = "no other arm that a setting makes is safe and leaves less to compute"
        return f"use {found.use.settings}: {safe}"
    return f"use {found.use.settings}: of the arms that are safe ({found.use.arm.name}), it leaves least to compute"


def _shown(difference: Difference | None) -> str:
    return _NO if difference is None else str(difference)


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows as lines, the first column to the left, the last as it comes."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = []
    for first, *rest in rows:
        cells = [first.ljust(widths[0]), *(text.rjust(width) for text, width in zip(rest, widths[1:], strict=True))]
        lines.append("  ".join(cells).rstrip())
    return lines
