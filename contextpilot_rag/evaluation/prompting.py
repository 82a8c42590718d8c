"""Prompts of an arm: a layout's orders, rendered as the pilot renders them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from ..prompt.render import render_messages, render_user
from ..prompt.wording import hint
from .words import Arm, Prompted, Question

SYSTEM = "Answer the question from the documents, in as few words as possible."


def prompted(
    questions: Sequence[Question], arm: Arm, orders: Iterable[list[int]], *, system: str = SYSTEM
) -> Iterator[tuple[Question, Prompted]]:
    """What an arm makes of single questions, of those that are to be asked.

    Args:
        questions: in the order of the traffic.
        arm: which.
        orders: of its layout, as `layouts.orders` gives them.
        system: the system prompt.
    """
    for question, order in zip(questions, orders, strict=True):
        if question.asked:
            yield question, _prompted(question, order, arm, system)


def _prompted(question: Question, order: list[int], arm: Arm, system: str) -> Prompted:
    count = len(order)
    changed = order != list(range(count))
    texts = [question.blocks[rank].text for rank in order]
    best = range(min(arm.echo, count)) if changed else range(0)
    echoed = [] if set(order[count - len(best) :]) == set(best) else [order.index(rank) for rank in reversed(best)]
    told = hint(arm.hint, order, None, texts, question.text)
    user = render_user(texts, echoed, told, question.text)
    messages: list[Any] = render_messages(system, user)
    places = [place for place, rank in enumerate(order) if question.blocks[rank].id in question.gold]
    place = None if not places else places[0] / max(1, count - 1)
    return Prompted(tuple(messages), changed, place, len(user) - len(render_user(texts, question=question.text)))
