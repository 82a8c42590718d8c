"""Message lists as OpenAI clients send them: results of tools that repeat what the messages hold already.

Works from the messages alone, and each message depends only on those before it: history that is sent again in its
original form becomes the same bytes again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ..errors import InputError
from ..types import short
from .chunks import MAX_CHARACTERS, Repeats
from .rows import Span

Messages = Sequence[Mapping[str, Any]]
Inside = tuple[Sequence[Span] | None, bool]


def deduplicate(
    messages: Messages, *, normalise: bool = True, max_text: int = MAX_CHARACTERS, repeats: Repeats | None = None
) -> list[dict[str, Any]]:
    """The messages with a location hint for each part of a tool's result that stands in an earlier message.

    Results may repeat system and user messages, other results and themselves; what the model wrote is never pointed at.
    Only tool messages are changed, and everything that is no text passes as it is. `contextpilot_rag.expand` undoes it.

    Args:
        messages: all of the conversation so far, in their original form: mappings, or the openai client's objects. They
            are not changed. What this returned is for sending; keep the originals, and give those the next time.
        normalise: line ends, Unicode forms and blanks at the ends of lines make no difference.
        max_text: characters of one text.
        repeats: what stands before these messages.

    Raises:
        InputError: something that is no message.
        TextTooLong: a result of more than ``max_text`` characters.

    >>> report = "All systems were checked and found to be in working order, as they were last week and before. "
    >>> first, second = ({"role": "tool", "tool_call_id": name, "content": report * 2} for name in ("a", "b"))
    >>> deduplicate([first, second])[1]["content"]
    '[same text as in message 1 at 0: 188 characters from "All systems were checked and found to be in"]'
    """
    found = Repeats(exact=not normalise, max_text=max_text) if repeats is None else repeats
    return [add_message(found, number, message) for number, message in enumerate(checked_messages(messages), start=1)]


def checked_messages(messages: object) -> list[Mapping[str, Any]]:
    """Messages as mappings.

    Raises:
        InputError: something that is no message; it says which.
    """
    if isinstance(messages, str | bytes | Mapping) or not isinstance(messages, Iterable):
        raise InputError(f"messages are a list of mappings with a role, not {short(messages)}")
    found = []
    for number, message in enumerate(messages, start=1):
        one = _plain(message)
        if one is None:
            raise InputError(f"message {number} must be a mapping with a role, not {short(message)}")
        found.append(one)
    return found


def as_message(value: object) -> Mapping[str, Any] | None:
    """A message: a mapping with a role, or an object of the openai client's, without what it leaves open; else None."""
    found = _plain(value)
    return found if found is not None and isinstance(found.get("role"), str) else None


def _plain(value: object) -> Mapping[str, Any] | None:
    dump = None if isinstance(value, Mapping | type) else getattr(value, "model_dump", None)
    if callable(dump):
        value = dump(exclude_none=True)
    return value if isinstance(value, Mapping) else None


def add_message(
    repeats: Repeats, number: int, message: Mapping[str, Any], inside: Callable[[str], Inside] | None = None
) -> dict[str, Any]:
    """One message, as it is to be sent: see `deduplicate`.

    Args:
        repeats: what stands before it.
        number: its place among the messages, from 1.
        message: is not changed.
        inside: the parts of a result that anything may be replaced in, and whether these are insides of JSON strings,
            as for `Repeats.add`. None: all of each.
    """
    role = message.get("role")
    if role == "assistant":
        return dict(message)
    if role != "tool":
        return with_texts(message, number, lambda place, text: repeats.add(place, text, replace=False))

    def sent(place: str, text: str) -> str:
        within, quoted = (None, False) if inside is None else inside(text)
        return repeats.add(place, text, within=within, quoted=quoted)

    return with_texts(message, number, sent)


def with_texts(message: Mapping[str, Any], number: int, change: Callable[[str, str], str]) -> dict[str, Any]:
    """A copy of a message with its texts changed: its content, or the text parts of its content.

    Args:
        message: is not changed.
        number: its place among the messages, from 1.
        change: from a text's place ("message 3", "message 3, part 2") and the text to another one.

    >>> with_texts({"role": "user", "content": "a"}, 3, lambda place, text: place + text)
    {'role': 'user', 'content': 'message 3a'}
    """
    content = message.get("content")
    if isinstance(content, str):
        return {**message, "content": change(f"message {number}", content)}
    if not isinstance(content, list | tuple):
        return dict(message)
    parts = []
    for place, part in enumerate(content, start=1):
        text = _text_of(part)
        parts.append(part if text is None else {**part, "text": change(f"message {number}, part {place}", text)})
    return {**message, "content": parts}


def first_text(message: Mapping[str, Any], number: int) -> tuple[str, str]:
    """The place and the text of a message's content, or of its first text part; two empty texts if it has none.

    >>> first_text({"role": "user", "content": [{"type": "image_url"}, {"type": "text", "text": "Why?"}]}, 3)
    ('message 3, part 2', 'Why?')
    """
    content = message.get("content")
    if isinstance(content, str):
        return f"message {number}", content
    for place, part in enumerate(content if isinstance(content, list | tuple) else (), start=1):
        text = _text_of(part)
        if text is not None:
            return f"message {number}, part {place}", text
    return "", ""


def _text_of(part: Any) -> str | None:  # noqa: ANN401
    """The text of a text part; None: it is another part."""
    text = part.get("text") if isinstance(part, Mapping) and part.get("type") in ("text", "input_text") else None
    return text if isinstance(text, str) else None
