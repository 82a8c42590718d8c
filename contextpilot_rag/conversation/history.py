"""History: the messages that a conversation was really sent, and what in them can be pointed at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..dedup.chunks import Repeats
from ..dedup.marks import shield
from ..dedup.messages import add_message, with_texts
from ..prompt.hints import label
from ..prompt.parse import read_user
from ..prompt.render import render_again, render_block, render_documents


@dataclass(frozen=True, slots=True)
class Dedup:
    """What is left out.

    Args:
        blocks: blocks that stand in an earlier turn.
        chunks: parts of blocks and of tool results that stand anywhere before.
        normalise: texts that differ in line ends, Unicode form or blanks at the ends of lines count as the same.
        max_text: characters of one text.
    """

    blocks: bool = True
    chunks: bool = False
    normalise: bool = True
    max_text: int = 64 * 2**20


@dataclass(slots=True)
class Turn:
    """A user message of ours in its original form, or another message.

    Args:
        blocks: labels and texts, in prompt order.
        rest: what stands after them.
        message: another message, in its original form.
        sent: the message as it was sent, where that is not how it would be sent by these settings.
    """

    blocks: list[tuple[int, str]] = field(default_factory=list)
    rest: str = ""
    message: dict[str, Any] | None = None
    sent: dict[str, Any] | None = None

    @property
    def opens(self) -> bool:
        """Whether a history may begin with it."""
        return self.message is None or self.message.get("role") == "user"

    @property
    def instructs(self) -> bool:
        """Whether it stays at the head of a history."""
        return self.message is not None and self.message.get("role") in ("system", "developer")


class History:
    """The messages that were sent, and what can be pointed at in them."""

    def __init__(self, system: str | None, dedup: Dedup) -> None:
        self._dedup = dedup
        self._repeats = Repeats(exact=not dedup.normalise, max_text=dedup.max_text) if dedup.chunks else None
        self._last_label = 0
        self._foreign_labels: set[int] = set()  # in user messages of others that look like ours
        self.standing: dict[int, str] = {}  # texts of blocks that stand in the messages in full, by label
        self.messages: list[dict[str, Any]] = []
        if system is not None:
            self._add({"role": "system", "content": system})

    def new_label(self) -> int:
        """The next label that is free."""
        self._last_label += 1
        while self._last_label in self._foreign_labels:
            self._last_label += 1
        return self._last_label

    def turn(self, turn: Turn) -> dict[str, Any]:
        """Take in a turn; its texts become what can be restored from what is sent.

        Returns:
            The message, as it was, or is to be, sent.
        """
        if turn.sent is not None:
            self._note_labels(turn.sent)
            self.messages.append(turn.sent)
        elif turn.message is None:
            self.messages.append({"role": "user", "content": self._content(turn)})
        else:
            self._note_labels(turn.message)
            turn.message = self._add(turn.message)
        return self.messages[-1]

    def _content(self, turn: Turn) -> str:
        """A user message's content; its blocks stand in the prompt from now on."""
        rendered = []
        for place, (number, text) in enumerate(turn.blocks):
            if self._dedup.blocks and number in self.standing:
                rendered.append(render_again(number, self.standing[number]))
                continue
            sent = text if self._repeats is None else self._repeats.add(label(number), text)
            rendered.append(render_block(number, sent, shielded=self._repeats is not None))
            turn.blocks[place] = number, self._restored(label(number), text)
            self.standing.setdefault(*turn.blocks[place])
            self._last_label = max(self._last_label, number)
        return render_documents(rendered) + turn.rest

    def _add(self, message: dict[str, Any]) -> dict[str, Any]:
        number = len(self.messages) + 1
        if self._repeats is not None:
            self.messages.append(add_message(self._repeats, number, message))
            return with_texts(message, number, self._restored) if self._repeats.restored else message
        if message.get("role") == "tool":
            self.messages.append(with_texts(message, number, lambda _, text: shield(text)))
        else:
            self.messages.append(dict(message))
        return message

    def _restored(self, place: str, text: str) -> str:
        return text if self._repeats is None else self._repeats.restored.pop(place, text)

    def _note_labels(self, message: Mapping[str, Any]) -> None:
        if message.get("role") == "user" and (found := read_user(message.get("content"), set())) is not None:
            self._foreign_labels.update(block.label for block in found[0])


def copied(value: Any) -> Any:  # noqa: ANN401
    """A message, or a part of one, that shares no list or dict with it."""
    if isinstance(value, dict):
        return {key: copied(part) for key, part in value.items()}
    return [copied(part) for part in value] if isinstance(value, list) else value


def text_of(message: Mapping[str, Any]) -> str:
    """All text of a message."""
    texts: list[str] = []

    def note(_: str, text: str) -> str:
        texts.append(text)
        return text

    with_texts(message, 0, note)
    return "\n".join(texts)
