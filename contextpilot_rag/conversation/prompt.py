"""TurnPrompt: one turn's prompt, with all that was sent before it."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from ..errors import InputError
from ..prompt.blend import SEPARATOR
from ..prompt.prompt import AlignedPrompt
from .history import copied, text_of

if TYPE_CHECKING:
    from ..prompt.render import Message

_NO_BLEND = "a conversation's turn cannot be blended: its history has labels and hints; pilot.align has none"


@dataclass(frozen=True, slots=True)
class TurnPrompt(AlignedPrompt):
    """What ``conversation.align`` returns: a turn's prompt, with all that was sent before.

    Args:
        history: the messages before this turn.
        content: of this turn's user message.
        numbers: the label of each block, in prompt order.
        again: those of them that were given in an earlier turn; location hints stand for these.
    """

    history: tuple[dict[str, Any], ...] = ()
    content: str = ""
    numbers: tuple[int, ...] = ()
    again: frozenset[int] = frozenset()

    @property
    def labels(self) -> dict[int, Hashable]:
        """For each label of this turn, new or given again, the id of its block."""
        return {number: self.aliases[rank][0] for number, rank in zip(self.numbers, self.order, strict=True)}

    @property
    def ids(self) -> dict[int, tuple[Hashable, ...]]:
        """For each label, every id that its text was retrieved under this time."""
        return {number: self.aliases[rank] for number, rank in zip(self.numbers, self.order, strict=True)}

    @property
    def order_hint(self) -> str | None:
        """As `AlignedPrompt.order_hint`, by the labels of this turn."""
        return self.hint_for(self.numbers)

    @property
    def user_message(self) -> str:
        """The content of this turn's user message."""
        return self.content

    def messages(self, system: str | None = None) -> list[Message]:
        """The messages to send: all that was sent before, and this turn's.

        Args:
            system: the conversation has its own; another one here is an error.

        Raises:
            InputError: another system prompt than the conversation's.
        """
        first = self.history[0] if self.history else {}
        if system is not None and (first.get("role"), first.get("content")) != ("system", system):
            raise InputError("a conversation's system prompt is given once: pilot.conversation(id, system=...)")
        rendered = (*self.history, {"role": "user", "content": self.content})
        self.sent.note(map(text_of, rendered), map(copied, rendered))
        return cast("list[Message]", list(map(copied, rendered)))

    def blend_tokens(
        self,
        tokenizer: object,  # noqa: ARG002
        separator: str = SEPARATOR,  # noqa: ARG002
        *,
        system: str | None = None,  # noqa: ARG002
        before: Sequence[int] | None = None,  # noqa: ARG002
        after: Sequence[int] = (),  # noqa: ARG002
    ) -> list[int]:
        """Not for turns.

        Raises:
            InputError: always.
        """
        raise InputError(_NO_BLEND)

    def blend_messages(self, separator: str = SEPARATOR, *, system: str | None = None) -> list[Message]:  # noqa: ARG002
        """Not for turns.

        Raises:
            InputError: always.
        """
        raise InputError(_NO_BLEND)
