"""What formats share: messages by their roles, and the texts of contents."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal, TypeGuard

from ...identity import block_key
from ..words import Api, Asked, Message, Path, Role, Text

Numbering = Literal["parts", "texts"]
"""What a text's ``part`` counts: all parts of the content, images as well; or its texts alone.

Where texts are counted, one that is alone in its list has no number: clients that mark what is to be cached write a
text as a list in one turn, and as itself in the next, and what points at it stays the same.
"""

_LONGEST_NAME = 256  # of a model; what is kept for each should not grow with what clients call them

SAID_BY: Mapping[object, Role] = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}


def field_of(body: object, name: str) -> object:
    """A field of a body; None: it has none, or is no object."""
    return body.get(name) if isinstance(body, Mapping) else None


def role_of(message: Mapping[str, Any], roles: Mapping[object, Role] = SAID_BY) -> Role | None:
    """Who says a message; None: its role is none that is known.

    >>> role_of({"role": "developer"}), role_of({"role": ["user"]})
    ('system', None)
    """
    role = message.get("role")
    return roles.get(role) if isinstance(role, str) else None


def texts_of(
    content: object, role: Role, number: int, path: Path, *, kinds: Collection[str], numbering: Numbering = "texts"
) -> tuple[Text, ...]:
    """The texts of a content: itself, or those parts of it that are texts. All else has none.

    Args:
        content: a text, or a list of parts.
        role: of whoever says it.
        number: of its message.
        path: where it stands in the body.
        kinds: types of parts that are texts.
        numbering: see `Numbering`.

    >>> parts = [{"type": "image_url"}, {"type": "text", "text": "What is it?"}]
    >>> [(text.part, text.path) for text in texts_of(parts, "user", 1, ("content",), kinds={"text"})]
    [(1, ('content', 1, 'text'))]
    """
    if isinstance(content, str):
        return (Text(role, number, None, content, path),)
    if not isinstance(content, list):
        return ()
    found: list[Text] = []
    for place, part in enumerate(content):
        if is_text(part, kinds):
            part_number = place + 1 if numbering == "parts" else None if len(content) == 1 else len(found) + 1
            found.append(Text(role, number, part_number, part["text"], (*path, place, "text")))
    return tuple(found)


def is_text(part: object, kinds: Collection[str]) -> TypeGuard[Mapping[str, Any]]:
    """Whether a part of a content is a text of one of these types."""
    if not isinstance(part, Mapping) or not isinstance(part.get("text"), str):
        return False
    kind = part.get("type")
    return isinstance(kind, str) and kind in kinds


def asked(api: Api, body: Mapping[str, Any], messages: Sequence[Message]) -> Asked | None:
    """A body as it was read; None: there are no messages in it."""
    return Asked(api, body, tuple(messages), model_of(body)) if messages else None


def model_of(body: Mapping[str, Any]) -> str:
    """What a body calls its model; empty: nothing. A hash stands for what is too long for a name.

    >>> model_of({"model": "m"}), model_of({"model": None}), len(model_of({"model": "m" * 1_000_000}))
    ('m', '', 32)
    """
    model = field_of(body, "model")
    name = model if isinstance(model, str) else ""
    return name if len(name) <= _LONGEST_NAME else block_key(name).hex()
