"""History: the messages that a conversation was really sent, and what in them can be pointed at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..dedup.chunks import Repeats
from ..dedup.messages import add_message, with_texts
from ..prompt.hints import label
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
    """A user message of ours in its original form, or another message."""

    blocks: list[tuple[int, str]] = field(default_factory=list)  # labels and texts, in prompt order
    rest: str = ""
    message: dict[str, Any] | None = None
    as_it_is: bool = False

    @property
    def opens(self) -> bool:
        """Whether a history may begin with it."""
        return self.message is None or self.message.get("role") == "user"


class History:
    """The messages that were sent, and what can be pointed at in them."""

    def __init__(self, system: str | None, dedup: Dedup) -> None:
        self._dedup = dedup
        self.repeats = Repeats(exact=not dedup.normalise, max_text=dedup.max_text) if dedup.chunks else None
        self.standing: dict[int, str] = {}  # texts of blocks that stand in the messages in full, by label
        self.messages: list[dict[str, Any]] = []
        if system is not None:
            self.add({"role": "system", "content": system})

    def content(self, turn: Turn) -> str:
        """A user message's content; its blocks stand in the prompt from now on."""
        rendered = []
        for number, text in turn.blocks:
            if self._dedup.blocks and number in self.standing:
                rendered.append(render_again(number, self.standing[number]))
                continue
            self.standing.setdefault(number, text)
            sent = text if self.repeats is None else self.repeats.add(label(number), text)
            rendered.append(render_block(number, sent, shielded=self.repeats is not None))
        return render_documents(rendered) + turn.rest

    def add(self, message: Mapping[str, Any]) -> None:
        """Another message than a user message of ours."""
        number = len(self.messages) + 1
        self.messages.append(dict(message) if self.repeats is None else add_message(self.repeats, number, message))

    def turn(self, turn: Turn) -> None:
        """A turn as it was, or is to be, sent."""
        if turn.message is None:
            self.messages.append({"role": "user", "content": self.content(turn)})
        elif turn.as_it_is:
            self.messages.append(dict(turn.message))
        else:
            self.add(turn.message)


def text_of(message: Mapping[str, Any]) -> str:
    """All text of a message."""
    texts: list[str] = []

    def note(_: str, text: str) -> str:
        texts.append(text)
        return text

    with_texts(message, 0, note)
    return "\n".join(texts)
