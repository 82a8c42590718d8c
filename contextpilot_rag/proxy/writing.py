"""Writing a request: what is sent for each of its texts, once the order of its blocks is known.

A text depends on the texts before it and on that order alone, so history that is sent again becomes the same bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..settings import Wording
from .arranging import arranged, order_hint_of, with_hint
from .finding.scanning import strings
from .opening import Opening, Ordered
from .reading import Found
from .repeating import Repeating
from .words import Asked, Group, Labels, Path, Span, Text


@dataclass(frozen=True, slots=True)
class Written:
    """The texts of a request as they are to be sent.

    Args:
        texts: that are others than they were, by path.
        group: the opening group, as it stands in its text.
        labels: of its blocks in prompt order, as they were before they were numbered anew; empty: they were not.
    """

    texts: dict[Path, str]
    group: Group | None = None
    labels: tuple[str, ...] = ()


def written(
    asked: Asked, found: Found, ordered: Ordered | None, repeating: Repeating, *, labels: Labels, hint: Wording | None
) -> Written:
    """The texts of a request as they are to be sent.

    Args:
        asked: the request.
        found: what was recognised in it.
        ordered: the order of its opening group.
        repeating: nothing was given to it yet.
        labels: whether labels that count places stay with their blocks.
        hint: how a changed order is told to the model; None: it is not.
    """
    texts: dict[Path, str] = {}
    opening = None if ordered is None else found.opening
    group: Group | None = None
    names: tuple[str, ...] = ()
    first = None if opening is None else opening.text.path
    some = [text for message in asked.messages for text in message.texts]
    last = max((at for at, text in enumerate(some) if _may_repeat(text, found, first)), default=-1)
    for at, text in enumerate(some):
        groups = found.groups.get(text.path, [])
        taken = repeating if at <= last else None  # nobody looks for what stands behind all that may repeat something
        if opening is not None and ordered is not None and text.path == first:
            sent, group, names = _opening(opening, groups[1:], ordered.order, taken, labels, hint=hint)
        elif taken is not None:
            sent = taken.take(text, text.text, *_replaceable(text, text.text, groups))
        else:
            continue
        if sent != text.text:
            texts[text.path] = sent
    return Written(texts, group, names)


def _opening(
    opening: Opening,
    later: Sequence[Group],
    order: tuple[int, ...],
    repeating: Repeating | None,
    labels: Labels,
    *,
    hint: Wording | None,
) -> tuple[str, Group, tuple[str, ...]]:
    """The text with the opening group; nothing is left out of that group, since others share it as it is."""
    text = opening.text
    sent, group = arranged(text.text, opening.group, order, labels)
    moved = order != tuple(range(len(order)))
    names: tuple[str, ...] = ()
    if moved and labels == "renumber":
        before = [item.label for item in opening.group.items]
        if [item.label for item in group.items] == before:  # they were numbered anew
            names = tuple(before[item] or "" for item in order)
    told = None
    if moved and hint is not None:
        told = order_hint_of(opening.group, order, labels, wording=hint, text=text.text, question=_question(opening))
    if text.role == "tool":  # the group is all of it
        if repeating is not None:
            sent = repeating.take(text, sent, *_replaceable(text, sent, [group]))
        return (sent if told is None else f"{sent}\n\n{told}"), group, names
    if repeating is None:
        return (sent if told is None else with_hint(sent, group, told)[0]), group, names
    ahead = len(sent) - len(text.text)
    if told is not None:
        sent, longer = with_hint(sent, group, told)
        ahead += longer
    if later:
        spans = [(begin + ahead, end + ahead) for one in later for begin, end in (item.body for item in one.items)]
        return repeating.take(text, sent, spans), group, names
    return repeating.take(text, sent, [item.body for item in group.items], repeats=False), group, names


def _question(opening: Opening) -> str:
    """What is asked beside the opening group: what a user says in the same text. What comes later may change."""
    if opening.text.role != "user":
        return ""
    begin, end = opening.group.span
    return f"{opening.text.text[:begin]} {opening.text.text[end:]}"


def _may_repeat(text: Text, found: Found, first: Path | None) -> bool:
    """Whether anything of a text may be replaced; nothing is in the opening group, but in a tool's result."""
    if text.role == "tool":
        return found.results
    return len(found.groups.get(text.path, ())) > (1 if text.path == first else 0)


def _replaceable(text: Text, sent: str, groups: Sequence[Group]) -> tuple[Sequence[Span] | None, bool]:
    """Where parts of a text may be replaced, and whether that is within JSON. None: everywhere, or nowhere if a user's.

    JSON stays JSON: only the insides of its strings are.
    """
    if text.role == "tool":
        inside = strings(sent)
        if inside:
            return inside, True
        return ([item.body for item in groups[0].items] if groups else None), False
    return ([item.body for group in groups for item in group.items] if groups else None), False
