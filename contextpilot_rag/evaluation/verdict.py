"""What the figures say: which arms are safe to use, which are worse, and which of the safe ones saves most.

An arm is *safe* if its answers, with 95 % confidence, lose no more than a margin against the base's, and *worse* if
they lose more than that. Else it is *open*, and more questions would tell.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from .arms import settings_of, written
from .intervals import Difference
from .shares import Share, reported
from .tables import Lengths, Placed, by_place, compared, differing, lengths, means
from .words import Arm, Case

MARGIN = 0.01
JOINTS = 8
"""Tokens that prompts of the same characters may differ by, where blocks meet otherwise."""

Said = Literal["safe", "worse", "open"]
_UNSEEN = 3  # what hits one in n / 3 questions is, at 95 %, seen at least once among n
_FEW = 30  # pairs; with fewer, a bootstrap is surer than it should be
_ORDER: Sequence[Said] = ("safe", "open", "worse")


@dataclass(frozen=True, slots=True)
class Judged:
    """What a difference says.

    Args:
        said: in a word.
        more: about how many more questions would tell; None: it is said, or no number would do.
    """

    said: Said
    more: int | None = None

    def __str__(self) -> str:
        if self.said != "open":
            return self.said
        return "not enough questions" if self.more is None else f"not enough questions: about {self.more:,} more"


@dataclass(frozen=True, slots=True)
class ArmVerdict:
    """One arm against the base.

    Args:
        arm: which.
        questions: asked.
        differing: prompts that are not the base's own.
        means: by measure.
        differences: to the base, by measure; of the base none.
        judged: by those measures that decide.
        said: all of these together: the worst of them.
        share: of its tokens that a cache would find; None: not predicted.
        reported: the cached share as the engine reported it; None: it did not.
        lengths: of its prompts.
        settings: as they stand in code; None: a pilot has none that make these prompts.
    """

    arm: Arm
    questions: int
    differing: int
    means: Mapping[str, float]
    differences: Mapping[str, Difference]
    judged: Mapping[str, Judged]
    said: Said
    share: Share | None
    reported: float | None
    lengths: Lengths
    settings: str | None


@dataclass(frozen=True, slots=True)
class Verdict:
    """All arms, and which to use.

    Args:
        base: name of the arm that all are compared with.
        margin: what answers may lose.
        deciding: the measures that decide.
        arms: the base first.
        places: marks by where the gold block stands, by deciding measure.
        use: of the safe arms that settings make, the one that leaves least to compute; the base if there is none.
        blind: deciding measures by which the base's answers are so bad that none can lose more than the margin. They
            call no arm safe: whatever an order did, they would not show it.
    """

    base: str
    margin: float
    deciding: tuple[str, ...]
    arms: tuple[ArmVerdict, ...]
    places: Mapping[str, Sequence[Placed]]
    use: ArmVerdict
    blind: tuple[str, ...] = ()

    @property
    def uneven(self) -> tuple[ArmVerdict, ...]:
        """Arms whose prompts hold the same and are longer or shorter for it than joints explain."""
        return tuple(one for one in self.arms if one.lengths.largest > JOINTS)


def judged(difference: Difference, margin: float = MARGIN, differing: int | None = None) -> Judged:
    """What a difference says of an arm.

    With few questions a bootstrap knows nothing of what is rare: among n, what hits one in n / 3 may well be unseen.
    So an arm is called safe only after 3 / margin questions, or if its prompts are the base's own; and worse only after
    30.

    Args:
        difference: to the base.
        margin: what may be lost; more than 0.
        differing: prompts that are not the base's own; None: as many as there are pairs.

    >>> judged(Difference(-0.001, -0.006, 0.004, 400, 30)).said
    'safe'
    >>> str(judged(Difference(-0.001, -0.021, 0.019, 400, 90)))
    'not enough questions: about 1,576 more'
    """
    if differing == 0:
        return Judged("safe")
    pairs, least = difference.pairs, max(_FEW, math.ceil(_UNSEEN / margin))
    if difference.high < -margin:
        return Judged("worse") if pairs >= _FEW else Judged("open", _FEW - pairs)
    if difference.low > -margin:
        return Judged("safe") if pairs >= least else Judged("open", least - pairs)
    above = difference.mean > -margin
    gap = abs(difference.mean + margin)
    half = difference.mean - difference.low if above else difference.high - difference.mean
    if gap == 0:
        return Judged("open")
    needed = math.ceil(pairs * (half / gap) ** 2)
    return Judged("open", max(needed, least if above else _FEW, pairs + 1) - pairs)


def verdict(
    cases: Sequence[Case],
    base: str,
    *,
    margin: float = MARGIN,
    deciding: Sequence[str] = ("f1",),
    shares: Mapping[str, Share] | None = None,
    isolated: bool = True,
) -> Verdict:
    """The verdict on all arms.

    Args:
        cases: of all arms, the base among them.
        base: name of the arm that all are compared with.
        margin: what answers may lose, in the measures' own unit (0 to 1).
        deciding: names of the measures that decide; each has to be safe.
        shares: predicted shares, by arm.
        isolated: the engine told layouts apart; False: what it reported of its cache says nothing.
    """
    shares = shares or {}
    arms = {case.arm.name: case.arm for case in cases}
    names = [base, *(name for name in arms if name != base)]
    measures = dict.fromkeys(measure for case in cases for measure in case.marks)
    differences = {measure: compared(cases, base, measure) for measure in measures}
    averages, sizes, others = means(cases), lengths(cases, base), differing(cases, base)
    told = reported(cases) if isolated else {}
    blind = tuple(one for one in deciding if one in averages[base] and averages[base][one] <= margin)
    found = []
    for name in names:
        own = {measure: row[name] for measure, row in differences.items() if name in row}
        said = {
            one: Judged("open") if one in blind and others[name] else judged(own[one], margin, others[name])
            for one in deciding
            if one in own
        }
        settings = settings_of(arms[name])
        found.append(
            ArmVerdict(
                arms[name],
                sum(case.arm.name == name for case in cases),
                others.get(name, 0),
                averages[name],
                own,
                said,
                "safe" if name == base else _together(said, deciding),
                shares.get(name),
                told.get(name),
                sizes[name],
                None if settings is None else written(settings),
            )
        )
    left = {one.arm.name: one.share.computed for one in found if one.share is not None}
    usable = [one for one in found if one.said == "safe" and one.settings is not None and one.arm.name in left]
    use = min(usable, key=lambda one: left[one.arm.name], default=found[0])
    places = {measure: by_place(cases, base, measure) for measure in deciding}
    return Verdict(base, margin, tuple(deciding), tuple(found), places, use, blind)


def _together(said: Mapping[str, Judged], deciding: Sequence[str]) -> Said:
    """The worst; what a measure says nothing of is open."""
    words: list[Said] = [said[measure].said if measure in said else "open" for measure in deciding]
    return max(words, key=_ORDER.index, default="open")
