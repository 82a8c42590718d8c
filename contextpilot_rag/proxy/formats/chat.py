"""Chat completions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..words import Api, Asked, Message, Path, Role
from .parts import SAID_BY, asked, field_of, role_of, texts_of

_SAID_BY: Mapping[object, Role] = {**SAID_BY, "tool": "tool", "function": "tool"}
_KINDS = frozenset({"text", "input_text"})


class Chat:
    """Bodies of ``/v1/chat/completions``."""

    api: Api = "chat"

    def read(self, body: Mapping[str, Any]) -> Asked | None:
        """A decoded body as messages; None: it has none that can be read.

        >>> read = Chat().read({"messages": [{"role": "user", "content": "Why?"}]})
        >>> read.messages[0].texts[0].path
        ('messages', 0, 'content')
        """
        found = field_of(body, "messages")
        if not isinstance(found, list):
            return None
        messages = []
        for place, message in enumerate(found):
            if not isinstance(message, Mapping):
                return None
            messages.append(_message(message, place + 1, ("messages", place)))
        return asked(self.api, body, messages)


def _message(message: Mapping[str, Any], number: int, path: Path) -> Message:
    role = role_of(message, _SAID_BY)
    if role is None:
        return Message(number, "assistant", message, (), path)
    # Parts count as `dedup` and `expand` count those of chat messages: all of them.
    at = (*path, "content")
    texts = texts_of(message.get("content"), role, number, at, kinds=_KINDS, numbering="parts")
    return Message(number, role, message, texts, path)
