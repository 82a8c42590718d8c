"""Unicode's form NFC, in time that grows with the text alone, and never long at a stretch.

Marks that stand on one letter are put into an order of their own by NFC, and Python's takes a time that grows with the
square of how many they are; nor do other threads run meanwhile. No writing piles up more than a few. So where more
marks than in Unicode's stream-safe format (UAX #15) stand on one letter, they stay as they are.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

_MOST_MARKS = 30  # on one letter, taken apart as far as they can be
_PIECE = 16 * 2**10  # characters; one has no end before the next letter or sign that is known to begin something
# Letters and signs that are no marks, are not taken apart into such, and never join with what stands before: where one
# stands, a text can be cut. Not all of them, but those that texts consist of. What is no letter here may be one.
_LETTERS = (
    "\\x00-\u02ff\u03a3-\u0482\u048a-\u052f\u0531-\u0556\u0559-\u058a\u05d0-\u05ea\u061b-\u064a\u0671-\u06d5\u0712-\u072f"
    "\u0904-\u0939\u0964-\u0980\u0993-\u09a8\u0a13-\u0a28\u0a93-\u0aa8\u0b13-\u0b28\u0c12-\u0c28\u0c92-\u0ca8\u0d12-\u0d3a"
    "\u0d9a-\u0db1\u0e01-\u0e30\u0e40-\u0e46\u0e8c-\u0ea3\u0f00-\u0f17\u0f49-\u0f6c\u1000-\u102a\u10d0-\u115f\u1200-\u1248"
    "\u1260-\u1288\u13a0-\u13f5\u1400-\u169c\u1780-\u17b3\u1820-\u1878\u1d00-\u1dbf\u1e00-\u1f15\u1f20-\u1f45\u1f5f-\u1f7d"
    "\u1f80-\u1fb4\u2000-\u2064\u20a0-\u20c0\u2100-\u218b\u2190-\u2426\u2460-\u2b73\u3000-\u3029\u3041-\u3096\u309b-\u30ff"
    "\u3105-\u312f\u3131-\u318e\u3220-\ua48c\uac00-\ud7a3\uf900-\ufa6d\ufb46-\ufbc2\ufe30-\ufe52\ufe76-\ufefc\uff01-\uffbe"
    "\U0001d400-\U0001d7ff\U0001f000-\U0001faff\U00020000-\U0002fa1d"
)
_LETTER, _MAY_BE_MARK = re.compile(f"[{_LETTERS}]"), re.compile(f"[^{_LETTERS}]")
# A letter and what may be marks; the letter is taken apart into three marks at most, and each of the others into two.
_PILE = re.compile(f"[{_LETTERS}]?[^{_LETTERS}]{{{(_MOST_MARKS - 1) // 2},}}")


def composed(text: str) -> str:
    r"""A text in NFC, but for letters with more marks than there are in any writing.

    >>> composed("e\u0301") == "\u00e9"
    True
    """
    if text.isascii():
        return text
    return "".join([piece if unicodedata.is_normalized("NFC", piece) else _composed(piece) for piece in _pieces(text)])


def is_composed(text: str) -> bool:
    """Whether a text is in Unicode's form NFC."""
    return text.isascii() or all(unicodedata.is_normalized("NFC", piece) for piece in _pieces(text))


def is_piled(text: str) -> bool:
    r"""Whether so many marks stand on one letter of a text that they stay as they are. The same of all its forms.

    >>> is_piled("e" + 30 * "\u0316"), is_piled("e" + 31 * "\u0316")
    (False, True)
    """
    if text.isascii() or _MAY_BE_MARK.search(text) is None:  # as in most writing: found out much sooner
        return False
    return any(_is_pile(found[0]) for found in _PILE.finditer(text))


def _pieces(text: str) -> Iterator[str]:
    """A text cut where letters begin, so that other threads run in between: the NFC of both sides is that of all."""
    begin = 0
    while len(text) - begin > _PIECE and (letter := _LETTER.search(text, begin + _PIECE)):
        yield text[begin : letter.start()]
        begin = letter.start()
    yield text[begin:] if begin else text


def _composed(piece: str) -> str:
    found = []
    done = 0
    for pile in _PILE.finditer(piece):
        if _is_pile(pile[0]):
            found += [unicodedata.normalize("NFC", piece[done : pile.start()]), pile[0]]
            done = pile.end()
    return "".join([*found, unicodedata.normalize("NFC", piece[done:])])


def _is_pile(some: str) -> bool:
    """Whether anywhere in it so many marks follow one another."""
    marks = 0
    for letter in some:
        for part in unicodedata.normalize("NFD", letter):
            marks = marks + 1 if unicodedata.combining(part) else 0
            if marks > _MOST_MARKS:
                return True
    return False
