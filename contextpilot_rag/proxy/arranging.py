"""Groups of blocks in another order, and the sentence that says which order it was."""

from __future__ import annotations

from collections.abc import Sequence

from ..prompt.hints import ORDER_HINT
from ..prompt.wording import DEFAULT_WORDING, best_hint
from ..settings import Wording
from .finding.labels import is_positional
from .words import Group, Item, Labels, Span

_FROM_TOP = " (counted from the top)"


def arranged(text: str, group: Group, order: Sequence[int], labels: Labels = "keep") -> tuple[str, Group]:
    """A text with a group's items in another order. What stands between them and around them stays in its place.

    Args:
        text: that the group was found in.
        group: of it.
        order: for each place, which item stands there: its position in the group, from 0.
        labels: "renumber" leaves each label in its place, if labels are positional: they count in prompt order then.

    Returns:
        The text, and the group as it stands in it.

    Raises:
        ValueError: the order is none of these items.

    >>> from .finding import wrappers
    >>> text = "<docs><doc n='1'>One</doc>, <doc n='2'>Two</doc></docs>"
    >>> arranged(text, wrappers(text, whole=False)[0], [1, 0])[0]
    "<docs><doc n='2'>Two</doc>, <doc n='1'>One</doc></docs>"
    >>> arranged(text, wrappers(text, whole=False)[0], [1, 0], "renumber")[0]
    "<docs><doc n='1'>Two</doc>, <doc n='2'>One</doc></docs>"
    """
    _check(group, order)
    renumbered = _is_renumbered(group, labels)
    pieces = []
    items = []
    end = 0
    length = 0
    for place, position in enumerate(order):
        gap = text[end : group.items[place].span[0]]
        end = group.items[place].span[1]
        label = group.items[place].label if renumbered else None
        piece, item = _moved(text, group.items[position], length + len(gap), label)
        pieces += [gap, piece]
        items.append(item)
        length += len(gap) + len(piece)
    pieces.append(text[end:])
    new = "".join(pieces)
    return new, Group((group.span[0], group.span[1] + len(new) - len(text)), tuple(items), group.form)


def order_hint_of(
    group: Group,
    order: Sequence[int],
    labels: Labels = "keep",
    *,
    wording: Wording = DEFAULT_WORDING,
    text: str = "",
    question: str = "",
) -> str:
    """The sentence that tells the model the order in which the items came, which is that of relevance.

    Args:
        group: as it was found, before it was arranged.
        order: that it was arranged in.
        labels: as it was arranged with.
        wording: how it is told. Of JSON nothing is quoted: it would be the keys that are read first.
        text: that the group was found in.
        question: what is asked, as far as that stands there.

    Raises:
        ValueError: the order is none of these items.

    >>> one, two, three = (Item((n, n + 1), (n, n + 1)) for n in range(3))
    >>> order_hint_of(Group((0, 3), (one, two, three), "xml"), [2, 0, 1])
    'Order of relevance, best first: 2 > 3 > 1 (counted from the top)'
    >>> order_hint_of(Group((0, 3), (one, two, three), "xml"), [2, 0, 1], wording="title", text="ABC")
    'Most relevant: 2 (counted from the top), which begins: "A"'
    """
    _check(group, order)
    place_of = {position: place for place, position in enumerate(order)}
    renumbered = _is_renumbered(group, labels)
    names = [group.items[place_of[n] if renumbered else n].label for n in range(len(order))]
    found = [name for name in names if name is not None]
    after = ""
    if len(found) < len(order):
        found, after = [str(place_of[n] + 1) for n in range(len(order))], _FROM_TOP
    if wording == "order":
        return f"{ORDER_HINT} {' > '.join(found)}{after}"
    begin, end = group.items[0].body
    return best_hint(f"{found[0]}{after}", wording, "" if group.form == "json" else text[begin:end], question)


def with_hint(text: str, group: Group, hint: str) -> tuple[str, int]:
    r"""A text with a hint right behind a group, on a line of its own. All the rest stays as it is.

    Args:
        text: that the group stands in.
        group: of it.
        hint: a sentence.

    Returns:
        The text, and how many characters it has more: what stands behind the group moves by so many.

    >>> with_hint("<docs>...</docs>\nWhy?", Group((0, 16), (), "xml"), "Order.")
    ('<docs>...</docs>\n\nOrder.\n\n\nWhy?', 10)
    """
    end = group.span[1]
    line, _, below = text[end:].partition("\n")
    follows = bool(line.strip() or below.partition("\n")[0].strip())
    added = f"\n\n{hint}" + ("\n\n" if follows else "")
    return f"{text[:end]}{added}{text[end:]}", len(added)


def _check(group: Group, order: Sequence[int]) -> None:
    if sorted(order) != list(range(len(group.items))):
        raise ValueError(f"an order of {len(group.items)} items has each of their positions once, not {list(order)}")


def _is_renumbered(group: Group, labels: Labels) -> bool:
    return labels == "renumber" and is_positional(group)


def _moved(text: str, item: Item, start: int, label: str | None) -> tuple[str, Item]:
    """An item's text and its spans where it stands now, perhaps under another label."""
    begin, end = item.span
    by = start - begin
    if label is None or item.label_span is None or label == item.label:
        name = item.label_span
        at = None if name is None else _by(name, by)
        return text[begin:end], Item(_by(item.span, by), _by(item.body, by), item.label, at)
    name = item.label_span
    longer = len(label) - (name[1] - name[0])
    body = _by(item.body, by + longer if name[1] <= item.body[0] else by)
    span = start, end + by + longer
    new = f"{text[begin : name[0]]}{label}{text[name[1] : end]}"
    return new, Item(span, body, label, (name[0] + by, name[0] + by + len(label)))


def _by(span: Span, characters: int) -> Span:
    return span[0] + characters, span[1] + characters
