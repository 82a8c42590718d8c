"""benchmarks/quality.md: for each set the arms against the retriever's order, with intervals."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean

from quality_sets import SETS, Recorded
from report import provenance, write_section

from contextpilot_rag.evaluation.intervals import Difference
from contextpilot_rag.evaluation.shares import Share
from contextpilot_rag.evaluation.tables import Placed, by_place
from contextpilot_rag.evaluation.verdict import ArmVerdict, Verdict, verdict
from contextpilot_rag.evaluation.words import Case

MARGIN = 0.01
SHOWN = ("contained", "f1", "probability")
HEAD = """Written by {provenance} {about}

Right answers are scored by {scored}. Temperature 0; the engine's cache is told apart by layout; prompts that
are equal to the last byte are asked once and count for each arm that makes them. Every layout has seen the
whole trace, in its order, with an index of its own and a cache without a limit; a sample of its questions,
drawn by a fixed seed, is asked. Differences are to the retriever's order on the same questions, in points
(hundredths), with 95 % intervals of the paired bootstrap (10,000 draws). *safe*: on each of the measures shown
the lower end is above -{margin} point; *worse*: on one of them the upper end is below it; *open*: neither, the
questions are too few to tell. *hits*: what a cache without a limit finds of the whole trace's prompts."""
LABELS = {
    "contained": "contained",
    "f1": "token F1",
    "accuracy": "accuracy",
    "probability": "probability of the right answer",
    "logprob": "log-probability of a token",
}


def judged(
    found: Mapping[str, Sequence[Case]], shares: Mapping[str, Mapping[str, Share]], base: str
) -> dict[str, Verdict]:
    """The verdict on each set that has been asked."""
    return {
        name: verdict(cases, base, margin=MARGIN, deciding=deciding(SETS[name]), shares=shares[name])
        for name, cases in found.items()
    }


def deciding(of: Recorded) -> tuple[str, ...]:
    """What a set's answers are judged by: what was generated, and what the model thinks of the right one."""
    return ("accuracy", "f1", "probability") if of.name == "multihoprag_stubs" else ("contained", "f1", "probability")


def write(
    path: Path, verdicts: Mapping[str, Verdict], found: Mapping[str, Sequence[Case]], about: str, scored: str
) -> None:
    """Write the report.

    Args:
        path: of the Markdown file.
        verdicts: by set.
        found: the cases of each set.
        about: the engine and its model.
        scored: how right answers were scored.
    """
    parts = [
        "# Do answers stay as good?",
        *(
            textwrap.fill(part, 120, break_long_words=False)
            for part in HEAD.format(
                provenance=provenance(["openai"]), about=about, scored=scored, margin=round(100 * MARGIN)
            ).split("\n\n")
        ),
    ]
    for name, of_set in verdicts.items():
        parts += [f"## {name}", _intro(name, of_set, found[name]), _table(of_set), _logprobs(of_set)]
        places = by_place(found[name], of_set.base, "probability")
        if places:
            parts += ["By the place of the first gold block, all arms together:", _places(places)]
        parts.append(_audit(of_set))
    path.write_text("\n\n".join(part for part in parts if part) + "\n", encoding="utf-8")


def summarise(path: Path, verdicts: Mapping[str, Verdict]) -> None:
    """Put all sets into one table of the guide: what a cache finds, and what answers lose.

    Args:
        path: of the guide.
        verdicts: by set.
    """
    parts = []
    for about, sets in _kinds(verdicts).items():
        names = list(dict.fromkeys(one.arm.name for of_set in sets.values() for one in of_set.arms))
        rows = [f"| {about} | " + " | ".join(f"{name}: hits | answers" for name in sets) + " |"]
        rows.append("|---|" + "---:|---|" * len(sets))
        for name in names:
            cells = [
                _short(of_set, next((one for one in of_set.arms if one.arm.name == name), None))
                for of_set in sets.values()
            ]
            rows.append(f"| {name} | " + " | ".join(cells) + " |")
        parts.append("\n".join(rows))
    parts.append(f"Written by {provenance()}")
    write_section("quality", "\n\n".join(parts), path)


def _kinds(verdicts: Mapping[str, Verdict]) -> dict[str, dict[str, Verdict]]:
    found: dict[str, dict[str, Verdict]] = {}
    for name, of_set in verdicts.items():
        found.setdefault("single questions" if SETS[name].turns is None else "turns", {})[name] = of_set
    return found


def _short(of_set: Verdict, one: ArmVerdict | None) -> str:
    if one is None:
        return " | "
    hits = "" if one.share is None else f"{100 * one.share.ratio:.1f} %"
    if one.arm.name == of_set.base:
        return f"{hits} | "
    return f"{hits} | {points(one.differences.get('probability'))}, {one.said}, {one.questions}"


def _intro(name: str, of_set: Verdict, cases: Sequence[Case]) -> str:
    of, base = SETS[name], of_set.arms[0]
    sizes = fmean(len(case.question.blocks) for case in cases)
    what = f"`{of.trace}`, the {of.top} best blocks (mean {sizes:.1f})"
    if of.longest < 10_000:
        what += f" of those up to {of.longest} tokens"
    if of.extractive:
        what += "; questions whose answer stands in the gold block"
    if of.turns is not None:
        what += f"; turns 2 to {of.turns} of conversations, after the right answers to the turns before"
    means = ", ".join(f"{LABELS[key]} {base.means[key]:.3f}" for key in of_set.deciding if key in base.means)
    return f"{what}. Prompts of {base.lengths.tokens:.0f} tokens. As retrieved: {means}."


def _table(of_set: Verdict) -> str:
    headings = [
        "arm",
        "questions",
        "other prompts",
        "tokens more",
        "hits",
        *(LABELS[key] for key in of_set.deciding),
        "",
    ]
    rows = ["| " + " | ".join(headings) + " |", "|---|" + "---:|" * (len(headings) - 2) + "---|"]
    rows += ["| " + " | ".join(_row(one, of_set)) + " |" for one in of_set.arms]
    return "\n".join(rows)


def _row(one: ArmVerdict, of_set: Verdict) -> list[str]:
    base = one.arm.name == of_set.base
    hits = "" if one.share is None else f"{100 * one.share.ratio:.1f} %"
    other = "" if base else f"{100 * one.differing / max(1, one.questions):.0f} %"
    differences = [points(one.differences.get(key)) for key in of_set.deciding]
    added = "" if base else f"{one.lengths.added:+.0f}"
    return [one.arm.name, str(one.questions), other, added, hits, *differences, "" if base else one.said]


def points(difference: Difference | None) -> str:
    """A difference in hundredths, with its interval."""
    if difference is None:
        return ""
    return f"{100 * difference.mean:+.1f} ({100 * difference.low:+.1f} to {100 * difference.high:+.1f})"


def _logprobs(of_set: Verdict) -> str:
    """The most sensitive figure, in a table of its own: its unit is another one."""
    base = of_set.arms[0].means.get("logprob")
    if base is None:
        return ""
    rows = ["| arm | log-probability of a token of the right answer, against the retriever's order |", "|---|---:|"]
    rows += [
        f"| {one.arm.name} | {one.differences['logprob']} |" for one in of_set.arms if "logprob" in one.differences
    ]
    return f"As retrieved: {base:.3f}.\n\n" + "\n".join(rows)


def _places(places: Sequence[Placed]) -> str:
    rows = [
        "| place | prompts | probability of the right answer | against the retriever's order |",
        "|---|---:|---:|---:|",
    ]
    rows += [f"| {one.place} | {one.prompts} | {one.mean:.3f} | {points(one.against)} |" for one in places]
    return "\n".join(rows)


def _audit(of_set: Verdict) -> str:
    largest = max(one.lengths.largest for one in of_set.arms)
    alike = sum(one.lengths.alike for one in of_set.arms)
    return (
        f"Lengths: {alike} prompts hold the same as the retriever's in another order; they differ from it by at most "
        f"{largest} tokens, where blocks meet."
        if alike
        else ""
    )
