"""Lasting: what of a message is the same each time that a client sends it.

Clients move marks of what is to be cached from turn to turn, and with them write one text as a list, or as itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .explicit import FIELD
from .words import Message

_PASSING = frozenset({FIELD, "cache_control"})  # come and go while the message stays what it is


def lasting(message: Message) -> Any:  # noqa: ANN401
    """What of a message stays when it is sent again.

    >>> marked = {"type": "text", "text": "Why?", "cache_control": {"type": "ephemeral"}}
    >>> lasting(Message(1, "user", {"role": "user", "content": [marked]}, (), ("messages", 0)))
    {'role': 'user', 'content': 'Why?'}
    """
    if not isinstance(message.value, Mapping):
        return [message.role, unmarked(message.value)]
    return _without_marks(message.value)


def unmarked(content: Any) -> Any:  # noqa: ANN401
    """A content, or a list of tools, without marks; one that is a single text as that text."""
    if not isinstance(content, list):
        return content
    parts = [_without_marks(part) if isinstance(part, Mapping) else part for part in content]
    if len(parts) == 1 and isinstance(parts[0], dict) and set(parts[0]) == {"type", "text"}:
        return parts[0]["text"]
    return parts


def _without_marks(value: Mapping[str, Any]) -> dict[str, Any]:
    """A message, or a part of one; the contents of results of tools stand in parts."""
    return {
        name: unmarked(inner) if name == "content" else inner for name, inner in value.items() if name not in _PASSING
    }
