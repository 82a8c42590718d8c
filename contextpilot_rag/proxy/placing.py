"""Placing: where in a body the blocks of a message go, and a request's messages as a conversation has them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .explicit import SYSTEM
from .words import Api, Asked, Edit, Message, Path, Text

_SYSTEM: dict[Api, Path] = {"responses": ("instructions",), "messages": ("system",)}  # where a prompt of ours goes
_PART: dict[Api, str] = {"responses": "input_text"}


def question_of(message: Message) -> str:
    """What a user message says besides its blocks."""
    return "\n".join(text.text for text in message.texts if text.role == "user")


def placed(asked: Asked, number: int, documents: str) -> list[Edit]:
    """The changes to a body that put blocks into one of its messages.

    In front of a user message's first text, behind a system prompt's last one; within it, so that all its parts keep
    their numbers. A message without any text gets one.

    Args:
        asked: the request.
        number: of the message; `SYSTEM`: a system prompt that is to be added.
        documents: the blocks as they are to stand there.
    """
    if number == SYSTEM:
        return [Edit(_SYSTEM[asked.api], documents)]
    message = asked.messages[number - 1]
    texts = [text for text in message.texts if text.role == message.role]
    if message.role == "system" and texts:
        return [Edit(texts[-1].path, joined(texts[-1].text, documents))]
    if texts:
        return [Edit(texts[0].path, joined(documents, texts[0].text))]
    value = message.value
    path = (*message.path, "content") if isinstance(value, Mapping) else message.path
    content = value.get("content") if isinstance(value, Mapping) else value
    if not isinstance(content, list):
        return [Edit(path, documents)]
    return [Edit(path, [{"type": _PART.get(asked.api, "text"), "text": documents}, *content])]


def joined(*parts: str) -> str:
    r"""Texts that stand behind one another, with an empty line in between; without those that are empty.

    >>> joined("a", "", "b")
    'a\n\nb'
    """
    return "\n\n".join(part for part in parts if part)


def neutral(message: Message, changed: Mapping[Path, str] | None = None) -> dict[str, Any]:
    """A message as chat completions have it, with its texts alone, each in the place that hints call it by.

    Args:
        message: of any format.
        changed: texts that are others than they were, by path.
    """
    texts = message.texts
    if not texts:
        return {"role": message.role, "content": None}
    if texts[0].part is None:
        return {"role": message.role, "content": _text(texts[0], changed)}
    parts: list[dict[str, str]] = [{"type": "other"} for _ in range(max(text.part or 1 for text in texts))]
    for text in texts:
        parts[(text.part or 1) - 1] = {"type": "text", "text": _text(text, changed)}
    return {"role": message.role, "content": parts}


def rewritten(message: Message, sent: Mapping[str, Any]) -> list[Edit]:
    """The changes to a body that make a message's texts what was sent of it.

    Args:
        message: as it is.
        sent: as `neutral` has it, with other texts.
    """
    content = sent["content"]
    edits = []
    for text in message.texts:
        now = content if text.part is None else content[text.part - 1]["text"]
        if now != text.text:
            edits.append(Edit(text.path, now))
    return edits


def _text(text: Text, changed: Mapping[Path, str] | None) -> str:
    return changed.get(text.path, text.text) if changed else text.text
