r"""expand: the inverse of all de-duplication. It rebuilds the full text from what was sent, following the hints.

Nothing needs it to work: it is how a user, or a test, sees that nothing is lost. A conversation is read back with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from .dedup.chunks import Originals
from .dedup.messages import Messages, with_texts
from .prompt.parse import read_user
from .prompt.render import render_documents


@dataclass(frozen=True, slots=True)
class FullBlock:
    """A block of a user message, in full.

    Args:
        label: its number.
        text: the original.
        again: it was given before; only a location hint stands here.
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
    """

    message: dict[str, Any]
    blocks: tuple[FullBlock, ...] | None = None
    rest: str = ""


def expand(messages: Messages) -> list[dict[str, Any]]:
    r"""The messages with every hint replaced by what it stands for, and block text as it was before it was escaped.

    Args:
        messages: as they were sent, all of them. They are not changed.

    Raises:
        BrokenHint: a hint points to nothing: messages are missing, or were changed.

    >>> expand([
    ...     {"role": "user", "content": "<documents>\n[1] Slices count from zero.\n</documents>\n\nWhy?"},
    ...     {"role": "user", "content": "<documents>\n[1] (given above)\n</documents>\n\nAnd steps?"},
    ... ])[1]["content"]
    '<documents>\n[1] Slices count from zero.\n</documents>\n\nAnd steps?'
    """
    return [full.message for full in read_full(messages)]


def read_full(messages: Messages) -> Iterator[FullMessage]:
    """As `expand`, with the blocks of each message apart."""
    originals = Originals()
    given: dict[int, str] = {}
    for number, message in enumerate(messages, start=1):
        role = message.get("role")
        if role == "tool":
            yield FullMessage(with_texts(message, number, originals.add))
        elif role == "user" and (found := read_user(message.get("content"), set(given))) is not None:
            blocks = []
            for block in found[0]:
                text = given[block.label] if block.text is None else originals.add(f"[{block.label}]", block.text)
                given.setdefault(block.label, text)
                blocks.append(FullBlock(block.label, text, block.text is None))
            with_texts(message, number, originals.note)
            full = render_documents([f"[{block.label}] {block.text}" for block in blocks]) + found[1]
            yield FullMessage({**message, "content": full}, tuple(blocks), found[1])
        else:
            if role != "assistant":
                with_texts(message, number, originals.note)
            yield FullMessage(dict(message))
