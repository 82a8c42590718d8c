"""LangChain's messages as the core sees messages: a role and texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    ChatMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)

Content = str | list[Any]


def text_of(message: BaseMessage) -> str:
    """All text of a message.

    >>> text_of(HumanMessage([{"type": "text", "text": "Look:"}, {"type": "image_url", "image_url": "a.png"}]))
    'Look:'
    """
    return text_of_content(message.content)


def text_of_content(content: object) -> str:
    """All text of a message's content."""
    if isinstance(content, str):
        return content
    return "\n".join(filter(None, map(_text_of_part, content))) if isinstance(content, list) else ""


def plain(message: BaseMessage) -> dict[str, Any]:
    """A message as OpenAI clients send it, as far as its role and texts go."""
    return {"role": _role(message), "content": message.content}


def all_plain(messages: Sequence[BaseMessage]) -> list[dict[str, Any]] | None:
    """Messages as OpenAI clients send them, where they are roles and texts and no more; else None.

    Calls of tools and images make tokens that depend on how a model's template writes them.

    >>> all_plain([SystemMessage("Be brief."), HumanMessage("Why?")])
    [{'role': 'system', 'content': 'Be brief.'}, {'role': 'user', 'content': 'Why?'}]
    >>> all_plain([HumanMessage([{"type": "image_url", "image_url": "a.png"}])]) is None
    True
    """
    return list(map(plain, messages)) if all(map(_is_plain, messages)) else None


def _is_plain(message: BaseMessage) -> bool:
    content = message.content
    more = isinstance(message, ToolMessage) or getattr(message, "tool_calls", None)
    texts = isinstance(content, str) or all(_text_of_part(part) is not None for part in content)
    return texts and not more and "function_call" not in message.additional_kwargs


def head_of(content: Content) -> str:
    """The text that a content begins with: all of it, or its first part."""
    if isinstance(content, str):
        return content
    return (_text_of_part(content[0]) or "") if content else ""


def with_head(content: Content, head: str) -> Content:
    """A content that begins with another text."""
    if isinstance(content, str):
        return head
    first = content[0]
    return [{**first, "text": head} if isinstance(first, dict) else head, *content[1:]]


def last_question(messages: Sequence[BaseMessage]) -> tuple[int, HumanMessage] | None:
    """The user's message that is not answered yet, and its place; None if there is none."""
    for place in range(len(messages) - 1, -1, -1):
        message = messages[place]
        if isinstance(message, HumanMessage):
            return place, message
        if isinstance(messages[place], AIMessage | ToolMessage):
            return None
    return None


def _role(message: BaseMessage) -> str:
    if isinstance(message, ChatMessage):
        return message.role
    if isinstance(message, SystemMessage):
        return "system"
    if isinstance(message, AIMessage):
        return "assistant"
    if isinstance(message, ToolMessage):
        return "tool"
    return "user" if isinstance(message, HumanMessage) else message.type


def _text_of_part(part: object) -> str | None:
    if isinstance(part, str):
        return part
    text = part.get("text") if isinstance(part, dict) and part.get("type") in ("text", "input_text") else None
    return text if isinstance(text, str) else None
