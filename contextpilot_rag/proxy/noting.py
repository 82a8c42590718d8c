"""Noting: what an alignment has to know of its request until that is reported on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ..prompt.prompt import AlignedPrompt
from . import reading
from .salts import carried
from .words import Asked, Edit, Path

_NOT_TEXTS = ("tools", "functions", "response_format", "chat_template_kwargs")


class Noting:
    """Notes what is sent. Token estimates are corrected by it, and blocks are found by it among an engine's KV blocks.

    Args:
        followed: somebody looks for blocks among the KV blocks of an engine.
    """

    def __init__(self, *, followed: bool) -> None:
        self._followed = followed

    def noted(
        self,
        aligned: AlignedPrompt,
        asked: Asked,
        texts: Mapping[Path, str] | None,
        raw: bytes,
        salting: Sequence[Edit],
    ) -> AlignedPrompt:
        """The alignment to keep until its request is answered, which may take long; texts take room.

        Args:
            aligned: of the request.
            asked: the request.
            texts: that are sent otherwise than they came; None: they are read again, where somebody has to know them.
            raw: what is sent.
            salting: what was done about its salt.
        """
        body = reading.decoded(raw) if self._followed and asked.api == "chat" else None
        sent = asked
        if texts is None:
            sent = (body is not None and reading.read(asked.api, body)) or asked
        if (texts is not None or sent is not asked) and _texts_alone(sent):
            others = texts or {}
            said = [others.get(text.path, text.text) for message in sent.messages for text in message.texts]
            aligned.sent.note(said, None if body is None else body["messages"])
        blocks = aligned.retrieved if self._followed else ()
        return replace(aligned, retrieved=blocks, question="", system=None, salt=carried(asked.body, salting))


def _texts_alone(asked: Asked) -> bool:
    """Whether the texts that were read are all that a prompt is made of, but for what frames them."""
    if any(asked.body.get(name) for name in _NOT_TEXTS):
        return False
    for message in asked.messages:
        content = message.value.get("content") if isinstance(message.value, dict) else message.value
        if isinstance(content, list) and len(content) != len(message.texts):
            return False
    return True
