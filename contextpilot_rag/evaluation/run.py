"""Ask all that is missing, several at a time, one question's arms after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass

from .asking import Asker
from .kept import Kept
from .making import made
from .marking import marks
from .prompting import SYSTEM
from .words import Arm, Case, Outcome, Prompted, Question

Judge = Callable[[Question, str], float]
"""How good an answer is, from 0 to 1."""


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


def ask_all(
    wanted: Sequence[Cell],
    asker: Asker,
    kept: Kept,
    *,
    salted: bool = True,
    concurrency: int = 8,
    progress: Callable[[int, int], None] | None = None,
) -> None:
    """Ask what is not known yet. Prompts that are equal to the last byte are asked once.

    Args:
        wanted: all cells.
        asker: the engine.
        kept: what is known; outcomes go there.
        salted: the engine's cache is told apart by layout.
        concurrency: prompts at a time.
        progress: is told how many of how many prompts are through.

    Raises:
        EngineError: the engine failed; what came before is kept.
    """
    missing = {cell.key: cell for cell in reversed(wanted) if kept.get(cell.key) is None}
    jobs = iter([cell for cell in wanted if missing.get(cell.key) is cell])
    total, through = len(missing), 0
    with ThreadPoolExecutor(concurrency) as pool:

        def begun() -> Iterator[Future[Outcome]]:
            for cell in jobs:
                gold = cell.question.answers[0] if cell.question.answers else None
                salt = f"evaluate {cell.arm.layout}" if salted else None
                yield pool.submit(asker.ask, cell.key, cell.prompted.messages, gold, salt)
                return

        running = {future for _ in range(concurrency) for future in begun()}
        while running:
            ended, running = wait(running, return_when=FIRST_COMPLETED)
            for future in ended:
                kept.add(future.result())
                through += 1
                running.update(begun())
            if progress is not None:
                progress(through, total)


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
