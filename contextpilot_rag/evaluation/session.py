"""One evaluation from end to end: files, what it costs, asking, and what came out, also where it ends early."""

from __future__ import annotations

import json
import os
import secrets
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from ..engines.engine import engine_of
from ..engines.http import EngineHttp
from ..engines.tokenizing import listed_model
from ..errors import EngineError, EngineRefused, InputError, SettingsError, TraceError
from ..settings import name_of, of_environment
from ..tokens import TokenCounter
from ..trace import text_of
from .arms import BASE, SINGLE, TALKS, USUAL
from .asking import MOST_SCORED, Asker, Terms, salted_by, scoring_of
from .judging import Judging, judge_called
from .kept import Kept
from .prompting import SYSTEM
from .reading import read_questions, sampled
from .report import as_plain, as_text
from .run import Cell, ask_all, cases, cells, missing
from .shares import shares
from .verdict import MARGIN, verdict
from .words import Arm, Case, Question

Told = Callable[[str], None]

RETRIES = 5  # where an engine is busy, or not there; each after a longer wait, or as it says
_SECONDS = 600.0  # that one answer may take
_EACH = 30.0  # seconds between two lines on how far it is
_DECIDING = ("f1", "probability")


@dataclass(frozen=True, slots=True)
class EvaluateOptions:
    """What is evaluated, and how; the command line's options by name.

    Raises:
        SettingsError: a value that cannot be.
    """

    questions: Path
    endpoint: str | None = None
    model: str | None = None
    blocks: Path | None = None
    traffic: Path | None = None
    judge: str | None = None
    arms: Sequence[str] | None = None
    sample: int | None = None
    system: str | None = None
    max_tokens: int = 32
    concurrency: int = 8
    results: Path | None = None
    measure: Sequence[str] | None = None
    margin: float = MARGIN
    dry_run: bool = False
    json: bool = False
    out: Path | None = None

    def __post_init__(self) -> None:
        if self.endpoint is None and not self.dry_run:
            raise SettingsError("--endpoint is needed: where is the engine? (--dry-run asks none)")
        for name in ("sample", "max_tokens", "concurrency"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise SettingsError(f"--{name.replace('_', '-')} must be at least 1, not {value}")
        if not 0 < self.margin < 1:
            raise SettingsError(f"--margin must be between 0 and 1, not {self.margin}")
        if self.judge is None and "judge" in (self.measure or ()):
            raise SettingsError("--measure judge needs --judge")
        for path in (self.results, self.out):
            if path is not None and not path.absolute().parent.is_dir():
                raise SettingsError(f"{path} cannot be written: there is no such folder")
        self._check_out()

    def _check_out(self) -> None:
        """That the file which is written anew is none that is read, or kept."""
        marks = None if self.results is None else _marks_of(self.results)
        read = {path.resolve() for path in (self.questions, self.blocks, self.traffic, self.results, marks) if path}
        if self.out is not None and self.out.resolve() in read:
            raise SettingsError(f"--out {self.out} would overwrite a file that is needed; name another one")


class Session:
    """An evaluation. What can be wrong with its files and names is found when it is made, before anything is asked.

    Args:
        options: what, and how.
        told: takes a text of the result.
        aside: takes a line that is not part of it.

    Raises:
        InputError: a file, an arm or a judge that cannot be used; the message says which.
    """

    def __init__(self, options: EvaluateOptions, told: Told, aside: Told) -> None:
        self._options, self._told, self._aside = options, told, aside
        if not of_environment("enabled", otherwise=True):
            raise SettingsError(f"{name_of('enabled')} switches reordering off, here too: there is nothing to compare")
        self._judge = _judge(options)
        judged = self._judge is not None
        questions = read_questions(options.questions, options.blocks, options.traffic, judged=judged)
        self._questions = questions if options.sample is None else sampled(questions, options.sample)
        self._arms = _arms(options.arms, self._questions)
        self._system = _system(options.system)
        self._deciding: tuple[str, ...] = ()

    def planned(self) -> None:
        """Tell what would be asked, and what a cache would find."""
        self._told(self._cost(self._cells(Terms(self._options.model or "")), Kept(self._options.results)))
        for arm, share in shares(self._questions, self._arms, system=self._system).items():
            self._told(f"{arm}: a cache would find {share.ratio:.1%}, and leave {share.computed:,} tokens to compute")

    def measured(self) -> None:
        """Ask, and tell what came out.

        Raises:
            InputError: the judge failed.
            EngineError: the engine failed. What was measured by then is told before, as it is at an interruption.
        """
        kept = Kept(self._options.results)
        engine = engine_of(self._options.endpoint or "")
        if not engine.api_key:
            engine = replace(engine, api_key=os.environ.get("OPENAI_API_KEY", ""))
        with closing(EngineHttp(engine, _SECONDS, connections=self._options.concurrency)) as http:
            terms, salted = self._tried(http)
            self._deciding = _deciding(self._options.measure, self._marked_by(terms))
            wanted = self._cells(terms)
            self._aside(self._cost(wanted, kept) + _SCORING[terms.scoring])
            try:
                self._ask(Asker(http, terms, RETRIES), wanted, kept, salted=salted)
            except KeyboardInterrupt:
                self._concluded(wanted, kept, "interrupted", salted=salted)
                raise
            except EngineError as error:
                self._concluded(wanted, kept, "the engine failed", salted=salted)
                again = "the same command goes on from there" if self._options.results else "give --results to go on"
                raise EngineError(f"{error}; {len(kept):,} prompts were measured: {again}") from error
        self._concluded(wanted, kept, salted=salted)

    def _tried(self, http: EngineHttp) -> tuple[Terms, bool]:
        """What the engine can do; what it cannot is said."""
        model = self._options.model or listed_model(http)
        salted = salted_by(http, model, RETRIES)
        if not salted:
            self._aside("the engine takes no cache_salt: arms share its cache, and what it reports of that is not told")
        scoring = scoring_of(http, model, RETRIES)
        if scoring == "none":
            self._aside("the engine does not say how probable a given answer is: only what it writes is marked")
        return Terms(model, self._options.max_tokens, scoring), salted

    def _marked_by(self, terms: Terms) -> list[str]:
        """The measures that there will be marks of."""
        answers = any(question.answers for question in self._questions if question.asked)
        written = ["f1", "contained", "accuracy"] if answers else []
        probable = ["probability"] if answers and terms.scoring != "none" else []
        return [*written, *probable, *(["judge"] if self._judge else [])]

    def _cells(self, terms: Terms) -> list[Cell]:
        return cells(self._questions, self._arms, str(terms), system=self._system)

    def _cost(self, wanted: Sequence[Cell], kept: Kept) -> str:
        left, counter = missing(wanted, kept), TokenCounter()
        tokens = sum(counter.count(str(message["content"])) for cell in left for message in cell.prompted.messages)
        asked, known = len({cell.question.id for cell in wanted}), len({cell.key for cell in wanted}) - len(left)
        return (
            f"{asked:,} questions of {len(self._questions):,} requests, {len(self._arms)} arms: {len(left):,} prompts "
            f"to ask, about {tokens:,} tokens; {known:,} more are known from before"
        )

    def _ask(self, asker: Asker, wanted: Sequence[Cell], kept: Kept, *, salted: bool) -> None:
        if self._options.results is None:
            self._aside("what is measured is not kept: with --results FILE it could be taken up again")
        not_taken: list[tuple[Cell, EngineRefused]] = []
        ask_all(
            wanted,
            asker,
            kept,
            # of this run only: what an earlier one left in the engine's cache is none of this one's
            salt=f"evaluate {secrets.token_hex(4)}" if salted else None,
            concurrency=self._options.concurrency,
            progress=_Progress(self._aside),
            refused=lambda cell, error: not_taken.append((cell, error)),
        )
        if not_taken:
            cell, error = not_taken[0]
            names = {cell.question.id for cell, _ in not_taken}
            self._aside(
                f"questions left out, since the engine does not take all their prompts: {len(names):,}; "
                f"{cell.question.id}, {cell.arm.name}: {error}"
            )

    def _concluded(self, wanted: Sequence[Cell], kept: Kept, ended: str = "", *, salted: bool) -> None:
        """Tell what came out, of the questions that were asked in all arms."""
        try:
            found = cases(wanted, kept, self._judge)
        except InputError:
            found = cases(wanted, kept)
            self._deciding = tuple(name for name in _DECIDING if any(name in case.marks for case in found))
            if self._deciding:
                self._aside("the judge failed; by the right answers alone:")
                self._tell(found, salted=salted)
            raise
        if ended:
            asked = len({case.question.id for case in found})
            self._aside(f"{ended}: {asked:,} questions were asked in all arms")
        self._tell(found, salted=salted)

    def _tell(self, found: Sequence[Case], *, salted: bool) -> None:
        if not found:
            self._aside("no question was asked in all arms, so nothing can be said")
            return
        said = verdict(
            found,
            self._arms[0].name,
            margin=self._options.margin,
            deciding=self._deciding,
            shares=shares(self._questions, self._arms, system=self._system),
            isolated=salted,
        )
        self._told(json.dumps(as_plain(said), indent=1) if self._options.json else as_text(said))
        if self._options.out is not None:
            _write(self._options.out, found)


_SCORING = {
    "forced": f"; and for each up to {MOST_SCORED} short requests on what is cached, which score the right answer",
    "prompt": "; each is computed a second time, to score the right answer",
    "none": "",
}


class _Progress:
    """Says now and then how far it is."""

    def __init__(self, aside: Told) -> None:
        self._aside, self._began, self._said = aside, time.monotonic(), time.monotonic()

    def __call__(self, through: int, total: int) -> None:
        now = time.monotonic()
        if now - self._said >= _EACH:
            self._said = now
            left = (now - self._began) / through * (total - through)
            self._aside(f"{through:,} of {total:,} prompts, about {left / 60:.0f} minutes left")


def _judge(options: EvaluateOptions) -> Judging | None:
    if options.judge is None:
        return None
    marks = None if options.results is None else _marks_of(options.results)
    return Judging(options.judge, judge_called(options.judge), marks)


def _marks_of(results: Path) -> Path:
    """Where a judge's marks are kept, beside the results."""
    return results.with_name(f"{results.name}.judge")


def _arms(names: Sequence[str] | None, questions: Sequence[Question]) -> list[Arm]:
    """The arms that are meant, the base first."""
    talks = any(question.conversation is not None for question in questions)
    table = TALKS if talks else SINGLE
    if names is None:
        return [arm for name, arm in table.items() if name in USUAL]
    if list(names) == ["all"]:
        return list(table.values())
    unknown = [name for name in names if name not in table]
    if unknown:
        kind = "conversations" if talks else "questions that stand alone"
        raise SettingsError(f"there is no arm {unknown[0]!r} for {kind}; there are: {'; '.join(table)}")
    return [table[name] for name in dict.fromkeys([BASE, *names])]


def _system(given: str | None) -> str:
    if given is None:
        return SYSTEM
    return text_of(Path(given[1:])).strip() if given.startswith("@") else given


def _deciding(given: Sequence[str] | None, known: Sequence[str]) -> tuple[str, ...]:
    """The measures that decide.

    Raises:
        SettingsError: one that nothing will be marked by.
    """
    for measure in given or ():
        if measure not in known:
            raise SettingsError(f"--measure {measure}: there will be no marks by it, only by {', '.join(known)}")
    if given:
        return tuple(dict.fromkeys(given))
    return ("judge",) if "judge" in known else tuple(measure for measure in _DECIDING if measure in known)


def _write(path: Path, found: Sequence[Case]) -> None:
    """Every answer with its marks."""
    lines = []
    for case in found:
        outcome = {name: value for name, value in asdict(case.outcome).items() if name != "key"}
        row = {"qid": case.question.id, "arm": case.arm.name, "changed": case.prompted.changed}
        lines.append(json.dumps({**row, "place": case.prompted.place, **outcome, "marks": dict(case.marks)}))
    try:
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    except OSError as error:
        raise TraceError(f"cannot write {path}: {error.strerror}") from error
