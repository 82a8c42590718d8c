"""History: the messages that a conversation was really sent, and what in them can be pointed at."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..dedup.chunks import Repeats
from ..dedup.marks import shield
from ..dedup.messages import Inside, add_message, first_text, with_texts
from ..errors import TextTooLong
from ..prompt.hints import label
from ..prompt.parse import read_user
from ..prompt.render import OPEN, render_again, render_block, render_documents


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

    def checked(self, what: str, text: str) -> str:
        """A text that is not too long.

        Raises:
            TextTooLong: it is.
        """
        if len(text) > self.max_text:
            raise TextTooLong(f"{what} of {len(text):,} characters; max_text is {self.max_text:,}")
        return text


# A label that an answer or a question names, perhaps of a block that was cut off with its turn: it must not come to
# stand for another block. Longer numbers are amounts and the like.
_CITED = re.compile(r"(?<![\w\])])\[(\d{1,4})\]")


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

    @classmethod
    def asking(cls, question: str) -> Turn:
        """A question alone, kept from looking like documents of ours."""
        return cls(message={"role": "user", "content": f"\n\n{question}" if question.startswith(OPEN) else question})

    @property
    def opens(self) -> bool:
        """Whether a history may begin with it."""
        return self.message is None or self.message.get("role") == "user"

    @property
    def instructs(self) -> bool:
        """Whether it stays at the head of a history."""
        return self.message is not None and self.message.get("role") in ("system", "developer")


@dataclass(frozen=True, slots=True)
class Mark:
    """Where a history stands, to go back to."""

    messages: int
    standing: int
    last_label: int
    foreign_labels: int
    characters: int
    repeats: tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Pending:
    """A turn that is not answered yet, and how things stood before it."""

    turn: Turn
    mark: Mark
    labels_before: dict[bytes, int | None]


class History:
    """The messages that were sent, and what can be pointed at in them."""

    def __init__(self, system: str | None, dedup: Dedup) -> None:
        self._dedup = dedup
        self._repeats = Repeats(exact=not dedup.normalise, max_text=dedup.max_text) if dedup.chunks else None
        self._last_label = 0
        # With texts of their own; where one stands for a block of ours, too, nothing may point at it.
        self._foreign_labels: dict[int, None] = {}  # in user messages of others that look like ours
        self.standing: dict[int, str] = {}  # texts of blocks that stand in the messages in full, by label
        self.messages: list[dict[str, Any]] = []
        self._characters = 0
        self.inside: Callable[[str], Inside] | None = None
        """Says of a tool's result in which parts of it anything may be left out; None: everywhere."""
        if system is not None:
            self._add({"role": "system", "content": system})

    @property
    def characters(self) -> int:
        """Of all that is held: messages, blocks in full, and what is searched for repeats."""
        return self._characters + (0 if self._repeats is None else self._repeats.characters)

    @property
    def mark(self) -> Mark:
        """Where this stands now."""
        searched = (0, 0, 0) if self._repeats is None else self._repeats.mark
        return Mark(
            len(self.messages),
            len(self.standing),
            self._last_label,
            len(self._foreign_labels),
            self._characters,
            searched,
        )

    def back_to(self, mark: Mark) -> None:
        """Forget all that came since, as if it never had."""
        del self.messages[mark.messages :]
        while len(self.standing) > mark.standing:
            self.standing.popitem()
        self._last_label = mark.last_label
        while len(self._foreign_labels) > mark.foreign_labels:
            self._foreign_labels.popitem()
        self._characters = mark.characters
        if self._repeats is not None:
            self._repeats.back_to(mark.repeats)

    @property
    def clear(self) -> dict[int, str]:
        """Texts of the blocks that can be pointed at, by label."""
        return {number: text for number, text in self.standing.items() if number not in self._foreign_labels}

    def can_point_at(self, number: int) -> bool:
        """Whether a label stands for one text, which stands in the messages in full."""
        return number in self.standing and number not in self._foreign_labels

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
            self._note_cited(turn.rest)
        else:
            self._note_labels(turn.message)
            turn.message = self._add(turn.message)
        self._characters += size(self.messages[-1])
        return self.messages[-1]

    def _content(self, turn: Turn) -> str:
        """A user message's content; its blocks stand in the prompt from now on."""
        rendered = []
        for place, (number, text) in enumerate(turn.blocks):
            if self._dedup.blocks and self.can_point_at(number):
                rendered.append(render_again(number, self.standing[number]))
                continue
            sent = text if self._repeats is None else self._repeats.add(label(number), text)
            rendered.append(render_block(number, sent, shielded=self._repeats is not None))
            turn.blocks[place] = number, self._restored(label(number), text)
            if number not in self.standing:
                self.standing[number] = turn.blocks[place][1]
                self._characters += len(self.standing[number])
            self._last_label = max(self._last_label, number)
        return render_documents(rendered) + turn.rest

    def _add(self, message: dict[str, Any]) -> dict[str, Any]:
        number = len(self.messages) + 1
        if self._repeats is not None:
            self.messages.append(add_message(self._repeats, number, message, self.inside))
            return with_texts(message, number, self._restored) if self._repeats.restored else message
        if message.get("role") == "tool":
            self.messages.append(with_texts(message, number, lambda _, text: shield(text)))
        else:
            self.messages.append(dict(message))
        return message

    def _restored(self, place: str, text: str) -> str:
        return text if self._repeats is None else self._repeats.restored.pop(place, text)

    def _note_labels(self, message: Mapping[str, Any]) -> None:
        if message.get("role") not in ("user", "assistant"):
            return
        found = read_user(first_text(message, 0)[1], ()) if message["role"] == "user" else None
        if found is not None:
            self._foreign_labels.update((block.label, None) for block in found[0])
            if self._repeats is not None:
                self._repeats.ambiguous.update(label(block.label) for block in found[0])
        one = isinstance(message.get("content"), str)
        self._note_cited(found[1] if found is not None and one else text_of(message))

    def _note_cited(self, text: str) -> None:
        if "[" in text:
            self._last_label = max([self._last_label, *map(int, _CITED.findall(text))])


def copied(value: Any) -> Any:  # noqa: ANN401
    """A message, or a part of one, that shares no list or dict with it."""
    if isinstance(value, dict):
        return {key: copied(part) for key, part in value.items()}
    return type(value)(map(copied, value)) if type(value) in (list, tuple) else value


def size(value: Any) -> int:  # noqa: ANN401
    """Characters of all strings in a message, or in a part of one."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, Mapping):
        return sum(map(size, value.values()))
    return sum(map(size, value)) if isinstance(value, list | tuple) else 0


def text_of(message: Mapping[str, Any]) -> str:
    """All text of a message."""
    texts: list[str] = []

    def note(_: str, text: str) -> str:
        texts.append(text)
        return text

    with_texts(message, 0, note)
    return "\n".join(texts)
