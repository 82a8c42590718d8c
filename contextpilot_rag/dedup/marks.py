r"""Location hints for parts of texts: what a repeated part is replaced by, and how it is found again.

A hint names a place, where in it the part stands, and quotes how it begins, so that a model finds it, too::

    [same text as in [3] at 1042: 2431 characters from "1. DEFINITIONS"]

Inside a JSON string its quotation marks are escaped, and it quotes only what needs no escape.

A text may contain anything, also something that looks like a hint. Each such place gets one backslash more than it has;
`reveal` takes it away again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from io import SEEK_END, StringIO

from ..errors import BrokenHint
from .escapes import PLAIN, plain_words

_BEGIN = "[same text as in "
_QUOTED = 48  # characters of the part's first line

# A run of backslashes is gone over once, from where it begins.
_MARK = re.compile(r"(?<!\\)\\*" + re.escape(_BEGIN))
# A shielded mark ends with itself: what follows it may hold marks of its own.
_SHIELDED_OR_HINT = re.compile(
    rf"(?<!\\)\\+{re.escape(_BEGIN)}|{re.escape(_BEGIN)}"
    r"(?P<place>\[\d{1,12}\]|message \d{1,12}(?:, part \d{1,12})?) at (?P<start>\d{1,15}): (?P<length>\d{1,15}) "
    rf'characters from (?P<quote>"(?:[^"\\\n]|\\.)*"|\\"{PLAIN}+\\")\]'
)
_WORD = re.compile(r"\w")

PartAt = Callable[[str, int, int, Callable[[int, int], str]], str]
"""Gives a part of a text: from the name of its place, its start and length, and what gives parts of this very text."""


def hint(place: str, start: int, part: str, *, quoted: bool = False) -> str:
    r"""The hint for a part of a text that stands elsewhere.

    Args:
        place: names the text: a block's label ("[3]"), or a message ("message 5", "message 5, part 2").
        start: where in that text the part begins, in characters.
        part: the text that is left out.
        quoted: it is to stand inside a JSON string, as the part did.

    Returns:
        The hint; empty: nothing of the part can be quoted.

    >>> hint("[3]", 1042, "1. DEFINITIONS AND INTERPRETATION of this agreement\\nand more")
    '[same text as in [3] at 1042: 61 characters from "1. DEFINITIONS AND INTERPRETATION of this"]'
    """
    words = _quote_in_json(part) if quoted else quote(part)
    return f"{_BEGIN}{place} at {start}: {len(part)} characters from {words}]" if words else ""


def quote(part: str) -> str:
    """How a part begins: of its first line that says something, as many whole words as fit, in quotes."""
    found = _WORD.search(part, 0, 4096)
    if found is None:
        line = part[:_QUOTED].strip()
    else:
        begin = 1 + max(part.rfind("\n", 0, found.start()), part.rfind("\r", 0, found.start()))
        line = re.split("[\n\r]", part[begin:4096], maxsplit=1)[0].strip()
    if len(line) > _QUOTED:
        line = line[:_QUOTED].rsplit(" ", 1)[0]
    quoted = json.dumps(line, ensure_ascii=False)
    return re.sub(r"[\x7f-\x9f\u2028\u2029\ud800-\udfff]", lambda odd: f"\\u{ord(odd[0]):04x}", quoted)


def _quote_in_json(part: str) -> str:
    words = plain_words(part, _QUOTED)
    return f'\\"{words}\\"' if words else ""


def is_marked(text: str) -> bool:
    """Whether a text has anything that begins like a hint."""
    return _BEGIN[0] in text and _BEGIN in text  # one character is found at once


def revealed_as_is(text: str) -> bool:
    r"""Whether `reveal` leaves a text as it is: what begins like a hint in it is none, and is not shielded.

    >>> revealed_as_is("[same text as in a mirror"), revealed_as_is(r"\[same text as in a mirror")
    (True, False)
    """
    return _BEGIN not in text or _SHIELDED_OR_HINT.search(text) is None


def shield(text: str) -> str:
    r"""A text in which nothing can be taken for a hint.

    >>> print(shield("[same text as in a mirror"))
    \[same text as in a mirror
    """
    return _MARK.sub(r"\\\g<0>", text) if _BEGIN in text else text


def reveal(text: str, part_at: PartAt) -> str:
    """A text with its hints replaced, and without shields.

    Args:
        text: as it stands in a prompt.
        part_at: gives a part: from the name of its place, its start and length in characters, and a function that gives
            parts of this very text, as far as it is revealed.

    >>> reveal(shield("[same text as in ") + "b", lambda *_: "")
    '[same text as in b'
    """
    if _BEGIN not in text:
        return text
    done = _Done()
    end = 0
    for found in _SHIELDED_OR_HINT.finditer(text):
        done.write(text[end : found.start()])
        if found["place"] is None:
            done.write(found[0][1:])
        else:
            done.write(part_at(found["place"], int(found["start"]), int(found["length"]), done.part))
        end = found.end()
    done.write(text[end:])
    return done.getvalue()


def masked(text: str) -> str:
    """A text of the same length, in which each hint is one long word without any sign in it.

    >>> masked('See [same text as in [1] at 0: 5 characters from "x"].')
    'See xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx.'
    """
    if _BEGIN not in text:
        return text
    return _SHIELDED_OR_HINT.sub(lambda found: found[0] if found["place"] is None else "x" * len(found[0]), text)


def reveal_within(text: str, spans: Sequence[tuple[int, int]], part_at: PartAt) -> str:
    """As `reveal`, but only inside some spans, of a text in which nothing is shielded, and with a closer look.

    Args:
        text: as it stands in a prompt.
        spans: in order and apart.
        part_at: as for `reveal`.

    Raises:
        BrokenHint: a hint does not quote what it points to.
    """
    if _BEGIN not in text:
        return text
    done = _Done()
    end = next_span = 0
    for found in _SHIELDED_OR_HINT.finditer(text):
        while next_span < len(spans) and spans[next_span][1] < found.end():
            next_span += 1
        if found["place"] is None or next_span == len(spans) or found.start() < spans[next_span][0]:
            continue
        done.write(text[end : found.start()])
        part = part_at(found["place"], int(found["start"]), int(found["length"]), done.part)
        if found["quote"] not in (quote(part), _quote_in_json(part)):
            raise BrokenHint(f"a hint quotes {found['quote']}, and points to other words")
        done.write(part)
        end = found.end()
    done.write(text[end:])
    return done.getvalue()


class _Done:
    """A text that is written and read in turn."""

    def __init__(self) -> None:
        self._text = StringIO(newline="")
        self.write, self.getvalue = self._text.write, self._text.getvalue

    def part(self, start: int, length: int) -> str:
        """A part of what is written."""
        self._text.seek(start)
        part = self._text.read(length)
        self._text.seek(0, SEEK_END)
        return part
