"""Responses: instructions, and items of many types, of which messages and results of tools have texts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..words import Api, Asked, Message, Path, Role, Text
from .parts import asked, field_of, role_of, texts_of

_KINDS = frozenset({"input_text", "output_text", "text"})
# Calls of functions and of tools that take free text. Results of built-in tools have forms of their own.
_RESULTS = frozenset({"function_call_output", "custom_tool_call_output"})


class Responses:
    """Bodies of ``/v1/responses``."""

    api: Api = "responses"

    def read(self, body: Mapping[str, Any]) -> Asked | None:
        """A decoded body as messages, the instructions first; None: it has none that can be read.

        >>> read = Responses().read({"instructions": "Be brief.", "input": "Why?"})
        >>> [(message.number, message.role, message.path) for message in read.messages]
        [(1, 'system', ('instructions',)), (2, 'user', ('input',))]
        """
        messages = []
        instructions = field_of(body, "instructions")
        if isinstance(instructions, str):
            messages.append(_whole("system", 1, instructions, ("instructions",)))
        given = field_of(body, "input")
        if isinstance(given, str):
            messages.append(_whole("user", len(messages) + 1, given, ("input",)))
        elif isinstance(given, list):
            for place, item in enumerate(given):
                if not isinstance(item, Mapping):
                    return None
                messages.append(_item(item, len(messages) + 1, ("input", place)))
        elif given is not None:
            return None
        return asked(self.api, body, messages)


def _whole(role: Role, number: int, text: str, path: Path) -> Message:
    return Message(number, role, text, (Text(role, number, None, text, path),), path)


def _item(item: Mapping[str, Any], number: int, path: Path) -> Message:
    """An item of the input; the model's own calls and thoughts, references and the like have no texts."""
    kind = item.get("type")
    role: Role | None = None
    name = "content"
    if kind is None or kind == "message":
        role = role_of(item)
    elif isinstance(kind, str) and kind in _RESULTS:
        role, name = "tool", "output"
    if role is None:
        return Message(number, "assistant", item, (), path)
    return Message(number, role, item, texts_of(item.get(name), role, number, (*path, name), kinds=_KINDS), path)
