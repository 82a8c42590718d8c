"""Before: what is sent before a message, and which blocks a location hint in that message may point to."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from contextpilot_rag.dedup.marks import reveal
from contextpilot_rag.dedup.units import normal
from contextpilot_rag.prompt.parse import read_user

Sent = dict[str, Any]
"""A message as it is sent: role and content; one that is not only text also holds the framework's own."""

_PART_HINT = "[same text as in "  # how the core's hints for parts of texts begin


class Before:
    """The messages before another one, as they are sent. It grows.

    Labels are read as the core reads them, so that both agree about what stands where.

    Args:
        messages: the first ones.
    """

    def __init__(self, messages: Sequence[Mapping[str, Any]] = ()) -> None:
        self.sent: list[Sent] = []
        self.digest = ""
        """Of all messages: equal only if they are."""
        self._unread: list[tuple[Sent, Mapping[int, str] | None]] = []
        self._clear: dict[int, str] = {}  # texts that the core lets later messages point at, by label
        self._all: dict[int, set[str]] = {}  # all texts that stand under a label, in normal form
        for message in messages:
            self.add(dict(message))

    def add(self, message: Sent, texts: Mapping[int, str] | None = None) -> None:
        """The next message.

        Args:
            message: as it is sent.
            texts: of one of ours, the blocks that do not stand in it in full, by label; None: it is somebody else's.
        """
        self.sent.append(message)
        self.digest = hashlib.sha256((self.digest + _plain(message)).encode()).hexdigest()
        self._unread.append((message, texts))

    def has(self, label: int, text: str) -> bool:
        """Whether a block stands in the messages, in full, and nothing else does under its label."""
        self._read()
        return label in self._clear and self._all[label] == {normal(text)}

    def differs(self, label: int, text: str) -> bool:
        """Whether a label stands for another text."""
        self._read()
        return bool(self._all.get(label, set()) - {normal(text)})

    def _read(self) -> None:
        """Read what was not read yet. Takes its time, so it is put off until something has changed."""
        for message, texts in self._unread:
            found = read_user(message["content"], self._clear) if message["role"] == "user" else None
            if found is None:
                continue
            blocks = [
                (block.label, normal((texts or {}).get(block.label) or revealed(block.text)))
                for block in found[0]
                if block.text is not None
            ]
            # It has labels of its own: somebody else's, or of a turn that was under way at the same time.
            apart = any(label in self._clear and normal(self._clear[label]) != text for label, text in blocks)
            unknown = texts is None and _PART_HINT in message["content"]
            for label, text in blocks:
                self._all.setdefault(label, set()).add(text)
                if not apart and not unknown:
                    self._clear.setdefault(label, text)
        self._unread.clear()


def revealed(text: str) -> str:
    r"""A block's text as it was before something in it was kept from looking like a hint.

    >>> print(revealed("\\[same text as in a mirror"))
    [same text as in a mirror
    """
    return reveal(text, lambda *_: "")


def _plain(message: Mapping[str, Any]) -> str:
    """A message in one form, equal for equal ones."""
    return json.dumps(message, sort_keys=True, default=str)
