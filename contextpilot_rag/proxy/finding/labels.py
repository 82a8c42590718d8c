"""What the items of a group are called."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..words import Group, Item, Span

LABELS = (
    "index",
    "idx",
    "number",
    "num",
    "no",
    "n",
    "id",
    "doc_id",
    "document_id",
    "source_id",
    "passage_id",
    "chunk_id",
)
"""Attributes and members that name an item; the first one counts that all items have."""

_LONGEST = 40


def labelled(text: str, items: Sequence[Item], values: Sequence[Mapping[str, Span] | None]) -> tuple[Item, ...]:
    """The items with their labels, if each has one of its own.

    Args:
        text: that they stand in.
        items: without labels.
        values: where the values of each one's attributes stand; None: that is ambiguous.
    """
    for name in LABELS:
        spans = [of_one[name] for of_one in values if of_one is not None and name in of_one]
        names = [text[start:end] for start, end in spans]
        if len(spans) == len(items) == len(set(names)) and all(map(_is_label, names)):
            return tuple(
                Item(item.span, item.body, label, span) for item, label, span in zip(items, names, spans, strict=True)
            )
    return tuple(items)


def is_positional(group: Group) -> bool:
    """Whether a group's labels say where its items stand: 1, 2, 3, ... or 0, 1, 2, ...

    What a JSON text calls an item is data, whatever it is.

    >>> is_positional(Group((0, 9), (Item((1, 2), (1, 2), "0"), Item((3, 4), (3, 4), "1")), "xml"))
    True
    """
    labels = [item.label for item in group.items]
    return group.form != "json" and any(labels == [str(first + n) for n in range(len(labels))] for first in (0, 1))


def _is_label(name: str) -> bool:
    plain = 0 < len(name) <= _LONGEST and name.isprintable() and name == name.strip()
    return plain and "<" not in name and ">" not in name
