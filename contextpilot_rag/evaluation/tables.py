"""What came out: means, differences on the same questions, by the gold block's place, and prompts' lengths."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .intervals import Difference, paired
from .words import Case

PLACES = ("first", "first half", "second half", "last")
"""Where a gold block stands among the blocks of a prompt."""


@dataclass(frozen=True, slots=True)
class Placed:
    """The prompts whose first gold block stands at a place.

    Args:
        place: one of `PLACES`.
        prompts: how many different ones.
        mean: of the measure. Easy questions have their gold block first, so this is not the place's doing alone.
        against: the difference to the base's prompt of the same question, of those that are not the base's own; None:
            there are none.
    """

    place: str
    prompts: int
    mean: float
    against: Difference | None


@dataclass(frozen=True, slots=True)
class Lengths:
    """How long an arm's prompts are, beside the base's of the same questions.

    Args:
        tokens: mean of a prompt.
        added: mean of what it has more than the base's.
        alike: prompts of other bytes but equally many characters, so that the same stands there in another order.
        largest: the largest difference in tokens among those; tokens may join otherwise where blocks meet.
        shorter: prompts with fewer characters than the base's: something was left out.
    """

    tokens: float
    added: float
    alike: int
    largest: int
    shorter: int


def means(cases: Sequence[Case]) -> dict[str, dict[str, float]]:
    """The mean of each measure, by arm."""
    found: dict[str, dict[str, list[float]]] = {}
    for case in cases:
        of_arm = found.setdefault(case.arm.name, {})
        for measure, mark in case.marks.items():
            of_arm.setdefault(measure, []).append(mark)
    return {arm: {name: sum(marks) / len(marks) for name, marks in row.items()} for arm, row in found.items()}


def compared(cases: Sequence[Case], base: str, measure: str) -> dict[str, Difference]:
    """For each other arm its difference to a base, on the questions that both have a mark of.

    One that is asked again and again, with the same blocks, counts once: it tells no more than that.

    Args:
        cases: of all arms.
        base: name of the arm that all are compared with.
        measure: which.
    """
    marked = _marked(cases, measure)
    theirs = marked.pop(base, {})
    found = {}
    for arm, ours in marked.items():
        both = [(case, theirs[question]) for question, case in ours.items() if question in theirs]
        pairs = {
            (one.outcome.key, other.outcome.key, one.marks[measure], other.marks[measure]): None for one, other in both
        }
        if pairs:
            found[arm] = paired([mark for *_, mark, _ in pairs], [mark for *_, mark in pairs])
    return found


def by_place(cases: Sequence[Case], base: str, measure: str, arm: str | None = None) -> list[Placed]:
    """Marks by where the first gold block stands; equal prompts count once.

    Args:
        cases: of all arms.
        base: name of the arm that the same questions are compared with.
        measure: which.
        arm: only this one; None: all together.
    """
    of_base = {case.question.id: case for case in cases if case.arm.name == base and measure in case.marks}
    rows: dict[str, dict[str, Case]] = {place: {} for place in PLACES}
    for case in cases:
        if measure in case.marks and case.prompted.place is not None and arm in {None, case.arm.name}:
            rows[_place(case.prompted.place)].setdefault(case.outcome.key, case)
    found = []
    for place, prompts in rows.items():
        marks = [case.marks[measure] for case in prompts.values()]
        moved = [
            (case.marks[measure], of_base[case.question.id].marks[measure])
            for case in prompts.values()
            if case.question.id in of_base and of_base[case.question.id].outcome.key != case.outcome.key
        ]
        against = paired([ours for ours, _ in moved], [theirs for _, theirs in moved]) if moved else None
        if marks:
            found.append(Placed(place, len(marks), sum(marks) / len(marks), against))
    return found


def lengths(cases: Sequence[Case], base: str) -> dict[str, Lengths]:
    """How long the prompts of each arm are, the base's among them; see `Lengths`.

    Args:
        cases: of all arms.
        base: name of the arm that all are compared with.
    """
    of_base = {case.question.id: case for case in cases if case.arm.name == base}
    rows: dict[str, list[Case]] = {}
    for case in cases:
        if case.question.id in of_base:
            rows.setdefault(case.arm.name, []).append(case)
    return {arm: _lengths(row, of_base) for arm, row in rows.items()}


def differing(cases: Sequence[Case], base: str) -> dict[str, int]:
    """How many prompts of each other arm are not the base's own.

    Args:
        cases: of all arms.
        base: name of the arm that all are compared with.
    """
    keys = {case.question.id: case.outcome.key for case in cases if case.arm.name == base}
    found: dict[str, int] = {}
    for case in cases:
        if case.arm.name != base:
            other = keys.get(case.question.id) != case.outcome.key
            found[case.arm.name] = found.get(case.arm.name, 0) + other
    return found


def _lengths(row: Sequence[Case], of_base: Mapping[str, Case]) -> Lengths:
    pairs = [(case, of_base[case.question.id]) for case in row]
    characters = [_characters(ours) - _characters(theirs) for ours, theirs in pairs]
    tokens = [ours.outcome.prompt_tokens - theirs.outcome.prompt_tokens for ours, theirs in pairs]
    alike = [
        more
        for more, longer, (ours, theirs) in zip(tokens, characters, pairs, strict=True)
        if longer == 0 and ours.outcome.key != theirs.outcome.key
    ]
    return Lengths(
        tokens=sum(case.outcome.prompt_tokens for case in row) / len(row),
        added=sum(tokens) / len(tokens),
        alike=len(alike),
        largest=max(map(abs, alike), default=0),
        shorter=sum(longer < 0 for longer in characters),
    )


def _characters(case: Case) -> int:
    return sum(len(str(message["content"])) for message in case.prompted.messages)


def _marked(cases: Sequence[Case], measure: str) -> dict[str, dict[str, Case]]:
    """Those with a mark, by arm and question."""
    found: dict[str, dict[str, Case]] = {}
    for case in cases:
        if measure in case.marks:
            found.setdefault(case.arm.name, {})[case.question.id] = case
    return found


def _place(place: float) -> str:
    if place == 0:
        return PLACES[0]
    return PLACES[3] if place == 1 else PLACES[1 if place < 0.5 else 2]
