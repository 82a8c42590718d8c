"""Prompts of a conversation's arms: what is given again, and in which order, turn by turn.

The history holds the right answers, so that every arm's turns stand after the same words.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast

from ..pilot import ContextPilot
from ..prompt.hints import LOCATION_HINT
from .words import Arm, Prompted, Question

TALKS: Mapping[str, Mapping[str, Any]] = {
    "each turn everything": {"dedup": "off", "order": "retrieved"},
    "blocks once": {"dedup": "blocks", "order": "retrieved"},
    "blocks and chunks once": {"dedup": "blocks+chunks", "order": "retrieved"},
    "aligned, everything": {"dedup": "off", "order": "balanced"},
    "aligned, blocks once": {"dedup": "blocks", "order": "balanced"},
    "aligned, chunks once": {"dedup": "blocks+chunks", "order": "balanced"},
    "aligned for throughput, blocks once": {"dedup": "blocks", "order": "throughput"},
}
"""Settings of the pilot for each."""


def talked(
    questions: Iterable[Question], arm: Arm, *, system: str, tokenizer: object = None
) -> Iterator[tuple[Question, Prompted]]:
    """What an arm makes of conversations' turns.

    Args:
        questions: in the order of the traffic; turns of one conversation in their order.
        arm: its layout is a name in `TALKS`.
        system: the system prompt.
        tokenizer: for token counts; None: estimates.
    """
    settings = {**TALKS[arm.layout], "order_hint": arm.hint is not None}
    pilot = ContextPilot(tokenizer=tokenizer, **settings)  # type: ignore[arg-type]
    for question in questions:
        talk = pilot.conversation(question.conversation, system=system)
        turn = talk.align(question.blocks, question.text)
        messages = cast("list[dict[str, Any]]", turn.messages())
        if question.asked:
            yield question, _prompted(question, turn.labels, turn.changed, messages)
        talk.answer(question.answers[0] if question.answers else "")


def _prompted(question: Question, labels: Mapping[int, Any], changed: bool, messages: list[dict[str, Any]]) -> Prompted:
    last = str(messages[-1]["content"])
    given = [number for number in labels if f"[{number}] " in last and f"[{number}] {LOCATION_HINT}" not in last]
    places = [place for place, number in enumerate(given) if labels[number] in question.gold]
    place = None if not places else places[0] / max(1, len(given) - 1)
    return Prompted(tuple(messages), changed, place, last.count(LOCATION_HINT) * len(LOCATION_HINT))
