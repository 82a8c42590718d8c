"""What tools' results repeat of the prompt they stand in: location hints in its place.

As `contextpilot_rag.deduplicate`, but that documents in users' messages are known by their labels: a hint can point to
``[3]``, and its first line counts, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from contextpilot_rag.dedup.chunks import Repeats
from contextpilot_rag.dedup.messages import add_message
from contextpilot_rag.expand import read_full
from contextpilot_rag.prompt.hints import label
from contextpilot_rag.settings import Settings

from ._messages import text_of_content


def without_repeats(messages: Sequence[Mapping[str, Any]], settings: Settings) -> list[Any]:
    r"""The contents of messages, with hints in those of role "tool".

    Each follows from those before it alone, so a history that only grows gives the same contents again.

    Args:
        messages: all of a prompt, tools' results as the tools gave them.
        settings: what counts as the same, and the longest text that is looked at.

    >>> line = "All systems were checked and found to be in working order, as they were last week and before. " * 2
    >>> asked = {"role": "user", "content": f"<documents>\n[1] {line}\n</documents>\n\nWhy?"}
    >>> without_repeats([asked, {"role": "tool", "content": line}], Settings())[1]
    '[same text as in [1] at 0: 188 characters from "All systems were checked and found to be in"]'
    """
    repeats = Repeats(exact=not settings.normalise, max_text=settings.max_text)
    contents = []
    for number, (message, full) in enumerate(zip(messages, read_full(messages, strict=False), strict=True), start=1):
        if len(text_of_content(message["content"])) > settings.max_text:
            contents.append(message["content"])
            continue
        if full.blocks is None or full.apart:
            contents.append(add_message(repeats, number, message)["content"])
            continue
        for block in full.blocks:
            if not block.again:
                repeats.add(label(block.label), block.text, replace=False)
        contents.append(message["content"])
    return contents
