"""Prompts of a conversation's arms: what is given again, and in which order, turn by turn.

The history holds the right answers, so that every arm's turns stand after the same words.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast

from ..conversation import TurnPrompt
from ..pilot import ContextPilot
from ..prompt.hints import LOCATION_HINT
from ..prompt.render import BETWEEN
from ..settings import Settings
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
    settings = Settings(**TALKS[arm.layout], order_hint=arm.hint or False)  # not from the environment
    pilot = ContextPilot(tokenizer=tokenizer, settings=settings)  # type: ignore[arg-type]
    for question in questions:
        talk = pilot.conversation(question.conversation, system=system)
        turn = talk.align(question.blocks, question.text)
        if question.asked:
            yield question, _prompted(question, turn)
        talk.answer(question.answers[0] if question.answers else "")


def _prompted(question: Question, turn: TurnPrompt) -> Prompted:
    messages = cast("list[dict[str, Any]]", turn.messages())
    given = [number for number in turn.numbers if number not in turn.again]
    places = [place for place, number in enumerate(given) if turn.labels[number] in question.gold]
    place = None if not places else places[0] / max(1, len(given) - 1)
    located = str(messages[-1]["content"]).count(LOCATION_HINT) * len(LOCATION_HINT)
    hinted = 0 if turn.order_hint is None else len(turn.order_hint) + len(BETWEEN)
    return Prompted(tuple(messages), turn.changed, place, located + hinted)
