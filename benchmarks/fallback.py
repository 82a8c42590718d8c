"""How soon alignment turns itself off where it makes answers worse, and how often it does so for nothing; simulated.

    python benchmarks/fallback.py    # writes benchmarks/README.md; two minutes at most

Ratings are right (1) or wrong (0), one request after another, all different.
"""

from __future__ import annotations

import random
import sys
from math import sqrt
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parent))

from report import provenance, table, write_section

from contextpilot_rag import Namespace
from contextpilot_rag.quality.judge import Judge
from contextpilot_rag.types import Arm

SPACE = Namespace("acme")
RUNS, MOST = 40, 20_000
NULL_RUNS, NULL_REQUESTS = 200, 5_000
RIGHT = 0.7  # of the control's answers
EARLY = 0.05  # before they get better, whatever alignment does
ABOUT = f"""## The fallback by ratings of answers

Rated requests until alignment is turned off for a namespace; of the control's answers {RIGHT:.0%} are right. Median of
{RUNS} simulated runs (the slowest); a run ends after {MOST:,} requests."""


def needed(aligned: float, control: float, drop: float, share: float, seed: int) -> int | None:
    """The number of the request that turned alignment off; None: none did."""
    judge, chance = Judge(drop, share, 1), random.Random(seed)
    for number in range(1, MOST + 1):
        name = chance.getrandbits(64)
        role = judge.role(SPACE, name)
        right = chance.random() < (aligned if role == "aligned" else control)
        if role != "off" and judge.rate(SPACE, role, name, float(right)) is not None:
            return number
    return None


def soon(aligned: float, drop: float, share: float) -> str:
    """How soon, in words."""
    found = [needed(aligned, RIGHT, drop, share, seed) for seed in range(RUNS)]
    numbers = [number for number in found if number is not None]
    if len(numbers) < RUNS:
        return f"{len(numbers)} of {RUNS} runs"
    return f"{median(numbers):,.0f} ({max(numbers):,})"


def wrong(seed: int, share: float, early: float = RIGHT) -> tuple[bool, bool]:
    """Where answers are equal: whether alignment is turned off, and whether looking at an interval each time would.

    Args:
        seed: of the run.
        share: of the control.
        early: share of right answers in the first half, as if another model, or night, had been there.
    """
    judge, chance = Judge(0.0, share, 1), random.Random(seed)
    counts: dict[Arm, list[int]] = {"aligned": [0, 0], "control": [0, 0]}
    judged = looked = False
    for number in range(NULL_REQUESTS):
        expected = early if number < NULL_REQUESTS / 2 else RIGHT
        name, right = chance.getrandbits(64), chance.random() < expected
        role: Arm = "control" if name / 2**64 < share else "aligned"
        judged = judged or judge.rate(SPACE, role, name, float(right)) is not None
        counts[role][0] += 1
        counts[role][1] += right
        looked = looked or _below(counts["aligned"], counts["control"])
    return judged, looked


def _below(one: list[int], other: list[int]) -> bool:
    """By the ordinary 95 % interval of a difference of shares, from 30 ratings on each side."""
    if min(one[0], other[0]) < 30:
        return False
    shares = [right / count for count, right in (one, other)]
    error = sqrt(sum(share * (1 - share) / count for share, count in zip(shares, (one[0], other[0]), strict=True)))
    return shares[0] - shares[1] + 1.96 * error < 0


def main() -> None:
    """Measure, and write."""
    rows = [
        (f"{100 * fall:.0f} points less", f"{share:.0%}", *(soon(RIGHT - fall, drop, share) for drop in (0.0, 0.05)))
        for fall in (0.1, 0.2, 0.3)
        for share in (0.1, 0.3)
    ]
    found = [wrong(seed, 0.1) for seed in range(NULL_RUNS)]
    judged, looked = (sum(one) / NULL_RUNS for one in zip(*found, strict=True))
    drifted = sum(wrong(seed, 0.1, EARLY)[0] for seed in range(NULL_RUNS)) / NULL_RUNS
    null = (
        f"Where answers are equally good, {judged:.1%} of {NULL_RUNS} runs of {NULL_REQUESTS:,} requests turned it\n"
        f"off (`quality_drop=0`, at most 5 % are allowed). Looking after each rating at an ordinary 95 % interval\n"
        f"would have turned it off in {looked:.1%}. Where {EARLY:.0%} are right in the first half, in both arms\n"
        f"alike, {drifted:.1%} turned it off."
    )
    headings = ("aligned requests' right answers", "`quality_control`", "`quality_drop=0`", "`quality_drop=0.05`")
    write_section("fallback", "\n\n".join([ABOUT, f"From {provenance()}", table(headings, rows), null]))


if __name__ == "__main__":
    main()
