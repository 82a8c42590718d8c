r"""expand: the inverse of all de-duplication. It rebuilds the full text from what was sent, following the hints.

Nothing needs it to work: it is how a user, or a test, sees that nothing is lost. A conversation is read back with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from .dedup.chunks import Originals
from .dedup.messages import Messages, with_texts
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
    originals = Originals()
    given: dict[int, str] = {}
    for number, message in enumerate(messages, start=1):
        role = message.get("role")
        full = None
        if role == "tool":
            try:
                full = FullMessage(with_texts(message, number, originals.add))
            except BrokenHint:
                if strict:
                    raise
        elif role != "assistant":
            if role == "user":
                full, originals = _read_user(message, originals, given)
            with_texts(message, number, originals.note)
        yield full or FullMessage(dict(message))


def _read_user(
    message: Mapping[str, Any], originals: Originals, given: dict[int, str]
) -> tuple[FullMessage | None, Originals]:
    """A user message of ours in full, and the originals from then on; ``given`` gets its blocks."""
    found = read_user(message.get("content"), set(given))
    if found is None:
        return None, originals
    before, originals = originals, originals.copy()
    blocks = []
    texts: dict[int, str] = {}
    apart = False
    try:
        for block in found[0]:
            known = texts.get(block.label, given.get(block.label))
            text = originals.add(f"[{block.label}]", block.text) if block.text is not None else known or ""
            apart = apart or (known is not None and normal(known) != normal(text))
            texts.setdefault(block.label, text)
            blocks.append(FullBlock(block.label, text, block.text is None))
    except BrokenHint:
        return None, before
    content = render_documents([f"[{block.label}] {block.text}" for block in blocks]) + found[1]
    full = FullMessage({**message, "content": content}, tuple(blocks), found[1], apart)
    if apart:
        return full, before
    for label, text in texts.items():
        given.setdefault(label, text)
    return full, originals
