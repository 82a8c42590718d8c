r"""Escapes of JSON strings, such as ``\n`` and ``\u00e9``: where raw strings are cut, and which words need none."""

from __future__ import annotations

import re

_HEX = "[0-9a-fA-F]"
_ESCAPE = re.compile(rf"\\u[dD][89abAB]{_HEX}{{2}}\\u[dD][c-fC-F]{_HEX}{{2}}|\\u{_HEX}{{4}}|\\.", re.DOTALL)
_COMPLETE = re.compile(rf"(?:[^\\]+|\\u{_HEX}{{4}}|\\[^u])*", re.DOTALL)
_LATER_HALF = re.compile(rf"(?<=\\u[dD][89abAB]{_HEX}{{2}})\\u[dD][c-fC-F]{_HEX}{{2}}")

PLAIN = r'[^"\\\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]'
"""A character that stands for itself in a JSON string, and that a reader sees."""
_ESCAPE_OR_PLAIN = re.compile(rf"\\u{_HEX}{{4}}|\\.|(?P<plain>{PLAIN}+)", re.DOTALL)
_SOME_PLAIN = re.compile(rf"{PLAIN}*\w{PLAIN}*")
_WORD = re.compile(r"\w")
_LOOKED_AT = 4096


def between_escapes(pieces: list[str]) -> list[str]:
    r"""Pieces of a raw string, cut behind an escape wherever a cut went through one.

    >>> between_escapes([r"a\u0", r"0e9b"])
    ['a\\u00e9', 'b']
    """
    if len(pieces) < 2 or not any("\\" in piece for piece in pieces):
        return pieces
    text = "".join(pieces)
    found: list[str] = []
    begin = cut = 0
    for piece in pieces:
        cut += len(piece)
        if cut <= begin:
            continue
        end = _end(text, begin, cut)
        found.append(text[begin:end])
        begin = end
    return found


def _end(text: str, begin: int, cut: int) -> int:
    """The first place from a cut on that is in no escape; none begins before ``begin`` and ends behind it."""
    at = begin
    while True:
        complete = _COMPLETE.match(text, at, cut)
        at = cut if complete is None else complete.end()
        if at >= cut:
            break
        escape = _ESCAPE.match(text, at)
        at = len(text) if escape is None else escape.end()
        if at >= cut:
            break
    later_half = _LATER_HALF.match(text, at)
    return at if later_half is None else later_half.end()


def plain_words(raw: str, most: int) -> str:
    r"""Of a raw string, the first words that need no escape; empty: there is nothing that could be quoted.

    >>> plain_words(r"\n\u00a7 1. DEFINITIONS AND\nmore", 15)
    '1. DEFINITIONS'
    """
    raw = raw[:_LOOKED_AT]
    for found in _ESCAPE_OR_PLAIN.finditer(raw):
        if found["plain"] is not None and _WORD.search(found["plain"]):
            words = found["plain"]
            break
    else:  # such as a text of which every letter is an escape: their digits say something, too
        some = _SOME_PLAIN.search(raw)
        words = "" if some is None else some[0]
    words = words.strip()
    return words if len(words) <= most else words[:most].rsplit(" ", 1)[0]
