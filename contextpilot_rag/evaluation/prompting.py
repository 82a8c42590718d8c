"""Prompts of an arm: a layout's orders, rendered as the pilot renders them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from ..prompt.hints import Wording, beginning, best_hint, best_sentence, order_hint
from ..prompt.render import render_messages, render_user
from .words import Arm, Prompted, Question

SYSTEM = "Answer the question from the documents, in as few words as possible."


def told(wording: Wording | None, order: Sequence[int], question: Question) -> str | None:
    """The order hint in a wording; None where the order did not change, or none is wanted."""
    if wording is None or list(order) == list(range(len(order))):
        return None
    if wording == "order":
        return order_hint(order)
    best, number = question.blocks[0].text, order.index(0) + 1
    if wording == "title":
        return best_hint(number, beginning(best), "begins")
    return best_hint(number, best_sentence(best, question.text) if wording == "sentence" else "")


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
    hint = told(arm.hint, order, question)
    user = render_user(texts, echoed, hint, question.text)
    messages: list[Any] = render_messages(system, user)
    places = [place for place, rank in enumerate(order) if question.blocks[rank].id in question.gold]
    place = None if not places else places[0] / max(1, count - 1)
    return Prompted(tuple(messages), changed, place, len(user) - len(render_user(texts, question=question.text)))
