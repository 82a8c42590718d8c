"""The words of an evaluation: question, arm, prompted, outcome. All frozen."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..settings import Wording
from ..types import Block


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked, with what was retrieved for it and how it should be answered.

    Args:
        id: names it; unique.
        text: the question.
        blocks: retrieved, best first; no text twice.
        answers: each is right. Empty: only a judge can tell.
        gold: ids of blocks that the answer stands in, as far as known.
        conversation: that it is a turn of; None: it stands alone.
        asked: whether the engine is asked; False: it is only sent through the orders, as part of the traffic.
    """

    id: str
    text: str
    blocks: tuple[Block, ...]
    answers: tuple[str, ...] = ()
    gold: frozenset[Hashable] = frozenset()
    conversation: str | None = None
    asked: bool = True


@dataclass(frozen=True, slots=True)
class Arm:
    """One way of making prompts.

    Args:
        name: in the results.
        layout: a name in `layouts.LAYOUTS`, or of a conversation's in `talks.TALKS`.
        hint: wording of the order hint; None: no hint.
        echo: how many of the best blocks stand once more after the last, where the order changed.
        about: what it is, for the report.
    """

    name: str
    layout: str
    hint: Wording | None = None
    echo: int = 0
    about: str = ""


@dataclass(frozen=True, slots=True)
class Prompted:
    """One question as one arm puts it.

    Args:
        messages: to be sent.
        changed: whether the order is not the retriever's.
        place: of the first gold block among the prompt's blocks, from 0 (first) to 1 (last); None: it is not there,
            or stands in an earlier turn.
        added: characters that the arm put in beside the blocks and the question: hints and echoes.
    """

    messages: tuple[Mapping[str, Any], ...]
    changed: bool = False
    place: float | None = None
    added: int = 0

    def key(self, question: Question, terms: str) -> str:
        """Names what the engine is asked: equal prompts, answers and terms are asked once.

        Args:
            question: whose answers are scored.
            terms: model, lengths and whatever else an answer depends on.
        """
        asked = json.dumps([terms, self.messages, question.answers[:1]], sort_keys=True)
        return hashlib.sha256(asked.encode()).hexdigest()[:32]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the engine did with a prompt.

    Args:
        key: `Prompted.key`.
        text: its answer.
        prompt_tokens: of the prompt.
        cached_tokens: of these, as it reported; None: it reported nothing.
        logprob: natural logarithm of the probability of the first right answer, given the prompt; None: not measured.
        scored: tokens of that answer that were scored.
    """

    key: str
    text: str
    prompt_tokens: int
    cached_tokens: int | None = None
    logprob: float | None = None
    scored: int = 0


@dataclass(frozen=True, slots=True)
class Case:
    """One question in one arm, with what came out.

    Args:
        question: what was asked.
        arm: by which arm.
        prompted: how.
        outcome: what the engine did.
        marks: by the name of the measure, from `marking.MEASURES` or a judge.
    """

    question: Question
    arm: Arm
    prompted: Prompted
    outcome: Outcome
    marks: Mapping[str, float] = field(default_factory=dict)
