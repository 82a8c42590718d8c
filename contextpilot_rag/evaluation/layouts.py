"""Orders of blocks to compare: what the pilot offers, and controls that nobody would want.

A layout sees all questions in the order of the traffic, so that what an order can share is as it would be in use.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from ..pilot import ContextPilot
from ..settings import Settings
from .words import Question

_FAR_AHEAD = 0.2  # of the best score


class Layout(Protocol):
    """A way of ordering."""

    def order(self, question: Question) -> Sequence[int]:
        """The ranks of the question's blocks in prompt order; it counts as sent."""
        ...


class Fixed:
    """A rule that looks at one question only.

    Args:
        rule: gives the ranks in prompt order.
    """

    def __init__(self, rule: Callable[[Question], Sequence[int]]) -> None:
        self._rule = rule

    def order(self, question: Question) -> Sequence[int]:
        """By the rule."""
        return self._rule(question)


class Aligned:
    """What a pilot does, with an index of its own.

    Args:
        tokenizer: counts tokens; None: estimates.
        apart: the best blocks, so many, are kept out of the alignment and stand last.
        leave: a question whose order is left alone.
        **options: the pilot's settings.
    """

    def __init__(
        self,
        *,
        tokenizer: object = None,
        apart: int = 0,
        leave: Callable[[Question], bool] | None = None,
        **options: Any,  # noqa: ANN401
    ) -> None:
        settings = Settings(dedup="off", **options)  # not from the environment: it names the same order everywhere
        self._pilot = ContextPilot(tokenizer=tokenizer, settings=settings)  # type: ignore[arg-type]
        self._apart, self._leave = apart, leave

    def order(self, question: Question) -> Sequence[int]:
        """As the pilot aligns it."""
        left_alone = self._leave is not None and self._leave(question)
        own: dict[str, Any] = {"order": "retrieved"} if left_alone else {}
        blocks = question.blocks[self._apart :]
        if not blocks:
            return range(len(question.blocks))
        order = [rank + self._apart for rank in self._pilot.align(blocks, question.text, **own).order]
        if order == list(range(self._apart, len(question.blocks))):
            return range(len(question.blocks))
        return [*order, *reversed(range(self._apart))]


def far_ahead(question: Question) -> bool:
    """Whether the best block's score is a fifth above the next one's."""
    scores = [block.score for block in question.blocks[:2]]
    if len(scores) < 2 or scores[0] is None or scores[1] is None:
        return False
    return scores[0] - scores[1] >= _FAR_AHEAD * abs(scores[0])


def _retrieved(question: Question) -> Sequence[int]:
    return range(len(question.blocks))


def _by_id(question: Question) -> Sequence[int]:
    return sorted(_retrieved(question), key=lambda rank: str(question.blocks[rank].id))


def _shuffled(question: Question) -> Sequence[int]:
    order = list(_retrieved(question))
    random.Random(question.id).shuffle(order)  # noqa: S311  the same each time
    return order


_TENTH: Mapping[str, Any] = {"order": "balanced", "min_gain": 0.1}

OFFERED: Mapping[str, Mapping[str, Any]] = {
    "retrieved": {"order": "retrieved"},
    "balanced": {"order": "balanced", "min_gain": 0.25},
    "gain-0": {**_TENTH, "min_gain": 0.0},
    "gain-10": _TENTH,
    "gain-40": {**_TENTH, "min_gain": 0.4},
    "protect-1": {**_TENTH, "protect_top": 1},
    "protect-3": {**_TENTH, "protect_top": 3},
    "near-2": {**_TENTH, "max_displacement": 2},
    "throughput": {"order": "throughput"},
}
"""The layouts that a pilot has, by the settings that make it."""


def _offered(settings: Mapping[str, Any]) -> Callable[[object], Layout]:
    return lambda count: Aligned(tokenizer=count, **settings)


LAYOUTS: Mapping[str, Callable[[object], Layout]] = {
    **{name: _offered(settings) for name, settings in OFFERED.items()},
    "retrieved": lambda _: Fixed(_retrieved),
    "sorted": lambda _: Fixed(_by_id),
    "shuffled": lambda _: Fixed(_shuffled),
    "reversed": lambda _: Fixed(lambda question: _retrieved(question)[::-1]),
    "best-last": lambda count: Aligned(tokenizer=count, apart=1, **_TENTH),
    "gap": lambda count: Aligned(tokenizer=count, leave=far_ahead, **_TENTH),
}
"""All layouts by name; each is made with what counts tokens (None: estimates)."""


def orders(questions: Iterable[Question], layout: str, tokenizer: object = None) -> list[list[int]]:
    """The ranks of each question's blocks in prompt order.

    Args:
        questions: in the order of the traffic.
        layout: a name in `LAYOUTS`.
        tokenizer: counts tokens; None: estimates.
    """
    chosen = LAYOUTS[layout](tokenizer)
    return [list(chosen.order(question)) for question in questions]
