"""Reading a request: its body as messages, and the groups of blocks that stand in them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from .finding.find import find
from .formats.table import FORMATS
from .opening import Opening
from .words import Api, Asked, Group, Lists, Text

_MOST = 4_096  # blocks of a group: one of more is no context that was retrieved
_decode = msgspec.json.Decoder().decode


@dataclass(frozen=True, slots=True)
class Found:
    """What was recognised in a request.

    Args:
        groups: by the path of the text that they stand in.
        opening: the first of them; None: there is none.
        results: a tool's result is there, which may repeat something.
    """

    groups: Mapping[tuple[str | int, ...], list[Group]]
    opening: Opening | None
    results: bool

    @property
    def nothing(self) -> bool:
        """Whether the request has to pass as it is."""
        return not self.groups and not self.results

    @property
    def blocks(self) -> int:
        """Of all groups."""
        return sum(len(group.items) for groups in self.groups.values() for group in groups)


def decoded(raw: bytes) -> Mapping[str, Any] | None:
    """A body; None: it is no JSON object that everybody would read the same way."""
    try:
        body = _decode(raw)
    except (msgspec.DecodeError, RecursionError, ValueError):
        return None
    return body if isinstance(body, dict) else None


def names_in(raw: bytes) -> set[str] | None:
    r"""The names of a body's members as engines read it that take more than JSON has; None: no object even for them.

    >>> names_in(b'{"n": NaN, "text": "\\ud83d"}') == {"n", "text"}, names_in(b"{} {}"), names_in(b"[]")
    (True, None, None)
    """
    try:
        found = json.loads(raw, object_pairs_hook=tuple)
    except (ValueError, RecursionError):
        return None
    return {name for name, _ in found} if isinstance(found, tuple) else None


def read(api: Api, body: Mapping[str, Any]) -> Asked | None:
    """A body as messages; None: it has none that can be read."""
    return FORMATS[api].read(body)


def recognised(asked: Asked, lists: frozenset[Lists], *, tool_results: bool) -> Found:
    """The groups of a request.

    Args:
        asked: the request.
        lists: that count as blocks.
        tool_results: whether results of tools are looked at.
    """
    groups: dict[tuple[str | int, ...], list[Group]] = {}
    first: tuple[int, Text, Group] | None = None
    results, answered = False, -1
    for place, message in enumerate(asked.messages):
        if message.role == "assistant":
            answered = place
            continue
        for text in message.texts:
            if text.role == "assistant" or (text.role == "tool" and not tool_results):
                continue
            results = results or text.role == "tool"
            found = [group for group in find(text, lists, tool_results=tool_results) if len(group.items) <= _MOST]
            if found:
                groups[text.path] = found
                first = first or (place, text, found[0])
    opening = None
    if first is not None:
        place, text, group = first
        opening = Opening(asked.messages[place], text, group, new=answered < place)
    return Found(groups, opening, results)
