"""Anthropic's messages: the system prompt stands apart, and results of tools stand in user messages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..words import Api, Asked, Message, Path, Text
from .parts import asked, field_of, is_text, role_of, texts_of

# Blocks of the types "document" and "search_result" are texts that the model reads, too. They stay as they are: answers
# cite them by their places in the request, and by places in their texts.
_KINDS = frozenset({"text"})


class Messages:
    """Bodies of ``/v1/messages``."""

    api: Api = "messages"

    def read(self, body: Mapping[str, Any]) -> Asked | None:
        """A decoded body as messages, the system prompt first; None: it has none that can be read.

        >>> result = {"type": "tool_result", "tool_use_id": "a", "content": "42"}
        >>> read = Messages().read({"messages": [{"role": "user", "content": [result]}]})
        >>> read.messages[0].role, read.messages[0].texts[0].path
        ('tool', ('messages', 0, 'content', 0, 'content'))
        """
        found = field_of(body, "messages")
        if not isinstance(found, list):
            return None
        messages = []
        system = body.get("system")
        if isinstance(system, str | list):
            texts = texts_of(system, "system", 1, ("system",), kinds=_KINDS)
            messages.append(Message(1, "system", system, texts, ("system",)))
        for place, message in enumerate(found):
            if not isinstance(message, Mapping):
                return None
            messages.append(_message(message, len(messages) + 1, ("messages", place)))
        return asked(self.api, body, messages)


def _message(message: Mapping[str, Any], number: int, path: Path) -> Message:
    role = role_of(message)
    if role is None:
        return Message(number, "assistant", message, (), path)
    content = message.get("content")
    alone = isinstance(content, list) and len(content) == 1 and is_text(content[0], _KINDS)
    if role != "user" or not isinstance(content, list) or alone:
        return Message(number, role, message, texts_of(content, role, number, (*path, "content"), kinds=_KINDS), path)
    found: list[Text] = []
    for place, block in enumerate(content):
        at = (*path, "content", place)
        if is_text(block, _KINDS):
            found.append(Text("user", number, len(found) + 1, block["text"], (*at, "text")))
        elif _is_result(block):
            found += _result(block.get("content"), number, len(found), (*at, "content"))
    if found:
        results_alone = all(text.role == "tool" for text in found)
    else:
        results_alone = bool(content) and all(map(_is_result, content))
    return Message(number, "tool" if results_alone else "user", message, tuple(found), path)


def _is_result(block: object) -> bool:
    return isinstance(block, Mapping) and block.get("type") == "tool_result"


def _result(content: object, number: int, before: int, path: Path) -> list[Text]:
    """The texts of a tool's result.

    Args:
        content: the block's.
        number: of its message.
        before: texts that the message has before it.
        path: to the content.
    """
    texts = texts_of(content, "tool", number, path, kinds=_KINDS)
    # All texts of a message are counted through: a result that is one string is a part of it as well.
    return [Text(text.role, number, before + place, text.text, text.path) for place, text in enumerate(texts, start=1)]
