"""Anthropic's messages as the messages of a chat, in the way vLLM takes them: one prompt, however it is asked. Pure.

``cache_control`` stands in none of them: a prefix cache finds by itself what is the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from ..errors import InputError
from .chat import Message

_UNSAID = ("thinking", "redacted_thinking")
"""What templates leave out of turns that are over."""


class Turn(msgspec.Struct):
    """One of Anthropic's messages."""

    role: Literal["user", "assistant", "system"]
    content: str | list[dict[str, Any]]


def chat_messages(
    system: str | Sequence[Mapping[str, Any]] | None, turns: Annotated[Sequence[Turn], Meta(min_length=1)]
) -> Iterator[Message]:
    """The messages of the same chat. Results of tools become messages of their own, before what the user says.

    Args:
        system: texts of it are joined as they are.
        turns: in order.

    Raises:
        InputError: a block has no type, or lacks what a block of its type has.

    >>> [one.role for one in chat_messages("Be brief.", [Turn("user", "Hello")])]
    ['system', 'user']
    """
    if system:
        texts = (
            [system] if isinstance(system, str) else [_text(block, f"system[{n}]") for n, block in enumerate(system)]
        )
        yield Message("system", "".join(texts))
    for number, turn in enumerate(turns):
        if isinstance(turn.content, str):
            yield Message(turn.role, turn.content)
        else:
            yield from _messages(turn.role, turn.content, f"messages[{number}].content")


def chat_tools(tools: Sequence[Any] | None) -> list[Any] | None:
    """Tools as a chat would have them.

    >>> chat_tools([{"name": "look_up", "input_schema": {}, "cache_control": {"type": "ephemeral"}}])
    [{'type': 'function', 'function': {'name': 'look_up', 'description': None, 'parameters': {}}}]
    """
    return None if tools is None else [_tool(one) for one in tools]


def _tool(tool: object) -> object:
    if not isinstance(tool, dict) or "input_schema" not in tool:
        return _without_control(tool) if isinstance(tool, dict) else tool  # one that runs at the model's
    description = {"description": tool.get("description"), "parameters": tool["input_schema"]}
    return {"type": "function", "function": {"name": tool.get("name"), **description}}


def _messages(role: str, blocks: Sequence[Mapping[str, Any]], where: str) -> Iterator[Message]:
    parts: list[dict[str, Any]] = []
    calls: list[Any] = []
    for number, block in enumerate(blocks):
        at, kind = f"{where}[{number}]", block.get("type")
        if not isinstance(kind, str):
            raise InputError(f"{at}.type: must be a text")
        if kind == "text":
            parts.append({"type": "text", "text": _text(block, at)})
        elif kind == "tool_use":
            calls.append(_call(block, at))
        elif kind == "tool_result":
            yield Message("tool", _result(block.get("content"), at))
        elif kind not in _UNSAID:
            parts.append(_without_control(block))
    if parts or calls:
        yield Message(role, parts or None, calls or None)


def _result(content: object, where: str) -> str | list[dict[str, Any]]:
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, list) or not all(isinstance(part, dict) for part in content):
        raise InputError(f"{where}.content: must be a text or a list of blocks")
    return [_without_control(part) for part in content]


def _call(block: Mapping[str, Any], where: str) -> dict[str, Any]:
    if not isinstance(block.get("name"), str) or not isinstance(block.get("input"), dict):
        raise InputError(f"{where}: must have a name and an input")
    try:
        arguments = msgspec.json.encode(block["input"]).decode()
    except RecursionError:  # reading takes a little less of the stack than writing
        raise InputError("the request cannot be used: a part of it is nested too deeply") from None
    return {"id": block.get("id"), "type": "function", "function": {"name": block["name"], "arguments": arguments}}


def _text(block: Mapping[str, Any], where: str) -> str:
    text = block.get("text")
    if block.get("type") != "text" or not isinstance(text, str):
        raise InputError(f"{where}.text: must be a text")
    return text


def _without_control(block: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in block.items() if name != "cache_control"}
