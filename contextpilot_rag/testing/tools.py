"""Which tool a FakeEngine calls, and with what: only where the request leaves it no choice. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from ..errors import InputError

Style = Literal["chat", "response", "message"]

_DEEPEST = 8
"""Levels of a schema that arguments are made for."""
_LEAST: Mapping[str, object] = {"string": "", "integer": 0, "number": 0, "boolean": False, "array": [], "null": None}


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a tool.

    Args:
        name: of the tool.
        arguments: as JSON.
        named: the request named the tool; False: it asked for any.
    """

    name: str
    arguments: str
    named: bool


def call_of(style: Style, tools: list[Any] | None, choice: object) -> Call | None:
    """The call that a request forces by its ``tool_choice``; None: it leaves the choice, and text is answered.

    Args:
        style: of chat completions, of responses, or of Anthropic's messages.
        tools: of the request.
        choice: its ``tool_choice``.

    Raises:
        InputError: it forces a tool that is not there, or is no choice at all.

    >>> tool = {"type": "function", "function": {"name": "look_up"}}
    >>> call_of("chat", [tool], "required")
    Call(name='look_up', arguments='{}', named=False)
    >>> call_of("chat", [tool], "auto") is None
    True
    """
    wanted = _wanted(style, choice)
    if wanted is None:
        return None
    for name, schema in _functions(style, tools or ()):
        if wanted in ("", name):
            return Call(name, _arguments(schema), named=bool(wanted))
    what = f"no tool is called {wanted!r}" if wanted else "there is no tool to be called"
    raise InputError(f"tool_choice: {what}")


def _wanted(style: Style, choice: object) -> str | None:
    """The name of the tool that has to be called; empty: any; None: none has to."""
    if choice is None or (style != "message" and choice in ("auto", "none")):
        return None
    if style != "message" and choice == "required":
        return ""
    kind = choice.get("type") if isinstance(choice, dict) else None
    if not isinstance(choice, dict) or not isinstance(kind, str):
        raise InputError("tool_choice: must be a choice of tools")
    if style == "message" and kind == "any":
        return ""
    if kind != ("tool" if style == "message" else "function"):
        return None  # left to the model, or to tools that run elsewhere
    named = choice.get("function") if style == "chat" else choice
    name = named.get("name") if isinstance(named, dict) else None
    if not (isinstance(name, str) and name):
        raise InputError("tool_choice: must name a tool")
    return name


def _functions(style: Style, tools: Iterable[Any]) -> Iterator[tuple[str, object]]:
    """Names and schemas of those tools that can be called."""
    for tool in tools:
        found = tool.get("function") if style == "chat" and isinstance(tool, dict) else tool
        if isinstance(found, dict) and isinstance(found.get("name"), str) and found["name"]:
            yield found["name"], found.get("input_schema" if style == "message" else "parameters")


def _arguments(schema: object) -> str:
    try:
        return msgspec.json.encode(_least(schema, _DEEPEST)).decode()
    except RecursionError:  # reading takes a little less of the stack than writing
        raise InputError("the request cannot be used: a part of it is nested too deeply") from None


def _least(schema: object, depth: int) -> object:
    """A small value that fits a schema, as far as it is simple; an object where nothing is said."""
    if not isinstance(schema, dict) or not depth:
        return {}
    if "const" in schema:
        return schema["const"]
    if isinstance(schema.get("enum"), list) and schema["enum"]:
        return schema["enum"][0]
    kind = schema.get("type")
    if isinstance(kind, str) and kind in _LEAST:
        return _LEAST[kind]
    fields, required = schema.get("properties"), schema.get("required")
    if not isinstance(fields, dict) or not isinstance(required, list):
        return {}
    return {name: _least(fields.get(name), depth - 1) for name in required if isinstance(name, str)}
