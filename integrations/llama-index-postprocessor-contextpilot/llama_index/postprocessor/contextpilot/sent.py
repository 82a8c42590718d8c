"""Sent: the framework's messages as the engine is sent them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from llama_index.core.llms import ChatMessage, TextBlock


def all_text(messages: Iterable[ChatMessage]) -> str:
    r"""The text of all messages.

    >>> all_text([ChatMessage("Be brief.", role="system"), ChatMessage("Why?")])
    'Be brief.\nWhy?'
    """
    return "\n".join(block.text for message in messages for block in message.blocks if isinstance(block, TextBlock))


def as_sent(messages: Sequence[ChatMessage]) -> list[dict[str, Any]] | None:
    """Messages as the framework's OpenAI-like LLMs send them, where they are roles and texts and no more; else None.

    Calls of tools and images make tokens that depend on how a model's template writes them.

    >>> as_sent([ChatMessage("Be brief.", role="system"), ChatMessage("Why?")])
    [{'role': 'system', 'content': 'Be brief.'}, {'role': 'user', 'content': 'Why?'}]
    >>> as_sent([ChatMessage("Why?", role="tool", additional_kwargs={"tool_call_id": "7"})]) is None
    True
    """
    sent: list[dict[str, Any]] = []
    for message in messages:
        texts = [block.text for block in message.blocks if isinstance(block, TextBlock)]
        if message.additional_kwargs or len(texts) < len(message.blocks):
            return None
        sent.append({"role": message.role.value, "content": "".join(texts)})  # the framework puts nothing between them
    return sent
