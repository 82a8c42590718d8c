"""User messages of ours, read back: which blocks stand in them, under which labels."""

from __future__ import annotations

import re
from collections.abc import Container
from dataclasses import dataclass

from .escape import unescape
from .hints import LOCATION_HINT
from .render import BETWEEN, CLOSE, OPEN

_LABEL = re.compile(r"\[([0-9]{1,9})\] ")
_NEXT = re.compile(rf"{BETWEEN}(?=\[[0-9]{{1,9}}\] )")


@dataclass(frozen=True, slots=True)
class ReadBlock:
    """A block as it stands in a message.

    Args:
        label: its number.
        text: as it was before it was escaped; None for a location hint.
    """

    label: int
    text: str | None


def read_user(content: object, known: Container[int]) -> tuple[list[ReadBlock], str] | None:
    r"""The blocks of a user message and what stands after them; None if it is none of ours.

    Escaping keeps block text from forging a label, so the labels found are the ones that were rendered.

    Args:
        content: of the message.
        known: labels of the messages before it; only these can be hinted at.

    >>> read_user("<documents>\n[1] Slices.\n\n[2] (given above)\n</documents>\n\nWhy?", {2})
    ([ReadBlock(label=1, text='Slices.'), ReadBlock(label=2, text=None)], '\n\nWhy?')
    """
    if not isinstance(content, str) or not content.startswith(OPEN):
        return None
    end = content.find(CLOSE, len(OPEN) - 1)
    if end < 0:
        return None
    blocks = []
    here: set[int] = set()
    for piece in _NEXT.split(content[len(OPEN) : end]):
        found = _LABEL.match(piece)
        if found is None:
            return None
        label, body = int(found[1]), piece[found.end() :]
        hinted = body == LOCATION_HINT and (label in known or label in here)
        blocks.append(ReadBlock(label, None if hinted else unescape(body)))
        here.add(label)
    return blocks, content[end + len(CLOSE) :]
