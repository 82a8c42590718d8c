"""Ask all that is missing, several at a time, one question's arms after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import dataclass
from itertools import islice

from ..errors import EngineRefused
from .asking import Asker
from .kept import Kept
from .making import made
from .marking import marks
from .prompting import SYSTEM
from .words import Arm, Case, Outcome, Prompted, Question

Judge = Callable[[Question, str], float]
"""How good an answer is, from 0 to 1."""

_NOT_TAKEN = frozenset({400, 413, 422})  # an engine's words for a prompt that it does not take


@dataclass(frozen=True, slots=True)
class Cell:
    """One question in one arm, before it is asked."""

    question: Question
    arm: Arm
    prompted: Prompted
    key: str


def cells(
    questions: Sequence[Question],
    arms: Iterable[Arm],
    terms: str,
    *,
    system: str = SYSTEM,
    tokenizer: object = None,
) -> list[Cell]:
    """All prompts, question by question: whenever it ends, every arm has been asked the same.

    Args:
        questions: in the order of the traffic.
        arms: which.
        terms: that answers depend on.
        system: the system prompt.
        tokenizer: for layouts' token counts; None: estimates.
    """
    by_question: dict[str, list[Cell]] = {question.id: [] for question in questions if question.asked}
    for arm, prompts in made(questions, arms, system=system, tokenizer=tokenizer):
        for question, prompt in prompts:
            by_question[question.id].append(Cell(question, arm, prompt, prompt.key(question, terms)))
    return [cell for row in by_question.values() for cell in row]


def missing(wanted: Sequence[Cell], kept: Kept) -> list[Cell]:
    """What is to be asked: of equal prompts one, none that is known.

    Args:
        wanted: all cells.
        kept: what is known.
    """
    first = {cell.key: cell for cell in reversed(wanted) if kept.get(cell.key) is None}
    return [cell for cell in wanted if first.get(cell.key) is cell]


def ask_all(
    wanted: Sequence[Cell],
    asker: Asker,
    kept: Kept,
    *,
    salt: str | None = "evaluate",
    concurrency: int = 8,
    progress: Callable[[int, int], None] | None = None,
    refused: Callable[[Cell, EngineRefused], None] | None = None,
) -> None:
    """Ask what is not known yet. Prompts that are equal to the last byte are asked once.

    Args:
        wanted: all cells.
        asker: the engine.
        kept: what is known; outcomes go there.
        salt: begins the cache salts, by which the engine tells layouts apart; None: it takes none.
        concurrency: prompts at a time.
        progress: is told how many of how many prompts are through.
        refused: is told of a prompt that the engine does not take, such as one that is too long; None: it is an error.

    Raises:
        EngineError: the engine failed; what came before, and what was under way, is kept.
    """
    asked = missing(wanted, kept)
    jobs = iter(asked)

    def ask(cell: Cell) -> None:
        gold = cell.question.answers[0] if cell.question.answers else None
        own = None if salt is None else f"{salt} {cell.arm.layout}"
        try:
            kept.add(asker.ask(cell.key, cell.prompted.messages, gold, own))
        except EngineRefused as error:
            if refused is None or error.status not in _NOT_TAKEN:
                raise
            refused(cell, error)

    through = 0
    with ThreadPoolExecutor(concurrency) as pool:
        running = {pool.submit(ask, cell) for cell in islice(jobs, concurrency)}
        try:
            while running:
                ended, running = wait(running, return_when=FIRST_COMPLETED)
                for future in ended:
                    future.result()
                through += len(ended)
                running |= {pool.submit(ask, cell) for cell in islice(jobs, len(ended))}
                if progress is not None:
                    progress(through, len(asked))
        finally:
            asker.give_up()


def cases(wanted: Iterable[Cell], kept: Kept, judge: Judge | None = None) -> list[Case]:
    """What came out, as far as it is known for all arms of a question.

    Args:
        wanted: all cells.
        kept: outcomes.
        judge: a measure of the user's, called "judge" in the marks.
    """
    rows: dict[str, list[tuple[Cell, Outcome | None]]] = {}
    for cell in wanted:
        rows.setdefault(cell.question.id, []).append((cell, kept.get(cell.key)))
    found = []
    for row in rows.values():
        if any(outcome is None for _, outcome in row):
            continue
        for cell, outcome in row:
            if outcome is not None:
                found.append(
                    Case(cell.question, cell.arm, cell.prompted, outcome, _marks(cell.question, outcome, judge))
                )
    return found


def _marks(question: Question, outcome: Outcome, judge: Judge | None) -> Mapping[str, float]:
    found = marks(question, outcome)
    return found if judge is None else {**found, "judge": float(judge(question, outcome.text))}
