"""What an engine reported, out of LangChain's messages and results. Not reported is None, not zero."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from contextpilot_rag import Usage
from contextpilot_rag.engines.usage import usage_of
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import LLMResult


def usage_of_message(message: BaseMessage) -> Usage | None:
    """What an answer says of its tokens; None if it says nothing.

    >>> told = {"input_tokens": 9, "output_tokens": 2, "total_tokens": 11, "input_token_details": {"cache_read": 4}}
    >>> usage_of_message(AIMessage("Yes.", usage_metadata=told))
    Usage(prompt_tokens=9, cached_tokens=4, completion_tokens=2)
    >>> usage_of_message(AIMessage("Yes.")) is None
    True
    """
    told = message.usage_metadata if isinstance(message, AIMessage) else None
    if told is None:
        return usage_of({"usage": message.response_metadata.get("token_usage")})
    details: Mapping[str, Any] = told.get("input_token_details") or {}
    cached = [count for name, count in details.items() if name.endswith("cache_read")]  # "priority_cache_read", too
    return usage_of(
        {
            "usage": {
                "prompt_tokens": told.get("input_tokens"),
                "completion_tokens": told.get("output_tokens"),
                "prompt_tokens_details": {"cached_tokens": cached[0]} if cached else None,
            }
        }
    )


def usage_of_result(result: LLMResult) -> Usage | None:
    """What the result of one run says of its tokens; None if it says nothing."""
    for generation in (generation for row in result.generations for generation in row):
        message = getattr(generation, "message", None)
        usage = usage_of_message(message) if isinstance(message, BaseMessage) else None
        if usage is not None:
            return usage
    return usage_of({"usage": (result.llm_output or {}).get("token_usage")})
