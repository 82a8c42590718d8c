"""Rows: texts as units with keys that are equal where units count as the same."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from operator import itemgetter

from ..errors import InputError
from .composed import composed as composed_form
from .composed import is_composed
from .escapes import between_escapes
from .units import normal_lines, starts, units

Span = tuple[int, int]
"""Where something begins and ends, in characters."""


class Row:
    """One text: its units' keys, where they begin, and which of them were sent in full.

    Args:
        place: its name.
        text: in full.
        exact: only texts that are equal to the last byte count as the same.
        within: the parts of it that anything may be replaced in; None: all of it.
        quoted: they are insides of JSON strings.

    Raises:
        InputError: the parts are not in order.
    """

    __slots__ = ("borders", "gaps", "is_normal", "keys", "lengths", "place", "segments", "shifts", "starts", "text")

    def __init__(
        self, place: str, text: str, *, exact: bool, within: Sequence[Span] | None = None, quoted: bool = False
    ) -> None:
        composed = exact or is_composed(text)
        self.place = place
        self.text = text
        self.is_normal = composed and (exact or normal_lines(text) is text)
        if within is None:
            pieces = units(text, composed=composed)
            self.segments = [(0, len(pieces), True)]
            self.borders: list[int] = []
        else:
            pieces, self.segments = _segments(text, within, composed=composed, exact=exact, quoted=quoted)
            self.borders = [first for first, _, _ in self.segments]
        self.starts = starts(pieces)
        if not exact:
            pieces = self._counting(pieces, composed=composed)
        self.keys = list(map(hash, pieces))
        self.lengths = list(map(len, pieces))
        self.gaps: list[int] = []  # where runs of units that were not sent in full begin
        # What a hint restores may be longer or shorter than what it replaced, if they differ in normal form: from which
        # unit on the restored text is how much ahead of this one.
        self.shifts: list[tuple[int, int]] = []

    def _counting(self, pieces: list[str], *, composed: bool) -> list[str]:
        """What counts of each unit."""
        if not pieces:
            return pieces
        if not composed:
            pieces = [composed_form(piece) for piece in pieces]
        if not self.is_normal:
            pieces = [piece if piece[-1] == "\n" and piece[-2:-1] not in _BEFORE_ENDS else _counting(piece)
                      for piece in pieces]  # fmt: skip
        for last in (len(pieces), *(last for first, last, inside in self.segments if inside and last > first)):
            if pieces[last - 1][-1] not in "\r\n":  # a last line is one, with or without its end
                pieces[last - 1] = _counting(pieces[last - 1] + "\n")
        return pieces

    def unit(self, unit: int) -> str:
        """A unit's text."""
        return self.text[self.starts[unit] : self.starts[unit + 1]]

    def lines(self, unit: int, length: int) -> Span:
        """Where a run of units begins, and where it ends but for the last line's end."""
        begin, end = self.starts[unit], self.starts[unit + length]
        return begin, end - len(_line_end(self.text[max(begin, end - 2) : end]))

    def full_until(self, unit: int) -> int:
        """Up to where the units from this one on were sent in full, and nothing that is looked at by itself ends."""
        next_gap = bisect_left(self.gaps, unit)
        until = self.gaps[next_gap] if next_gap < len(self.gaps) else len(self.keys)
        if not self.borders:
            return until
        next_border = bisect_right(self.borders, unit)
        return min(until, self.borders[next_border]) if next_border < len(self.borders) else until

    def restored_start(self, unit: int) -> int:
        """Where a unit begins once all hints are followed: hints count in that text."""
        before = bisect_right(self.shifts, unit, key=itemgetter(0))
        return self.starts[unit] + (self.shifts[before - 1][1] if before else 0)

    def shift(self, unit: int, by: int) -> None:
        """From this unit on, the restored text is so many characters further ahead."""
        if by:
            self.shifts.append((unit, by + (self.shifts[-1][1] if self.shifts else 0)))

    def ends_part(self, end: int, unit: int) -> bool:
        """Whether a run that ends here, before a unit, ends where something begins that is not to be replaced."""
        if not self.borders or end != self.starts[unit]:
            return False
        border = bisect_left(self.borders, unit)
        return border < len(self.borders) and self.borders[border] == unit


def _segments(
    text: str, within: Sequence[Span], *, composed: bool, exact: bool, quoted: bool
) -> tuple[list[str], list[tuple[int, int, bool]]]:
    """A text's units, none of them across a border, and from which to which of them it may be replaced, or may not."""
    pieces: list[str] = []
    segments: list[tuple[int, int, bool]] = []

    def take(begin: int, end: int, *, inside: bool) -> None:
        found = units(text[begin:end], composed=composed)
        if inside and quoted:
            found = between_escapes(found)
        segments.append((len(pieces), len(pieces) + len(found), inside))
        pieces.extend(found)

    done = 0
    for begin, given_end in within:
        if not done <= begin <= given_end <= len(text):
            raise InputError(f"parts of a text must be in order and apart, and not {begin} to {given_end} after {done}")
        # Blanks count where text goes on behind them, but not at the end of a line: they stay outside.
        end = given_end if exact else begin + len(text[begin:given_end].rstrip(" \t"))
        take(done, begin, inside=False)
        take(begin, end, inside=True)
        done = end
    take(done, len(text), inside=False)
    return pieces, segments


_BEFORE_ENDS = frozenset(" \t\r\n")  # not the empty text: an empty line is as it counts


def _counting(piece: str) -> str:
    """What counts of a unit in NFC: all of it, but for how its line ends."""
    return piece.rstrip(" \t\r\n") + "\n" if piece[-1] in "\r\n" else piece


def _line_end(text: str) -> str:
    if text.endswith("\r\n"):
        return "\r\n"
    return text[-1:] if text[-1:] in {"\n", "\r"} else ""
