r"""expand: the inverse of all de-duplication. It rebuilds the full text from what was sent, following the hints.

Nothing needs it to work: it is how a user, or a test, sees that nothing is lost. A conversation is read back with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from .dedup.chunks import Originals
from .dedup.messages import Messages, checked_messages, with_texts
from .dedup.units import normal
from .errors import BrokenHint
from .prompt.parse import read_user
from .prompt.render import render_documents


@dataclass(frozen=True, slots=True)
class FullBlock:
    """A block of a user message, in full.

    Args:
        label: its number.
        text: the original.
        again: a location hint stands here; the text does so before.
    """

    label: int
    text: str
    again: bool


@dataclass(frozen=True, slots=True)
class FullMessage:
    """One message, in full.

    Args:
        message: with the full content.
        blocks: of a user message of ours; else None.
        rest: what stands after the blocks.
        apart: its labels stand for other texts than in the messages before it: it was rendered by itself.
    """

    message: dict[str, Any]
    blocks: tuple[FullBlock, ...] | None = None
    rest: str = ""
    apart: bool = False


def expand(messages: Messages) -> list[dict[str, Any]]:
    r"""The messages with every hint replaced by what it stands for, and block text as it was before it was escaped.

    Args:
        messages: as they were sent, all of them. They are not changed. A user message that cannot be read back is none
            of ours, and passes as it is.

    Raises:
        InputError: something that is no message.
        BrokenHint: a tool's result points to nothing: messages are missing, or were changed.

    >>> expand([
    ...     {"role": "user", "content": "<documents>\n[1] Slices count from zero.\n</documents>\n\nWhy?"},
    ...     {"role": "user", "content": "<documents>\n[1] (given above)\n</documents>\n\nAnd steps?"},
    ... ])[1]["content"]
    '<documents>\n[1] Slices count from zero.\n</documents>\n\nAnd steps?'
    """
    return [full.message for full in read_full(messages)]


def read_full(messages: Messages, *, strict: bool = True) -> Iterator[FullMessage]:
    """As `expand`, with the blocks of each message apart.

    Args:
        messages: as they were sent.
        strict: False: a tool's result that points to nothing passes as it is.
    """
    return map(Reader(strict=strict).read, checked_messages(messages))


class Reader:
    """Reads messages in full, one after another.

    Args:
        strict: False: a tool's result that points to nothing passes as it is.
    """

    def __init__(self, *, strict: bool = True) -> None:
        self._strict = strict
        self._originals = Originals()
        self._given: dict[int, str] = {}
        self._number = 0

    def read(self, message: Mapping[str, Any]) -> FullMessage:
        """The next message.

        Raises:
            BrokenHint: a tool's result points to nothing.
        """
        self._number += 1
        role = message.get("role")
        full = None
        if role == "tool":
            try:
                full = FullMessage(with_texts(message, self._number, self._originals.add))
            except BrokenHint:
                if self._strict:
                    raise
        elif role != "assistant":
            if role == "user":
                full = self._user(message)
            with_texts(message, self._number, self._originals.note)
        return full or FullMessage(dict(message))

    def _user(self, message: Mapping[str, Any]) -> FullMessage | None:
        """A user message of ours in full."""
        found = read_user(message.get("content"), self._given)
        if found is None:
            return None
        blocks = []
        texts: dict[int, str] = {}
        apart = False
        before = self._originals.at([f"[{block.label}]" for block in found[0]])
        try:
            for block in found[0]:
                known = texts.get(block.label, self._given.get(block.label))
                text = self._originals.add(f"[{block.label}]", block.text) if block.text is not None else known or ""
                apart = apart or (known is not None and normal(known) != normal(text))
                texts.setdefault(block.label, text)
                blocks.append(FullBlock(block.label, text, block.text is None))
        except BrokenHint:
            self._originals.back_to(before)
            return None
        content = render_documents([f"[{block.label}] {block.text}" for block in blocks]) + found[1]
        if apart:
            self._originals.back_to(before)
        else:
            for label, text in texts.items():
                self._given.setdefault(label, text)
        return FullMessage({**message, "content": content}, tuple(blocks), found[1], apart)
