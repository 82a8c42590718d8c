"""Texts as units that repeats are found by: lines, and long lines cut where their content says so.

A cut depends on what stands near it alone, so the same passage is cut the same way wherever it stands (content-defined
chunking), but for the first unit or two.
"""

from __future__ import annotations

import re
import sys
import unicodedata
from bisect import bisect_left
from itertools import accumulate, pairwise

from .composed import composed as composed_form
from .composed import is_composed

_LONG = 480  # characters of a line that is cut
_NEVER = 2 * sys.maxsize
# Behind a sentence or clause, else behind a blank, else behind a character that comes often enough, all of them only
# after every other letter or digit: so two texts that meet go on alike, even where all sentences are about as long.
# Else anywhere but in a line's end.
_HALF = r"(?<=[02468aegikmoqsuwyACEGIKMOQSUWY\x80-\U0010ffff].)"
_sentence = re.compile(rf"[.;!?,:)\]}}>]{_HALF} ", re.DOTALL).search
_clause = re.compile(rf"[.;!?,:)\]}}> ]{_HALF}", re.DOTALL).search
_often = re.compile(rf"[05AEMae\u3001\u3002\uff0c]{_HALF}", re.DOTALL).search


def units(text: str, *, composed: bool = True) -> list[str]:
    r"""Consecutive pieces of a text; together they are the text.

    Args:
        text: to be cut.
        composed: False: it is cut where its NFC would be.

    >>> units("one\ntwo\n")
    ['one\n', 'two\n']
    """
    lines = text.splitlines(keepends=True)
    if not composed:
        return [piece for line in lines for piece in _cut_decomposed(line)]
    if len(text) <= _LONG:
        return lines
    long = [number for number, length in enumerate(map(len, lines)) if length > _LONG]
    if not long:
        return lines
    found: list[str] = []
    done = 0
    for number in long:
        found += lines[done:number]
        found += _cut(lines[number])
        done = number + 1
    found += lines[done:]
    return found


def _cut(line: str) -> list[str]:
    """A line in pieces. Where it is cut does not depend on how it ends: blanks and its end stay with the last."""
    body = len(line.rstrip(" \t\r\n"))
    if len(line) - body > _LONG:
        body = len(line)
    if body <= _LONG:
        return [line]
    cuts = _cuts(line, body)
    cuts[-1] = len(line)
    return [line[begin:end] for begin, end in pairwise(cuts)]


def _cuts(line: str, end: int) -> list[int]:
    """Where to cut the line's first so many characters: 0, and where each piece ends.

    The next place of each kind is looked for once, and kept until a piece has gone past it.
    """
    cuts = [0]
    begin = sentence = clause = often = 0
    while begin < end:
        until = begin + _LONG
        if sentence < begin + 42:
            found = _sentence(line, begin + 40, end)
            sentence = _NEVER if found is None else found.end()
        if sentence <= until:
            begin = sentence
            cuts.append(begin)
            continue
        if clause < begin + 41:
            found = _clause(line, begin + 40, end)
            clause = _NEVER if found is None else found.end()
        if clause < until:
            begin = clause
            cuts.append(begin)
            continue
        if often < begin + 49:
            found = _often(line, begin + 48, end)
            often = _NEVER if found is None else found.end()
        begin = often if often <= until else min(until, end)
        if begin == until and begin < end and line[begin - 1] == "\r" and line[begin] == "\n":
            begin += 1
        cuts.append(begin)
    return cuts


def _cut_decomposed(line: str) -> list[str]:
    """A line cut where its NFC is: behind as many characters of its full decomposition."""
    if is_composed(line):
        return _cut(line)
    pieces = _cut(composed_form(line))
    if len(pieces) == 1:
        return [line]
    places = list(accumulate((len(unicodedata.normalize("NFD", letter)) for letter in line), initial=0))
    ends = accumulate(len(unicodedata.normalize("NFD", piece)) for piece in pieces)
    cuts = [0, *(bisect_left(places, end) for end in ends)]
    return [line[begin:end] for begin, end in pairwise(cuts) if end > begin]


def starts(pieces: list[str]) -> list[int]:
    """Where each piece begins, and where the last one ends."""
    return list(accumulate(map(len, pieces), initial=0))


def normal(text: str) -> str:
    r"""The one normalisation under which texts count as the same: Unicode NFC, line ends, blanks at the ends of lines.

    Letters with more than 30 marks stay as they are; see `composed`.

    >>> normal("a \r\nb") == normal("a\nb")
    True
    """
    return normal_lines(composed_form(text))


def normal_lines(text: str) -> str:
    r"""As `normal`, but for the Unicode form, which stays as it is.

    >>> normal_lines("a \r\nb ")
    'a\nb'
    """
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    if " \n" in text or ("\t" in text and "\t\n" in text):  # one character is found at once
        text = "\n".join([line.rstrip(" \t") for line in text.split("\n")])
    elif text[-1:] in _BLANKS:
        text = text.rstrip(" \t")
    return text


_BLANKS = (" ", "\t")
