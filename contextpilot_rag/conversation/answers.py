"""What an engine's answer is as a message."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..dedup.messages import as_message
from ..errors import InputError
from ..types import short


def assistant_message(answer: object) -> Mapping[str, Any]:
    """The message of an answer: a text, a message, or an engine's whole response, as an object or as plain JSON.

    Raises:
        InputError: it is none of these.

    >>> assistant_message("Yes.")
    {'role': 'assistant', 'content': 'Yes.'}
    """
    if isinstance(answer, str):
        return {"role": "assistant", "content": answer}
    message = answer
    choices = answer.get("choices") if isinstance(answer, Mapping) else getattr(answer, "choices", None)
    if isinstance(choices, list | tuple) and choices:  # a whole completion, as an object or as plain JSON
        message = choices[0].get("message") if isinstance(choices[0], Mapping) else getattr(choices[0], "message", None)
    found = as_message(message)
    text = getattr(answer, "text", None)
    if found is None and isinstance(text, str) and hasattr(answer, "usage"):
        return {"role": "assistant", "content": text}
    if found is None:
        raise InputError(
            f"an answer is a text, a message or a chat completion, not {type(answer).__name__}; of a stream, join the "
            "texts of its chunks"
        )
    if found["role"] != "assistant":
        raise InputError(f"an answer is an assistant's message, not one with the role {short(found['role'])}")
    return found
