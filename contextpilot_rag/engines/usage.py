"""Cached tokens out of any OpenAI-compatible answer. None is "not reported", which is not zero."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..types import Usage


def usage_of(response: object) -> Usage | None:
    """What an answer says of its tokens, or None if it says nothing.

    Understands chat completions, completions, their last streamed chunk, and responses, as objects of the openai client
    or as parsed JSON; a bare usage object; and our own `Usage`. Never raises.

    >>> usage_of({"usage": {"prompt_tokens": 10, "prompt_tokens_details": {"cached_tokens": 4}}})
    Usage(prompt_tokens=10, cached_tokens=4, completion_tokens=None)
    >>> usage_of({"usage": {"prompt_tokens": 10, "prompt_tokens_details": None}}).cached_tokens is None
    True
    """
    try:
        return _read(response)
    except Exception:  # noqa: BLE001  somebody else's object; an answer must never break the caller
        return None


def _read(response: object) -> Usage | None:
    if response is None or isinstance(response, Usage):
        return response
    usage = _get(response, "usage")
    if usage is None:
        # the responses API streams its answer inside an event
        usage = _get(_get(response, "response"), "usage")
    if usage is None:
        usage = response
    if isinstance(usage, Usage):
        return usage
    details = _get(usage, "prompt_tokens_details")
    if details is None:
        details = _get(usage, "input_tokens_details")
    found = Usage(
        prompt_tokens=_first_count(usage, "prompt_tokens", "input_tokens"),
        cached_tokens=_first_count(details, "cached_tokens"),
        completion_tokens=_first_count(usage, "completion_tokens", "output_tokens"),
    )
    return None if found == Usage() else found


def _get(value: object, name: str) -> Any:  # noqa: ANN401
    if value is None:
        return None
    if isinstance(value, Mapping):
        return value.get(name)
    return getattr(value, name, None)


def _first_count(value: object, *names: str) -> int | None:
    for name in names:
        count = _get(value, name)
        if isinstance(count, int) and not isinstance(count, bool) and count >= 0:
            return count
    return None
