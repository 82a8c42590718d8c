"""Blocks in wrappers that name themselves, such as ``<documents><document index="1">...</document>...</documents>``.

What could be read in more than one way is no group, and stays as it is: tags of these names that are nested, unbalanced
or within an item, text between items that may belong to one of them, tags between them, and whatever looks like a piece
of a file or a program.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise

from ..words import Group, Item, Span
from .labels import labelled
from .prose import Prose, begins_line, ends_line, is_ours
from .tags import ITEMS, Tag, attributes, tags

# An item's child that is its content, where the other children only say what it is.
_CONTENTS = ("document_content", "page_content", "content", "text", "passage", "chunk", "snippet")
_CONTENT = {
    name: (re.compile(rf"<{name}(?:\s[^<>]*)?>", re.IGNORECASE), re.compile(rf"</{name}\s*>", re.IGNORECASE))
    for name in _CONTENTS
}
_CHILDREN = re.compile(r"\s*(?:<([A-Za-z_][\w.-]*)(?:\s[^<>]*)?>[^<]*</\1\s*>\s*)*", re.ASCII)
_MOST_BESIDE = 2_000  # characters of the other children

_ELEMENT = re.compile(r"</?[A-Za-z_!?]|```|~~~")
# A body that is a variable: the wrapper is a template's, or a program's.
_PLACEHOLDER = re.compile(
    r"\s*(?:\{[A-Za-z_][\w.\[\]()]*\}|\{\{[^{}\n]*\}\}|\{%[^\n]*%\}|\$\{?[A-Za-z_]\w*\}?|%s|%\(\w+\)s)\s*"
)
_LAST_TAG = re.compile(r"<([A-Za-z_][\w.:-]*)[^<>]*>\Z", re.ASCII)


def wrappers(text: str, *, whole: bool) -> list[Group]:
    r"""The groups of blocks in a text's wrappers, in order.

    Args:
        text: that the model reads.
        whole: the wrapper has to be all of it but for blanks, since a tool may have read a file.

    >>> [group] = wrappers("<docs>\n<doc id='7'>One</doc>\n<doc id='3'>Two</doc>\n</docs>\nWhy?", whole=False)
    >>> [item.label for item in group.items]
    ['7', '3']
    """
    if "</" not in text:
        return []
    found = _Tags(tags(text))
    openings = [tag for tag in found.all if tag.name in ITEMS and tag.kind == "open"]
    if whole:
        openings = [tag for tag in openings[:1] if not text[: tag.start].strip()]
    if not openings:
        return []
    prose = Prose(text)
    blocked = {name for name in ITEMS if not _balanced(text, found.of(name))}
    groups: list[Group] = []
    end = 0
    for opening in openings:
        if opening.start < end or not begins_line(text, opening.start) or not prose.at(opening.start):
            continue
        closing = None if opening.name in blocked else _closing(text, found, opening)
        if closing is None or (whole and text[closing.end :].strip()):
            continue
        group = _group(text, found, opening, closing)
        if group is not None:
            groups.append(group)
        if group is not None or _begins_with_item(found, opening, closing):
            end = closing.end
            prose.skip(end)
    return groups


class _Tags:
    """A text's tags, by name.

    Args:
        every: in order.
    """

    def __init__(self, every: list[Tag]) -> None:
        self.all = every
        self._starts = [tag.start for tag in every]
        self._named: dict[str, list[Tag]] = {}
        for tag in every:
            self._named.setdefault(tag.name, []).append(tag)
        self._named_starts = {name: [tag.start for tag in some] for name, some in self._named.items()}

    def of(self, name: str) -> Sequence[Tag]:
        """All of a name."""
        return self._named.get(name, ())

    def next(self, start: int, name: str | None = None) -> Tag | None:
        """The first one from a place on."""
        starts = self._starts if name is None else self._named_starts.get(name, ())
        some = self.all if name is None else self.of(name)
        place = bisect_left(starts, start)
        return some[place] if place < len(some) else None

    def within(self, name: str, start: int, end: int) -> Sequence[Tag]:
        """Those of a name between two places."""
        starts = self._named_starts.get(name, ())
        return self.of(name)[bisect_left(starts, start) : bisect_left(starts, end)]


def _balanced(text: str, some: Sequence[Tag]) -> bool:
    """Whether wrappers of one name stand one after the other. A tag in the middle of a line only mentions the name."""
    opened = ""
    for tag in some:
        if tag.kind == "open" and begins_line(text, tag.start):
            if opened:
                return False
            opened = tag.spelled
        elif tag.kind == "close" and ends_line(text, tag.end):
            if opened != tag.spelled:
                return False
            opened = ""
    return not opened


def _closing(text: str, found: _Tags, opening: Tag) -> Tag | None:
    after = found.next(opening.end, opening.name)
    if after is None or after.kind != "close" or after.spelled != opening.spelled or not ends_line(text, after.end):
        return None
    return after


def _begins_with_item(found: _Tags, opening: Tag, closing: Tag) -> bool:
    """Whether it is a wrapper of items after all: then what stands in them is theirs, and no wrapper."""
    first = found.next(opening.end)
    return first is not None and first.start < closing.start and first.name in ITEMS[opening.name]


def _group(text: str, found: _Tags, opening: Tag, closing: Tag) -> Group | None:
    if opening.spelled not in (opening.name, opening.name.upper()) or _in_file(text, opening):
        return None
    firsts = [found.next(opening.end, name) for name in ITEMS[opening.name]]
    first = min((tag for tag in firsts if tag is not None), default=None)
    if first is None:
        return None
    some = found.within(first.name, opening.end, closing.start)
    pairs = list(zip(some[::2], some[1::2], strict=False))
    if len(some) % 2 or len(pairs) < 2 or not all(_pairs(begin, end, first.spelled) for begin, end in pairs):
        return None
    gaps = [text[before.end : after.start] for (_, before), (after, _) in pairwise(pairs)]
    outer = (text[opening.end : pairs[0][0].start], text[pairs[-1][1].end : closing.start])
    if not _is_between(gaps) or any(_ELEMENT.search(gap) for gap in (*outer, *gaps)):
        return None
    items = [Item((begin.start, end.end), _body(text, begin.end, end.start)) for begin, end in pairs]
    if any(_PLACEHOLDER.fullmatch(text, *item.body) for item in items) or is_ours(_with_next(text, opening, closing)):
        return None
    values = [attributes(text, begin.attributes) for begin, _ in pairs]
    return Group((opening.start, closing.end), labelled(text, items, values), "xml")


def _pairs(begin: Tag, end: Tag, spelled: str) -> bool:
    return begin.kind == "open" and end.kind == "close" and begin.spelled == end.spelled == spelled


def _is_between(gaps: Sequence[str]) -> bool:
    """Whether what stands between items belongs to none of them: it says nothing, or always the same."""
    if all(re.search(r"\w", gap) is None for gap in gaps):
        return True
    return len(gaps) > 1 and len(set(gaps)) == 1


def _in_file(text: str, opening: Tag) -> bool:
    """Whether a wrapper is indented below an element of another name, as it is in files."""
    before = text[max(0, opening.start - 1_000) : opening.start]
    if before.endswith("\n") or not (above := before.rstrip()).endswith(">"):
        return False
    last = _LAST_TAG.search(above)
    return last is None or last[1].lower() not in ITEMS


def _with_next(text: str, opening: Tag, closing: Tag) -> str:
    """A wrapper and the first line behind it: a hint would stand between them."""
    rest = text[closing.end : closing.end + 1_000].lstrip()
    return f"{text[opening.start : closing.end]}\n{rest[:200]}"


def _body(text: str, start: int, end: int) -> Span:
    """An item's content: what its tags hold, or the one child of it that is the content."""
    inside = text[start:end]
    if not inside.lstrip().startswith("<"):
        return start, end
    for opens, closes in _CONTENT.values():
        ahead, behind = list(opens.finditer(inside)), list(closes.finditer(inside))
        if len(ahead) == len(behind) == 1 and ahead[0].end() <= behind[0].start():
            before, after = inside[: ahead[0].start()], inside[behind[0].end() :]
            if len(before) + len(after) <= _MOST_BESIDE and _CHILDREN.fullmatch(before) and _CHILDREN.fullmatch(after):
                return start + ahead[0].end(), start + behind[0].start()
    return start, end
