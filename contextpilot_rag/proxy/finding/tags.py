"""Tags of the names that wrappers and their items have, in time that grows with the text alone."""

from __future__ import annotations

import re
from typing import NamedTuple

from ..words import Span

ITEMS: dict[str, tuple[str, ...]] = {
    "documents": ("document", "doc"),
    "docs": ("doc", "document"),
    "context": (
        "document",
        "doc",
        "passage",
        "chunk",
        "snippet",
        "source",
        "result",
        "search_result",
        "memory",
        "item",
    ),
    "contexts": ("context",),
    "passages": ("passage",),
    "search_results": ("search_result", "result", "document"),
    "results": ("result", "search_result", "document"),
    "sources": ("source",),
    "chunks": ("chunk",),
    "snippets": ("snippet",),
    "memories": ("memory",),
    "references": ("reference",),
    "excerpts": ("excerpt",),
    "retrieved_documents": ("document", "doc", "retrieved_document"),
    "retrieved_context": ("document", "doc", "passage", "chunk", "context", "source"),
    "retrieved_passages": ("passage",),
    "retrieved_chunks": ("chunk",),
}
"""The names of wrappers, and those that the items in each may have."""

_NAMES = sorted({*ITEMS, *(item for items in ITEMS.values() for item in items)})
_BLANK = r"[ \t\r\n]"
_ATTRIBUTE = rf"{_BLANK}+([\w.:-]+){_BLANK}*={_BLANK}*(?:\"([^\"<]*)\"|'([^'<]*)'|([^\s\"'<>=`/{{}}]+))"
_FLAGS = re.IGNORECASE | re.ASCII
_TAG = re.compile(rf"<{_BLANK}*(/?){_BLANK}*({'|'.join(_NAMES)})(?![\w.:-])", _FLAGS)
# Each part begins with what the one before it cannot hold: there is one way to read a tag, and no other is tried.
_OPEN_END = re.compile(f"((?:{re.sub('[(](?![?])', '(?:', _ATTRIBUTE)})*){_BLANK}*>", re.ASCII)
_CLOSE_END = re.compile(f"{_BLANK}*>")
_ATTRIBUTES = re.compile(_ATTRIBUTE, re.ASCII)


class Tag(NamedTuple):
    """A tag.

    Args:
        start: where it begins.
        end: where what follows it begins.
        kind: "odd": it is not written as an opening or closing tag is, or closes itself.
        name: in small letters.
        spelled: the name as it is written.
        attributes: where they stand.
    """

    start: int
    end: int
    kind: str
    name: str
    spelled: str
    attributes: Span


def tags(text: str) -> list[Tag]:
    """All tags of names that we know, in order.

    >>> [tag.kind for tag in tags('<doc id="1">a</doc> <doc/> <docs> <b>')]
    ['open', 'close', 'odd', 'open']
    """
    found = []
    for tag in _TAG.finditer(text):
        start, end = tag.span()
        spelled = tag[2]
        attributes = (end, end)
        kind = "odd"
        if text.startswith(spelled, start + 1) and (whole := _OPEN_END.match(text, end)):
            kind, attributes, end = "open", whole.span(1), whole.end()
        elif text.startswith("/" + spelled, start + 1) and (whole := _CLOSE_END.match(text, end)):
            kind, end = "close", whole.end()
        found.append(Tag(start, end, kind, spelled.lower(), spelled, attributes))
    return found


def attributes(text: str, span: Span) -> dict[str, Span] | None:
    """Where the values of a tag's attributes stand; None: one is given twice.

    >>> attributes(' id="1" n=2', (0, 11))
    {'id': (5, 6), 'n': (10, 11)}
    """
    found: dict[str, Span] = {}
    for one in _ATTRIBUTES.finditer(text, *span):
        name = one[1].lower()
        if name in found:
            return None
        found[name] = one.span(one.lastindex or 0)  # of the three ways to write it, the one that matched
    return found
