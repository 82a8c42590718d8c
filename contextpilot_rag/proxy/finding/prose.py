"""Where a text is prose, in which blocks may be found, and where it is code or a file, in which nothing is."""

from __future__ import annotations

import re

from ...dedup.marks import is_marked
from ...prompt.escape import forges

_FENCE = re.compile(r"`{3,}|~{3,}")
_FILE = re.compile(r"<(?:\?xml\b|\?php\b|!doctype\b|html[\s>])", re.IGNORECASE | re.ASCII)
_DIFF = re.compile(r"diff --git |@@ -\d")
_REST = re.compile(r"[ \t\r]*(?:\n|\Z)")
_BEFORE = 200  # characters at the start of a line that are looked at, so that long lines cost nothing


class Prose:
    """Goes through a text and says what is prose in it.

    Code between fences is none, and nothing is from where a file begins: XML, HTML, PHP, a diff.

    Args:
        text: all of it.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._marks = sorted([*_fences(text), *_files(text)], reverse=True)
        self._fence = ""
        self._over = False

    def at(self, place: int) -> bool:
        """Whether a place is in prose. Asked of places in order."""
        while not self._over and self._marks and self._marks[-1][0] < place:
            self._pass(*self._marks.pop())
        return not self._over and not self._fence

    def skip(self, place: int) -> None:
        """What stands before a place is known to be something else."""
        while self._marks and self._marks[-1][0] < place:
            self._marks.pop()

    def _pass(self, start: int, fence: str) -> None:
        if not self._fence:
            self._fence, self._over = fence, not fence
        elif fence.startswith(self._fence) and ends_line(self._text, start + len(fence)):
            self._fence = ""


def begins_line(text: str, place: int, marks: str = " \t") -> bool:
    """Whether nothing but blanks stands before a place on its line."""
    begin = max(0, place - _BEFORE)
    before = text[begin:place].rstrip(marks)
    return before.endswith("\n") or (not before and begin == 0)


def ends_line(text: str, place: int) -> bool:
    """Whether nothing but blanks stands behind a place on its line."""
    return _REST.match(text, place) is not None


def is_ours(text: str) -> bool:
    """Whether something in a text can be taken for a hint: what is added to it could not be told from that.

    >>> is_ours("[same text as in a mirror")
    True
    """
    return is_marked(text) or forges(text)


def _fences(text: str) -> list[tuple[int, str]]:
    if not ("`" in text and "```" in text) and not ("~" in text and "~~~" in text):  # one character is found at once
        return []
    return [
        (mark.start(), mark[0])
        for mark in _FENCE.finditer(text)
        if begins_line(text, mark.start(), " \t>") and not (mark[0][0] == "`" and "`" in _line_from(text, mark.end()))
    ]


def _line_from(text: str, place: int) -> str:
    end = text.find("\n", place)
    return text[place:] if end < 0 else text[place:end]


def _files(text: str) -> list[tuple[int, str]]:
    """Where a file begins, for the first time: what is behind is not looked at."""
    found = [mark.start() for mark in _FILE.finditer(text) if mark[0][1] in "?!" or begins_line(text, mark.start())]
    if ("@" in text and "@@ -" in text) or "diff --git " in text:
        found += [mark.start() for mark in _DIFF.finditer(text) if begins_line(text, mark.start(), "")]
    return [(start, "") for start in found]
