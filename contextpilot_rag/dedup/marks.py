r"""Location hints for parts of texts: what a repeated part is replaced by, and how it is found again.

A hint names a place, where in it the part stands, and quotes how it begins, so that a model finds it, too::

    [same text as in [3] at 1042: 2431 characters from "1. DEFINITIONS"]

A text may contain anything, also something that looks like a hint. Each such place gets one backslash more than it has;
`reveal` takes it away again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from io import SEEK_END, StringIO

_BEGIN = "[same text as in "
_QUOTED = 48  # characters of the part's first line

# A run of backslashes is gone over once, from where it begins.
_MARK = re.compile(r"(?<!\\)\\*" + re.escape(_BEGIN))
# A shielded mark ends with itself: what follows it may hold marks of its own.
_SHIELDED_OR_HINT = re.compile(
    rf"(?<!\\)\\+{re.escape(_BEGIN)}|{re.escape(_BEGIN)}"
    r"(?P<place>\[\d{1,12}\]|message \d{1,12}(?:, part \d{1,12})?) at (?P<start>\d{1,15}): (?P<length>\d{1,15}) "
    r'characters from "(?:[^"\\\n]|\\.)*"\]'
)
_WORD = re.compile(r"\w")


def hint(place: str, start: int, part: str) -> str:
    r"""The hint for a part of a text that stands elsewhere.

    Args:
        place: names the text: a block's label ("[3]"), or a message ("message 5", "message 5, part 2").
        start: where in that text the part begins, in characters.
        part: the text that is left out.

    >>> hint("[3]", 1042, "1. DEFINITIONS AND INTERPRETATION of this agreement\\nand more")
    '[same text as in [3] at 1042: 61 characters from "1. DEFINITIONS AND INTERPRETATION of this"]'
    """
    return f"{_BEGIN}{place} at {start}: {len(part)} characters from {quote(part)}]"


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


def shield(text: str) -> str:
    r"""A text in which nothing can be taken for a hint.

    >>> print(shield("[same text as in a mirror"))
    \[same text as in a mirror
    """
    return _MARK.sub(r"\\\g<0>", text) if _BEGIN in text else text


def reveal(text: str, part_at: Callable[[str, int, int, Callable[[int, int], str]], str]) -> str:
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
    done = StringIO(newline="")

    def of_this(start: int, length: int) -> str:
        done.seek(start)
        part = done.read(length)
        done.seek(0, SEEK_END)
        return part

    end = 0
    for found in _SHIELDED_OR_HINT.finditer(text):
        done.write(text[end : found.start()])
        if found["place"] is None:
            done.write(found[0][1:])
        else:
            done.write(part_at(found["place"], int(found["start"]), int(found["length"]), of_this))
        end = found.end()
    done.write(text[end:])
    return done.getvalue()
