"""Completions: one prompt without messages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..words import Api, Asked, Message, Path, Text
from .parts import asked, field_of


class Completions:
    """Bodies of ``/v1/completions``."""

    api: Api = "completions"

    def read(self, body: Mapping[str, Any]) -> Asked | None:
        """A decoded body as one message; None: token ids, several prompts, or none.

        >>> Completions().read({"prompt": "Once"}).messages[0].texts[0].text
        'Once'
        >>> Completions().read({"prompt": ["Once", "Twice"]})
        """
        prompt = field_of(body, "prompt")
        path: Path = ("prompt",)
        if isinstance(prompt, list) and len(prompt) == 1:
            prompt, path = prompt[0], ("prompt", 0)
        if not isinstance(prompt, str):
            return None
        return asked(self.api, body, [Message(1, "user", prompt, (Text("user", 1, None, prompt, path),), path)])
