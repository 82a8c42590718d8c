"""Blocks in lists that count: only looked for where somebody says that a list is one of blocks.

Where the last item ends is not written in such a list. It ends with its paragraph; a list whose items have several
paragraphs, or whose last item has more lines than any other, is none, since what follows it may be something else.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from ..words import Group, Item, Lists, Span
from .prose import Prose, is_ours

_NUMBER = re.compile(r"^(\[)?(\d{1,4})(?(1)\]|[.)])[ \t]+(?=\S)", re.MULTILINE | re.ASCII)
_WORDS = "document|doc|source|passage|chunk|result|context|snippet|memory|article|reference|excerpt"
_HEAD = re.compile(
    rf"^(#{{1,6}}[ \t]+|\*\*|-{{2,}}[ \t]*|={{2,}}[ \t]*|\[|)((?:{_WORDS})[ \t]*[:#]?[ \t]*)(\d{{1,4}})(?!\w)",
    re.MULTILINE | re.ASCII | re.IGNORECASE,
)
# What stands behind the number, by what stands before the word.
_TAILS = {
    "#": re.compile(r"[ \t]*:?(?=[ \t\r\n])|\Z"),
    "*": re.compile(r":?\*\*:?"),
    "-": re.compile(r"[ \t]*-{2,}(?=[ \t\r]*\n)"),
    "=": re.compile(r"[ \t]*={2,}(?=[ \t\r]*\n)"),
    "[": re.compile(r"\]:?(?=[ \t\r\n])"),
    "": re.compile(r":(?=[ \t\r\n])"),
}
_BLANK_LINE = re.compile(r"\n[ \t\r]*\n")
_HEADING = re.compile(r"^(#{1,6})[ \t]", re.MULTILINE)


class _Marker(NamedTuple):
    """What an item begins with.

    Args:
        span: all of it.
        number: as it is written.
        where: that stands.
        kind: equal for markers of one list.
    """

    span: Span
    number: str
    where: Span
    kind: str


def first_marker(text: str, lists: Collection[Lists]) -> int | None:
    r"""Where the first item of a list may begin, whether or not it is a list of blocks; None: nowhere.

    >>> first_marker("See:\n[1] One.\n[2] Two.", ["numbered"])
    5
    """
    found = [mark for mark in _markers(text, lists) if mark.number == "1"]
    return min((mark.span[0] for mark in found), default=None)


def numbered(text: str) -> list[Group]:
    r"""Lists of items that begin with ``[1]``, ``1.`` or ``1)``, each at the start of a line.

    >>> [group] = numbered("[1] One.\n[2] Two.\n\nWhy?")
    >>> [item.label for item in group.items], group.span
    (['1', '2'], (0, 17))
    """
    return _groups(text, _markers(text, ["numbered"]), "numbered")


def headed(text: str) -> list[Group]:
    r"""Lists of items below headers that count, such as ``## Document 1``, ``Source 1:`` or ``--- Passage 1 ---``.

    >>> [group] = headed("Document 1:\nOne.\n\nDocument 2:\nTwo.\n\nWhy?")
    >>> [item.label for item in group.items], group.span
    (['1', '2'], (0, 34))
    """
    return _groups(text, _markers(text, ["headed"]), "headed")


def _markers(text: str, lists: Collection[Lists]) -> list[_Marker]:
    """All that may begin an item of a list, by the kind of list."""
    found = []
    if "numbered" in lists:
        found += [
            _Marker(mark.span(), mark[2], mark.span(2), text[mark.start() : mark.start(2)] + text[mark.end(2)])
            for mark in _NUMBER.finditer(text)
        ]
    if "headed" in lists:
        for mark in _HEAD.finditer(text):
            tail = _TAILS[mark[1][:1]].match(text, mark.end())
            if tail is not None:
                kind = f"{mark[1]}{mark[2]} {tail[0].strip()}"
                found.append(_Marker((mark.start(), tail.end()), mark[3], mark.span(3), kind))
    return found


def _groups(text: str, markers: Sequence[_Marker], form: Lists) -> list[Group]:
    groups = []
    for run, end in _runs(text, markers):
        group = _group(text, run, end, form)
        if group is not None:
            groups.append(group)
    return groups


def _runs(text: str, markers: Sequence[_Marker]) -> Iterable[tuple[list[_Marker], int]]:
    """Markers of one kind that count 1, 2, 3, ..., at least two, and where the next other one stands.

    A marker that neither counts on nor begins anew spoils the run that it stands in.
    """
    prose = Prose(text) if len(markers) > 1 else None
    run: list[_Marker] = []
    for marker in markers:
        if prose is None or not prose.at(marker.span[0]):
            continue
        if run and marker.kind == run[0].kind and marker.number == str(len(run) + 1):
            run.append(marker)
            continue
        begins = marker.number == "1"
        if begins and len(run) > 1:
            yield run, marker.span[0]
        run = [marker] if begins else []
    if len(run) > 1:
        yield run, len(text)


def _group(text: str, run: Sequence[_Marker], end: int, form: Lists) -> Group | None:
    contents = [_stripped(text, marker.span[1], after.span[0]) for marker, after in pairwise(run)]
    if any(_BLANK_LINE.search(text, *content) for content in contents):
        last = _until_heading(text, run[-1], end)
    else:
        last = _paragraph(text, run[-1], end, max(text.count("\n", *content) for content in contents))
    if last is None:
        return None
    contents.append(last)
    gaps = [
        text[content[1] : marker.span[0]].count("\n") > 1 for content, marker in zip(contents, run[1:], strict=False)
    ]
    single = not all(gaps)
    if single and (any(gaps) or (form == "numbered" and any(text.count("\n", *content) for content in contents))):
        return None
    if any(begin >= stop for begin, stop in contents):
        return None
    items = tuple(
        Item((marker.span[0], content[1]), content, marker.number, marker.where)
        for marker, content in zip(run, contents, strict=True)
    )
    span = items[0].span[0], items[-1].span[1]
    return None if is_ours(text[span[0] : span[1] + 200]) else Group(span, items, form)


def _paragraph(text: str, marker: _Marker, end: int, most_lines: int) -> Span | None:
    """The last item's content, where each of the others is one paragraph."""
    begin, stop = _stripped(text, marker.span[1], end)
    blank = _BLANK_LINE.search(text, begin, stop)
    if blank is not None:
        begin, stop = _stripped(text, begin, blank.start())
    elif end < len(text) and text[stop:end].count("\n") < 2:
        return None  # what begins anew below may be of this item
    return (begin, stop) if text.count("\n", begin, stop) <= most_lines else None


def _until_heading(text: str, marker: _Marker, end: int) -> Span | None:
    """The last item's content below a heading: what stands before the next heading of no lower level."""
    level = len(marker.kind) - len(marker.kind.lstrip("#"))
    if not level:
        return None
    for heading in _HEADING.finditer(text, marker.span[1], end):
        if len(heading[1]) <= level:
            return _stripped(text, marker.span[1], heading.start())
    return None


def _stripped(text: str, begin: int, end: int) -> Span:
    """A span without the blanks at its ends."""
    inside = text[begin:end]
    return begin + len(inside) - len(inside.lstrip()), begin + len(inside.rstrip())
