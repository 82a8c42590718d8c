r"""expand: the inverse of all de-duplication. It rebuilds the full text from what was sent, following the hints.

Nothing needs it to work: it is how a user, or a test, sees that nothing is lost. A conversation is read back with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .dedup.chunks import Originals
from .dedup.marks import is_marked, masked
from .dedup.messages import Messages, checked_messages, first_text, with_texts
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
        blocks: of a user message of ours, if its content is a text and no list of parts; else None.
        rest: what stands after the blocks.
        apart: its labels stand for other texts than in the messages before it: it was rendered by itself.
    """

    message: dict[str, Any]
    blocks: tuple[FullBlock, ...] | None = None
    rest: str = ""
    apart: bool = False


Within = Callable[[str, str], Sequence[tuple[int, int]]]
"""The parts of a text that hints may stand in, in order and apart: from the role of its message and itself."""


def expand(messages: Messages, within: Within | None = None) -> list[dict[str, Any]]:
    r"""The messages with every hint replaced by what it stands for, and block text as it was before it was escaped.

    Args:
        messages: as they were sent, all of them. They are not changed. A user message that cannot be read back is none
            of ours, and passes as it is.
        within: where hints stand in messages of users and of the system that are not ours, as a proxy puts them there.
            It is given the text with one long word in place of each hint. None: nowhere.

    Raises:
        InputError: something that is no message.
        BrokenHint: a tool's result points to nothing: messages are missing, or were changed.

    >>> expand([
    ...     {"role": "user", "content": "<documents>\n[1] Slices count from zero.\n</documents>\n\nWhy?"},
    ...     {"role": "user", "content": "<documents>\n[1] (given above)\n</documents>\n\nAnd steps?"},
    ... ])[1]["content"]
    '<documents>\n[1] Slices count from zero.\n</documents>\n\nAnd steps?'
    """
    return [full.message for full in read_full(messages, within=within)]


def read_full(messages: Messages, *, strict: bool = True, within: Within | None = None) -> Iterator[FullMessage]:
    """As `expand`, with the blocks of each message apart.

    Args:
        messages: as they were sent.
        strict: False: a tool's result that points to nothing passes as it is.
        within: as for `expand`.
    """
    return map(Reader(strict=strict, within=within).read, checked_messages(messages))


@dataclass(frozen=True, slots=True)
class _Ours:
    """A text of ours in full."""

    text: str
    blocks: tuple[FullBlock, ...]
    rest: str
    apart: bool


class Reader:
    """Reads messages in full, one after another.

    Args:
        strict: False: a tool's result that points to nothing passes as it is.
        within: as for `expand`.
    """

    def __init__(self, *, strict: bool = True, within: Within | None = None) -> None:
        self._strict = strict
        self._within = within
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
        if role == "tool":
            try:
                return FullMessage(with_texts(message, self._number, self._originals.add))
            except BrokenHint:
                if self._strict:
                    raise
        elif role != "assistant":
            return self._said(message, role)
        return FullMessage(dict(message))

    def _said(self, message: Mapping[str, Any], role: object) -> FullMessage:
        """What a user or the system said, in full."""
        place, text = first_text(message, self._number)
        ours = self._ours(text) if role == "user" else None
        changed = False

        def in_full(of: str, sent: str) -> str:
            nonlocal changed
            if ours is not None and of == place:
                self._originals.note(of, sent)
                full = ours.text
            else:
                full = self._revealed(role, of, sent)
            changed = changed or full != sent
            return full

        found = with_texts(message, self._number, in_full)
        found = found if changed else dict(message)
        if ours is None or not isinstance(message.get("content"), str):
            return FullMessage(found)
        return FullMessage(found, ours.blocks, ours.rest, ours.apart)

    def _revealed(self, role: object, place: str, sent: str) -> str:
        """A text that is not ours in full: as it is, but for hints in those parts where they may stand."""
        if self._within is not None and isinstance(role, str) and is_marked(sent):
            try:
                return self._originals.add_within(place, sent, self._within(role, masked(sent)))
            except BrokenHint:
                pass  # looks like one
        return self._originals.note(place, sent)

    def _ours(self, sent: str) -> _Ours | None:
        """A user's text in full, if it is of ours."""
        found = read_user(sent, self._given)
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
        if apart:
            self._originals.back_to(before)
        else:
            for label, text in texts.items():
                self._given.setdefault(label, text)
        full = render_documents([f"[{block.label}] {block.text}" for block in blocks]) + found[1]
        return _Ours(full, tuple(blocks), found[1], apart)
