"""Prompts of any arm: of questions that stand alone, or of conversations; each layout's orders are chosen once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from .layouts import orders
from .prompting import SYSTEM, prompted
from .talks import TALKS, talked
from .words import Arm, Prompted, Question


def made(
    questions: Sequence[Question], arms: Iterable[Arm], *, system: str = SYSTEM, tokenizer: object = None
) -> Iterator[tuple[Arm, Iterator[tuple[Question, Prompted]]]]:
    """For each arm the prompts of the questions that are to be asked, after its layout has seen all before them.

    Args:
        questions: in the order of the traffic; turns of one conversation in their order.
        arms: which.
        system: the system prompt.
        tokenizer: for layouts' token counts; None: estimates.
    """
    known: dict[str, list[list[int]]] = {}
    for arm in arms:
        if arm.layout in TALKS:
            yield arm, talked(questions, arm, system=system, tokenizer=tokenizer)
            continue
        if arm.layout not in known:
            known[arm.layout] = orders(questions, arm.layout, tokenizer)
        yield arm, prompted(questions, arm, known[arm.layout], system=system)
