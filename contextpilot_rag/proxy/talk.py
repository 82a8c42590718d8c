"""Talk: a conversation that was sent already, or will be at once, and the order of the blocks that it begins with."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from ..conversation.conversation import Conversation
from ..conversation.history import Dedup
from ..dedup.messages import Inside
from ..pilot import ContextPilot
from ..prompt.prompt import AlignedPrompt
from ..types import Namespace, OrderBudget, Rule
from .finding.scanning import strings
from .finding.wrappers import wrappers
from .memory import Decision
from .orders import AGAIN, FORGOTTEN, Orders


class Talk(Conversation):
    """A conversation in which each turn counts as sent.

    Args:
        pilot: is not asked for orders; see `told`.
        namespace: whose it is.
        dedup: what is left out.
    """

    def __init__(self, pilot: ContextPilot, namespace: Namespace, dedup: Dedup) -> None:
        super().__init__(_Undecided(pilot), namespace, dedup=dedup)
        self._sent.inside = _inside

    @property
    def sent(self) -> list[dict[str, Any]]:
        """The messages so far, as they are sent. They are not to be changed."""
        return self._sent.messages

    @property
    def left_out(self) -> int:
        """Characters that hints at parts of texts stand for, less those of the hints."""
        return self._sent.mark.repeats[2]

    @property
    def begins(self) -> bool:
        """Whether no label was given or named yet, so that blocks are numbered from 1."""
        mark = self._sent.mark
        return not mark.last_label and not mark.foreign_labels

    def take_labels(self, count: int) -> None:
        """Let the next label be another one: so many are given elsewhere."""
        for _ in range(count):
            self._sent.new_label()

    def headed(self, prompt: AlignedPrompt) -> AlignedPrompt:
        """A prepared prompt in the namespace of the conversations that begin like this one."""
        return self._first(prompt)

    def turn(self, prompt: AlignedPrompt) -> Said:
        """The next turn, in the order that its prompt has. As `align`, without copies of all that stands before it."""
        standing = self._sent.standing if self._dedup.blocks else {}
        numbers = tuple(self._number(block.text) for block in prompt.blocks)
        again = frozenset(number for number in numbers if number in standing)
        turn = self._turn(prompt, list(numbers), standing)
        content = self._sent.turn(turn)["content"]
        self._turns.append(turn)
        self._ids.update(zip(numbers, (prompt.aliases[rank][0] for rank in prompt.order), strict=True))
        return Said(content, numbers, again)

    def took(self, message: dict[str, Any]) -> dict[str, Any]:
        """Another message, as it is sent."""
        self.add(message)
        return self._sent.messages[-1]


def _inside(text: str) -> Inside:
    """Where anything of a tool's result may be left out, as where no blocks are given explicitly.

    JSON stays JSON, so there it is within strings; and wrappers keep their tags.
    """
    found = strings(text)
    if found:
        return found, True
    groups = wrappers(text, whole=True)
    return ([item.body for item in groups[0].items] if groups else None), False


@dataclass(frozen=True, slots=True)
class Said:
    """A user message with blocks, as it is sent.

    Args:
        content: of the message.
        numbers: the label of each block, in prompt order.
        again: those of them that were given before.
    """

    content: str
    numbers: tuple[int, ...]
    again: frozenset[int]


class _Undecided:
    """What a `Conversation` asks of a pilot, which is asked nothing here: `told` says what the order is."""

    def __init__(self, pilot: ContextPilot) -> None:
        self.prepare = pilot.prepare
        self.count_tokens = pilot.count_tokens

    def decide(self, prepared: AlignedPrompt) -> AlignedPrompt:
        return prepared

    def route(self, engine: str | None, tokens: int = 0) -> str | None:  # noqa: ARG002
        return engine


@dataclass(frozen=True, slots=True)
class Told:
    """The order of the blocks that stand first.

    Args:
        shown: the prompt in that order.
        told: the same, as the index knows it; to be observed.
        reason: why it is this order.
    """

    shown: AlignedPrompt
    told: AlignedPrompt
    reason: str


async def told(prompt: AlignedPrompt, orders: Orders, remembered: Decision | None, *, new: bool) -> Told:
    """The order of the blocks that stand first: as they were sent before, or as the index chooses it.

    Whatever fails in the index, they go out: as they were sent before, or as they were retrieved.

    Args:
        prompt: of these blocks, prepared, in its namespace.
        orders: asks the index.
        remembered: what was decided when they were first sent; None: it is not known.
        new: no answer follows, so they were never sent before.
    """
    order = None if remembered is None else remembered.order
    if order is not None and sorted(order) != list(range(len(prompt.order))):
        order = None
    if order is None and new:
        chosen = await orders.chosen(prompt)
        return Told(chosen, chosen, chosen.reason)
    again = _arranged(prompt, prompt.order if order is None else order)
    again = await orders.again(again, None if remembered is None else remembered.engine)
    shown = replace(prompt, order=prompt.order if order is None else order, engine=again.engine, rule=Rule.CONVERSATION)
    return Told(shown, again, FORGOTTEN if order is None else AGAIN)


def _arranged(prompt: AlignedPrompt, order: tuple[int, ...]) -> AlignedPrompt:
    """The same blocks, as if they had been retrieved in this order."""
    request = replace(
        prompt.request,
        blocks=tuple(prompt.request.blocks[rank] for rank in order),
        budget=OrderBudget("retrieved"),
    )
    return replace(
        prompt,
        request=request,
        order=tuple(range(len(order))),
        rule=Rule.CONVERSATION,
        retrieved=tuple(prompt.retrieved[rank] for rank in order),
        aliases=tuple(prompt.aliases[rank] for rank in order),
    )
