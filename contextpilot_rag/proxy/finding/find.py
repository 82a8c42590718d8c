"""Groups of blocks in a text, by who says it."""

from __future__ import annotations

from collections.abc import Iterable

from ..words import Group, Lists, Text
from .listed import listed
from .numbered import headed, numbered
from .wrappers import wrappers


def find(text: Text, lists: frozenset[Lists] = frozenset(), *, tool_results: bool = True) -> list[Group]:
    """The groups in a text, in order; none stands in another. Never raises.

    What the model said itself has none. In results of tools a group has to be all of the text, since it may be a file.

    Args:
        text: of a message.
        lists: that count as blocks.
        tool_results: JSON lists in results of tools do, too.

    >>> find(Text("user", 1, None, "<docs><doc>One</doc> <doc>Two</doc></docs>", ()))[0].span
    (0, 42)
    """
    if text.role == "assistant":
        return []
    found = wrappers(text.text, whole=text.role == "tool")
    if not found and tool_results and text.role == "tool":
        results = listed(text.text)
        found = [] if results is None else [results]
    if not found and "headed" in lists:
        found = headed(text.text)
    if "numbered" in lists and all(group.form == "headed" for group in found):
        found = sorted([*found, *_beside(found, numbered(text.text))], key=_span)
    return found


def _beside(found: Iterable[Group], more: Iterable[Group]) -> list[Group]:
    """Those of the second that overlap none of the first. Both are in order."""
    beside = []
    taken = iter(found)
    other = next(taken, None)
    for group in more:
        while other is not None and other.span[1] <= group.span[0]:
            other = next(taken, None)
        if other is None or group.span[1] <= other.span[0]:
            beside.append(group)
    return beside


def _span(group: Group) -> tuple[int, int]:
    return group.span
