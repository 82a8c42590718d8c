"""Cached tokens out of any answer, of engines and of frameworks. None is "not reported", which is not zero."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ..types import Usage

Getter = Callable[[str], Any]
Places = dict[str, "Places"]
_HERE: Places = {}
_NAMED: Places = {"token_usage": _HERE, "usage": _HERE}
_OF_MESSAGE: Places = {"usage": _HERE, "usage_metadata": _HERE, "response_metadata": _NAMED}
_OF_ENGINE: Places = {
    "usage": _HERE,
    "response": {"usage": _HERE},  # the responses API streams its answer inside an event
    "message": _OF_MESSAGE,  # so does Anthropic's, and LangChain keeps its messages in generations
    "meta_info": _HERE,  # SGLang's own
    "timings": _HERE,  # llama.cpp's
}
# Where an answer has its figures, and where what stands there has them.
_PLACES: Places = {
    **_OF_ENGINE,
    **_OF_MESSAGE,
    "raw": {**_OF_ENGINE, **_OF_MESSAGE},  # LlamaIndex keeps the engine's own answer
    "additional_kwargs": _HERE,
    "llm_output": _NAMED,  # of LangChain's results
}
_DETAILS = ("prompt_tokens_details", "input_tokens_details", "input_token_details")
_NOTHING = Usage()
_PLAIN = (str, bytes, int, float, list, tuple, set)


def usage_of(response: object) -> Usage | None:
    """What an answer says of its tokens, or None if it says nothing.

    Understands, as objects of the clients or as parsed JSON: chat completions, completions, responses, and the last
    chunk or event of each one's stream; messages of Anthropic's API; SGLang's and llama.cpp's native answers;
    LlamaIndex's responses of chats and completions; LangChain's messages, their chunks, and results; a bare usage
    object; and our own `Usage`. Where an answer has several figures, those that say what was cached go first. Never
    raises.

    >>> usage_of({"usage": {"prompt_tokens": 10, "prompt_tokens_details": {"cached_tokens": 4}}})
    Usage(prompt_tokens=10, cached_tokens=4, completion_tokens=None)
    >>> usage_of({"usage": {"prompt_tokens": 10, "prompt_tokens_details": None}}).cached_tokens is None
    True
    >>> usage_of({"usage": {"input_tokens": 6, "cache_read_input_tokens": 4}})
    Usage(prompt_tokens=10, cached_tokens=4, completion_tokens=None)
    """
    if isinstance(response, Usage):
        return response
    first = None
    try:
        for found in _found(response, _PLACES):
            if found.cached_tokens is not None:
                return found
            first = first or found
    except Exception:  # noqa: BLE001  somebody else's object; an answer must never break the caller
        return first
    return first


def _found(value: object, places: Places) -> Iterator[Usage]:
    """All figures in a value, those nearest to its surface first."""
    if value is None or isinstance(value, _PLAIN):
        return
    if isinstance(value, Usage):
        yield value
        return
    get = _getter(value)
    told = _read(get)
    if told != _NOTHING:
        yield told
    for place, inner in places.items():
        yield from _found(get(place), inner)
    if places is not _PLACES:
        return
    rows = get("generations")  # LangChain's results have a list for each prompt
    for row in rows if isinstance(rows, list) else ():
        for generation in row if isinstance(row, list) else ():
            yield from _found(generation, _OF_ENGINE)


def _read(get: Getter) -> Usage:
    """The figures that a value has itself."""
    prompt = whole = _first_count(get, "prompt_tokens")
    if prompt is None:
        prompt = _first_count(get, "input_tokens")
    cached = _cached(get)
    completion = _first_count(get, "completion_tokens", "output_tokens", "predicted_n")
    read, written = _first_count(get, "cache_read_input_tokens"), _first_count(get, "cache_creation_input_tokens")
    if cached is None:
        cached = read
    if whole is None and prompt is not None:
        prompt += (read or 0) + (written or 0)
    new, kept = _first_count(get, "prompt_n"), _first_count(get, "cache_n")
    if new is not None and kept is not None:  # llama.cpp's timings
        prompt, cached = new + kept, kept
    return Usage(prompt, cached, completion)


def _cached(get: Getter) -> int | None:
    for name in _DETAILS:
        details = get(name)
        if details is None:
            continue
        found = _first_count(_getter(details), "cached_tokens", "cache_read")
        if found is None and isinstance(details, Mapping):  # LangChain's "priority_cache_read", too
            found = _first_count(details.get, *[key for key in details if str(key).endswith("_cache_read")])
        if found is not None:
            return found
    if get("prompt_tokens") is None:
        return None
    return _first_count(get, "cached_tokens", "prompt_cache_hit_tokens")


def _getter(value: object) -> Getter:
    """What finds a value's items or attributes by name; None for those that it lacks."""
    if isinstance(value, Mapping):
        return value.get
    more = getattr(value, "__pydantic_extra__", _NOTHING)
    if more is None:  # such an object takes long to say what it lacks, and streams ask with each chunk
        return vars(value).get
    if isinstance(more, dict):
        return {**more, **vars(value)}.get
    return lambda name: getattr(value, name, None)


def _first_count(get: Getter, *names: str) -> int | None:
    for name in names:
        count = get(name)
        if isinstance(count, int) and not isinstance(count, bool) and count >= 0:
            return count
    return None
