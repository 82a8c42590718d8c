"""Where the blocks of a prompt stand among its tokens.

Tokens do not end where texts end: a tokenizer may put the last character of a block and the first of what follows into
one. So each part of the prompt is tokenised by itself, which can be remembered, and then found again in the whole
prompt's ids, one part behind the other; where the two differ, at the seams, only what is equal counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from ..dedup.marks import shield
from ..prompt.escape import escape
from ..prompt.render import BETWEEN, CLOSE, OPEN
from ..types import Alignment
from .chain import chain, content
from .covering import Covering

if TYPE_CHECKING:
    from .tokenizing import Messages, TokenIds, Tools

_SEAM = 4  # tokens at either end of a part that may differ from what it is by itself
_SURE = 8  # equal tokens before a place is looked at closely
_MOST_PLACES = 64  # where the first part may stand; of more nobody knows which is meant
_CLOSING = 4  # tokens at a block's end that the end of the documents may change: of 3 characters, and one that touches
_ALIKE = 4  # blocks of a prompt that begin alike before this is taken as their manner, and counted
_MOST_ALIKE = 32  # tokens of such a beginning
_LEAD = 96  # characters before the first block by which its place is found in a prompt that others made

_LABEL = re.compile(r"(\[[0-9]{1,9}\]) ")
_NEXT = re.compile(rf"{BETWEEN}(?=\[[0-9]{{1,9}}\] )")


@dataclass(frozen=True, slots=True)
class TextPiece:
    """A part of a prompt's text.

    Args:
        before: what stands between the part before and this one.
        text: the part. Its last token is not counted: what follows may change it.
        common: ``before`` is the same whichever block follows, and its first character is also the last of the part
            before.
    """

    before: str
    text: str
    common: bool = False


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a prompt as token ids, by itself.

    Args:
        before: of what stands between the part before and this one.
        ids: of the part. The last one is not counted: what follows may change it.
        common: ``before`` is the same whichever block follows.
    """

    before: Sequence[int]
    ids: Sequence[int]
    common: bool = False


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a part stands among the ids.

    Args:
        end: of the tokens that are equal.
        whole: where it would end if it were all the same.
        same: whether it is, up to its end.
    """

    end: int
    whole: int
    same: bool


class _Ends(NamedTuple):
    """Where parts end, as in a `Covering`; and how many of them, and of the labels, were found for sure."""

    ends: tuple[int, ...]
    lasts: tuple[int, ...]
    sure: int


def covering_of(
    messages: Messages,
    alignment: Alignment,
    tokens: TokenIds,
    block_size: int,
    salt: str | None = None,
    tools: Tools | None = None,
) -> Covering | None:
    """Where the blocks of a prompt stand among the engine's KV blocks; None if they cannot be told apart for sure.

    Asks for token ids, so that it may wait for an engine.

    Args:
        messages: as they were sent.
        alignment: of the blocks; in a prompt that we did not render they are only found with an `AlignedPrompt`.
        tokens: gives token ids as the engine does.
        block_size: tokens of a KV block.
        salt: the request's cache salt.
        tools: of the request.

    Raises:
        EngineError: there were no token ids to be had.
    """
    texts = pieces_of(messages, alignment)
    if texts is None:
        return None
    ids = tokens.of_messages(messages, tools)
    return covering(ids, _tokenised(texts, tokens), block_size, salt)


def pieces_of(messages: Messages, alignment: Alignment) -> list[TextPiece] | None:
    r"""The parts of a prompt's text: what stands before the first block, and each block. None if they are not there.

    In a message of ours the labels say where blocks begin. In others the blocks' texts are looked for, one behind the
    other in one message, as they are or escaped, with or without blanks around them.

    Args:
        messages: as they were sent; of several that fit, the last counts.
        alignment: how many blocks there are; an `AlignedPrompt` has their texts, too.

    >>> from contextpilot_rag import ContextPilot
    >>> prompt = ContextPilot().align(["Slices.", "Sets."], "Why?")
    >>> [(piece.before, piece.text) for piece in pieces_of(prompt.messages(), prompt)]
    [('', '<documents>\n['), ('[1]', ' Slices.\n\n['), ('[2]', ' Sets.\n\n[')]
    """
    count = len(alignment.order)
    blocks = getattr(alignment, "blocks", None)
    if not count:
        return None
    for message in reversed(messages):
        for text in reversed(list(_texts(message))):
            pieces = _ours(text, count)
            if pieces is None and blocks is not None:
                pieces = _others(text, [block.text for block in blocks])
            if pieces is not None:
                return pieces
    return None


def covering(ids: Sequence[int], pieces: Sequence[Piece], block_size: int, salt: str | None = None) -> Covering | None:
    """Where blocks stand among KV blocks; None if the parts are not found in the ids, or in several places.

    Args:
        ids: of the whole prompt.
        pieces: what stands before the first block, and each block, each as it is by itself.
        block_size: tokens of a KV block.
        salt: the prompt's cache salt.

    >>> pieces = [Piece((), (1, 2, 91)), Piece((1, 92), (5, 5, 6, 6, 90, 91)), Piece((2, 92), (7, 7, 8, 8, 90, 91))]
    >>> ids = [0, 1, 2, 91, 1, 92, 5, 5, 6, 6, 90, 91, 2, 92, 7, 7, 8, 8, 99]
    >>> covering(ids, pieces, 4).ends
    (3, 11, 18)
    """
    own = list(ids)
    parts = [list(piece.ids) for piece in pieces]
    first = 0 if len(parts[0]) > 2 else 1
    found: dict[tuple[int, ...], _Ends] = {}
    for start in _starts(own, parts[first]):
        ends = _ends(own, start, pieces[first:])
        if ends is not None:
            # Without anything before it, the first block begins where it begins; without it, nothing of this is there.
            before = max(0, start - 1)
            if first:
                ends = ends._replace(ends=(before, *ends.ends), lasts=(before, *ends.lasts))
            else:
                ends = ends._replace(lasts=(min(before, ends.lasts[0]), *ends.lasts[1:]))
            found[ends.ends] = max(ends, found.get(ends.ends, ends), key=lambda one: (one.sure, -one.lasts[0]))
    # Parts too short to be sure of fit in many places; where most of them are found is where they are.
    most = max((one.sure for one in found.values()), default=0)
    best = [one for one in found.values() if one.sure == most]
    if len(best) != 1:
        return None
    contents = (content(own[start : start + block_size]) for start in range(0, len(own) - block_size + 1, block_size))
    keys = chain(own, block_size, salt)
    return Covering(keys, tuple(contents), best[0].ends, len(own), block_size, best[0].lasts)


def _texts(message: Mapping[str, Any]) -> Iterator[str]:
    inside = message.get("content")
    if isinstance(inside, str):
        yield inside
    elif isinstance(inside, Sequence):
        for part in inside:
            if isinstance(part, Mapping) and isinstance(part.get("text"), str):
                yield part["text"]


def _ours(text: str, count: int) -> list[TextPiece] | None:
    """The parts of a message that we rendered. What follows the last block is its end, or a block given once more."""
    end = text.find(CLOSE, len(OPEN) - 1) if text.startswith(OPEN) else -1
    if end < 0:
        return None
    # Block text cannot forge a label at the start of a line (`prompt.escape`).
    rendered = _NEXT.split(text[len(OPEN) : end])
    if len(rendered) < count:
        return None
    pieces = [TextPiece("", OPEN + "[")]
    for number, one in enumerate(rendered[:count], start=1):
        labelled = _LABEL.match(one)
        if labelled is None:
            return None
        # The last part is given the other end than it has here, so that nothing counts that depends on which it is.
        after = CLOSE[:2] if number == count < len(rendered) else BETWEEN + "["
        pieces.append(TextPiece(labelled[1], one[labelled.end() - 1 :] + after, common=True))
    return pieces


def _others(text: str, blocks: Iterable[str]) -> list[TextPiece] | None:
    """The parts of a message that somebody else made of the blocks."""
    pieces: list[TextPiece] = []
    at = 0
    for block in blocks:
        start, form = _first(text, (block, escape(shield(block))), at)
        if start < 0 and block.strip():  # some frameworks drop the blanks around a text
            start, form = _first(text, (block.strip(), escape(shield(block)).strip()), at)
        if start < 0:
            return None
        if not pieces:
            pieces.append(TextPiece("", text[max(0, start - _LEAD) : start]))
            at = start
        pieces.append(TextPiece(text[at:start], form))
        at = start + len(form)
    return pieces


def _first(text: str, forms: Iterable[str], at: int) -> tuple[int, str]:
    """Which of several forms comes first from a place on, and where; -1: none does."""
    places = [(text.find(form, at), form) for form in forms]
    return min(((place, form) for place, form in places if place >= 0), default=(-1, ""))


def _tokenised(pieces: Sequence[TextPiece], tokens: TokenIds) -> list[Piece]:
    made: list[Piece] = []
    for piece in pieces:
        before = tokens.of_text(piece.before) if piece.before else []
        if piece.common:
            # Its first character is counted with the part before; some tokenizers put a blank of their own before it.
            shared = made[0].ids[-1]
            before = before[before.index(shared) + 1 if shared in before else 1 :]
        made.append(Piece(before, tokens.of_text(piece.text) if piece.text else (), piece.common))
    return made


def _ends(ids: list[int], start: int, pieces: Sequence[Piece]) -> _Ends | None:
    """How many tokens are the same whatever follows each part, if the first begins about there."""
    ends: list[int] = []
    lasts: list[int] = []
    sure_of = 0
    labelled: list[int] = []  # those parts behind which a label follows that is common
    at, low, slack = start, 0, 0
    for number, piece in enumerate(pieces):
        part = list(piece.ids)
        if number:
            at += len(piece.before)
        place = _match(ids, at, low, part, slack)
        if place is None:
            if len(part) > 2 * _SEAM or number == 0:
                return None
            # Too short to be known for sure. It has no end of its own then, and the next is looked for further around.
            at += len(part)
            slack += len(part)
            lasts.append(low)
        else:
            at, slack = place.whole, 0
            sure_of += 1
            follows = pieces[number + 1] if number + 1 < len(pieces) else None
            # Of the last part it shows where it stops being what it would be if another followed.
            closing = _CLOSING if piece.common and follows is not None else 0
            lasts.append(max(low, min(place.end, place.whole - closing)))
            low = place.end
            if place.same and follows is not None and follows.common and follows.before:
                # The next label is the same whichever block it is for, but for the token that touches the block.
                sure = list(follows.before[:-1])
                if ids[place.whole : place.whole + len(sure)] == sure:
                    low = place.whole + len(sure)
                    labelled.append(number)
                    sure_of += 1
        ends.append(low)
    alike = _alike(ids, ends, labelled)
    for number in labelled:
        ends[number] += alike
    return _Ends(tuple(ends), tuple(lasts), sure_of)


def _alike(ids: list[int], ends: list[int], labelled: list[int]) -> int:
    """How many tokens all blocks begin with, from the last of their label on, such as "] Source:"; 0 for few blocks.

    Which tokens follow a block depends on the next one; what all of these begin with, the next one will, too.
    """
    if len(labelled) < _ALIKE:
        return 0
    beginnings = [ids[ends[number] : min(ends[number] + _MOST_ALIKE, ends[number + 1])] for number in labelled]
    first, last = min(beginnings), max(beginnings)  # what these two have in common, all have
    return _same(first, 0, last, 0)


def _match(ids: list[int], at: int, low: int, part: list[int], slack: int) -> _Place | None:
    """Where a part stands, about at a place but not before ``low``: the nearest where all but its seams is equal."""
    seam, sure = _seam(part)
    if not part:
        return None
    reach = _SEAM + slack
    ways = sorted(
        ((skipped, shift) for skipped in range(seam + 1) for shift in range(-reach, reach + 1)),
        key=lambda way: (way[0] + abs(way[1]), way),
    )
    for skipped, shift in ways:
        begin = at + skipped + shift
        if begin < low or ids[begin : begin + sure] != part[skipped : skipped + sure]:
            continue
        equal = sure + _same(ids, begin + sure, part, skipped + sure)
        missing = len(part) - skipped - equal
        if missing <= _SEAM and (missing + skipped <= seam or len(part) > 2 * _SEAM):
            whole = begin + len(part) - skipped
            return _Place(min(begin + equal, whole - 1), whole, missing == 0)
    return None


def _starts(ids: list[int], part: list[int]) -> list[int]:
    """Where a part may begin, but for its seams."""
    seam, sure = _seam(part)
    starts: set[int] = set()
    for skipped in range(seam + 1 if part else 0):
        wanted = part[skipped : skipped + sure]
        at = -1
        while True:
            try:
                at = ids.index(wanted[0], at + 1)
            except ValueError:
                break
            if ids[at : at + sure] == wanted:
                starts.add(at - skipped)
                if len(starts) > _MOST_PLACES:
                    return []
    return sorted(starts)


def _seam(part: list[int]) -> tuple[int, int]:
    """How many tokens of a part's beginning may differ, and how many equal ones make a place worth a closer look."""
    seam = min(_SEAM, len(part) // 2)
    return seam, min(_SURE, len(part) - seam)


def _same(one: list[int], at: int, other: list[int], start: int) -> int:
    """How many tokens are equal from two places on."""
    most = min(len(one) - at, len(other) - start)
    if one[at : at + most] == other[start : start + most]:
        return max(0, most)
    return next(count for count in range(most) if one[at + count] != other[start + count])
