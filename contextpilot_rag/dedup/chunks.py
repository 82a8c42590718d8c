"""Repeats: what of a new text stands in the prompt already, and hints in its place.

Every text is a row of units (`units`). Where a run of units stands, word for word, in an earlier text or earlier in
this one, the longest such run is replaced by a hint, if that is shorter by a margin; as in LZ77 compression (Ziv and
Lempel 1977), with units instead of bytes. Only units that were themselves sent in full are ever pointed at.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Mapping
from operator import itemgetter

from ..errors import BrokenHint, TextTooLong
from .composed import composed as composed_form
from .composed import is_composed, is_piled
from .marks import hint, reveal, shield
from .units import normal, normal_lines, starts, units

MAX_CHARACTERS = 64 * 2**20
_MARGIN = 1.5  # a run is replaced if it is this many times as long as its hint: hints have more tokens a character
_SHORT = 12  # characters of a unit, in normal form, at which no run begins: such lines are everywhere
_SHORTEST_HINT = len(hint("[1]", 0, "."))
_BITS = 40
_MASK = (1 << _BITS) - 1
_TRIED = 4  # earlier places of a unit that are looked at


class _Text:
    """One text: its units' keys, where they begin, and which of them were sent in full."""

    __slots__ = ("gaps", "is_normal", "keys", "place", "shifts", "starts", "text")

    def __init__(self, place: str, text: str, pieces: list[str], keys: list[int], *, is_normal: bool) -> None:
        self.place = place
        self.text = text
        self.is_normal = is_normal
        self.keys = keys
        self.starts = starts(pieces)
        self.gaps: list[int] = []  # where runs of units that were not sent in full begin
        # What a hint restores may be longer or shorter than what it replaced, if they differ in normal form: from which
        # unit on the restored text is how much ahead of this one.
        self.shifts: list[tuple[int, int]] = []

    def unit(self, unit: int) -> str:
        """A unit's text."""
        return self.text[self.starts[unit] : self.starts[unit + 1]]

    def lines(self, unit: int, length: int) -> tuple[int, int]:
        """Where a run of units begins, and where it ends but for the last line's end."""
        begin, end = self.starts[unit], self.starts[unit + length]
        return begin, end - len(_line_end(self.text[max(begin, end - 2) : end]))

    def full_until(self, unit: int) -> int:
        """Up to where the units from this one on were sent in full."""
        next_gap = bisect_left(self.gaps, unit)
        return self.gaps[next_gap] if next_gap < len(self.gaps) else len(self.keys)

    def restored_start(self, unit: int) -> int:
        """Where a unit begins once all hints are followed: hints count in that text."""
        before = bisect_right(self.shifts, unit, key=itemgetter(0))
        return self.starts[unit] + (self.shifts[before - 1][1] if before else 0)

    def shift(self, unit: int, by: int) -> None:
        """From this unit on, the restored text is so many characters further ahead."""
        if by:
            self.shifts.append((unit, by + (self.shifts[-1][1] if self.shifts else 0)))


class Repeats:
    r"""The texts of one prompt, in order.

    Args:
        exact: only texts that are equal to the last byte count as the same; else line ends, Unicode forms and blanks at
            the ends of lines may differ (`units.normal`).
        max_characters: of all texts together that are searched for repeats; a text that no longer fits is sent in full.
        max_text: characters of one text.

    >>> repeats = Repeats()
    >>> clause = "The supplier shall deliver the services with reasonable care and skill, and in time.\n" * 2
    >>> _ = repeats.add("[1]", "Contract A.\n" + clause)
    >>> print(repeats.add("[2]", "Contract B.\n" + clause))
    Contract B.
    [same text as in [1] at 12: 169 characters from "The supplier shall deliver the services with"]
    <BLANKLINE>
    """

    def __init__(
        self, *, exact: bool = False, max_characters: int = MAX_CHARACTERS, max_text: int = MAX_CHARACTERS
    ) -> None:
        self._exact = exact
        self._left = self._most = max_characters
        self._max_text = max_text
        self._texts: list[_Text] = []
        # Where units stand; text and unit in one number, as a container for each would busy the garbage collector.
        self._seen: dict[int, int] = {}
        self._seen_again: dict[int, list[int]] = {}
        self.ambiguous: set[str] = set()
        """Places that stand for more than one text: no hint points at them."""
        self.left_out = 0
        """Characters that hints stand for, less those of the hints."""
        self.restored: dict[str, str] = {}
        """By place, what hints restore of a text, where that is another form of it."""

    def add(self, place: str, text: str, *, replace: bool = True) -> str:
        """Add a text to the prompt.

        Args:
            place: a name for it that hints can use; no quotation marks or line ends.
            text: in full.
            replace: False for a text that is sent as it is: others may repeat it, it repeats nobody.

        Returns:
            What to send in its place: the same text, shielded, with hints for what stands before.

        Raises:
            TextTooLong: more characters than ``max_text``, in a text that is to be replaced in part.
        """
        if replace and len(text) > self._max_text:
            raise TextTooLong(f"a text of {len(text):,} characters; at most {self._max_text:,} are taken")
        if len(text) > min(self._left, self._max_text) or (not self._exact and is_piled(text)):
            return shield(text) if replace else text  # of a pile of marks no part has the form that it has in all
        self._left -= len(text)
        composed = self._exact or is_composed(text)
        is_normal = composed and (self._exact or normal_lines(text) is text)
        pieces = units(text, composed=composed)
        keys, lengths = self._keys(pieces, composed=composed, is_normal=is_normal)
        new = _Text(place, text, pieces, keys, is_normal=is_normal)
        number = len(self._texts)
        self._texts.append(new)
        if not replace:
            for at, length in enumerate(lengths):
                here = number << _BITS | at
                if length >= _SHORT and self._seen.setdefault(keys[at], here) != here:
                    self._remember_again(keys[at], here)
            return text
        return self._replaced(new, number, lengths)

    @property
    def mark(self) -> tuple[int, int, int]:
        """Where this stands now, for `back_to`."""
        return len(self._texts), self._left, self.left_out

    def back_to(self, mark: tuple[int, int, int]) -> None:
        """Forget all that was added since, as if it never had been."""
        number, self._left, self.left_out = mark
        first = number << _BITS
        for text in self._texts[number:]:
            for key in text.keys:
                if self._seen.get(key, -1) >= first:
                    del self._seen[key]
                places = self._seen_again.get(key)
                while places and places[-1] >= first:
                    places.pop()
        del self._texts[number:]

    @property
    def characters(self) -> int:
        """Of all texts that are held to be searched."""
        return self._most - self._left

    def _keys(self, pieces: list[str], *, composed: bool, is_normal: bool) -> tuple[list[int], list[int]]:
        """Hashes that are equal for units that count as the same, and the units' lengths in normal form."""
        if self._exact or not pieces:
            return list(map(hash, pieces)), list(map(len, pieces))
        if not composed:
            pieces = [composed_form(piece) for piece in pieces]
        if not is_normal:
            pieces = [piece if piece[-1] == "\n" and piece[-2:-1] not in _BEFORE_ENDS else _counting(piece)
                      for piece in pieces]  # fmt: skip
        if pieces[-1][-1] not in "\r\n":
            pieces = [*pieces[:-1], _counting(pieces[-1] + "\n")]  # a last line is one, with or without its end
        return list(map(hash, pieces)), list(map(len, pieces))

    def _replaced(self, new: _Text, number: int, lengths: list[int]) -> str:
        out: list[str] = []
        restored: list[str] = []
        full_from = at = 0  # units from here on are sent in full and not written yet
        seen, keys, text, starts, first = self._seen, new.keys, new.text, new.starts, number << _BITS
        while at < len(keys):
            if lengths[at] < _SHORT:
                at += 1
                continue
            key, begin = keys[at], starts[at]
            if key not in seen:
                seen[key] = first | at
                at += 1
                continue
            # A backslash before a hint would shield it.
            run = None if at > full_from and text[begin - 1] == "\\" else self._run(new, at)
            if run is None:
                self._remember_again(key, first | at)
                at += 1
                continue
            words, length, end, part = run
            before, line_end = text[starts[full_from] : begin], text[end : starts[at + length]]
            out += (shield(before), words, line_end)
            restored += (before, part, line_end)
            self.left_out += end - begin - len(words)
            new.gaps.append(at)
            at = full_from = at + length
            new.shift(at, len(part) - (end - begin))
        rest = text[starts[full_from] :]
        if not self._exact and restored and (whole := "".join([*restored, rest])) != text:
            self.restored[new.place] = whole
        return "".join([*out, shield(rest)])

    def _run(self, new: _Text, at: int) -> tuple[str, int, int, str] | None:
        """The run that can be replaced here.

        Returns:
            The hint for it, its number of units, where it ends, and what the hint restores.
        """
        if new.unit(at).isspace():
            return None
        source, start, length = self._longest(new, at)
        while length and not new.unit(at + length - 1).strip(" \t\r\n"):
            length -= 1  # an end of a line could become one with the next
        begin, end = new.lines(at, length)
        piece = new.text[begin:end]
        # Other forms of a text are replaced where this one is. Part of a normal text ends in blanks at most.
        counted = piece if self._exact else piece.rstrip(" \t") if new.is_normal else normal(piece)
        if len(counted) < _MARGIN * _SHORTEST_HINT:
            return None
        part_begin, part_end = source.lines(start, length)
        part = source.text[part_begin:part_end]
        words = hint(source.place, source.restored_start(start), part)
        bytes_of_hint = _size(words)
        if not (_reaches(counted, _MARGIN * bytes_of_hint) and _reaches(piece, bytes_of_hint)):
            return None
        if piece != part and (self._exact or counted != normal(part)):
            return None  # hashes were equal by chance
        return words, length, end, part

    def _longest(self, new: _Text, at: int) -> tuple[_Text, int, int]:
        """The longest run of units that begins at this one and was sent in full before: text, unit, number of units."""
        best, best_start, best_length = new, 0, 0
        keys = new.keys
        for number_and_start in (self._seen[keys[at]], *self._seen_again.get(keys[at], ())):
            source, start = self._texts[number_and_start >> _BITS], number_and_start & _MASK
            if source.place in self.ambiguous:
                continue
            limit = min(source.full_until(start) - start, len(keys) - at)
            if source is new:
                limit = min(limit, at - start)
            length = _common(source.keys, start, keys, at, limit)
            if length > best_length:
                best, best_start, best_length = source, start, length
        return best, best_start, best_length

    def _remember_again(self, key: int, place: int) -> None:
        places = self._seen_again.setdefault(key, [])
        if len(places) < _TRIED - 1:
            places.append(place)


class Originals:
    """The inverse: texts as they were before `Repeats` replaced anything.

    Args:
        known: originals to begin with, by place.

    >>> originals = Originals()
    >>> originals.add("[1]", "Slices count from zero.")
    'Slices count from zero.'
    >>> originals.add("[2]", '[same text as in [1] at 7: 15 characters from "count from"] Always.')
    'count from zero Always.'
    """

    def __init__(self, known: Mapping[str, str] | None = None) -> None:
        self._texts = dict(known or {})

    def at(self, places: Iterable[str]) -> dict[str, str | None]:
        """What is known of some places, for `back_to`."""
        return {place: self._texts.get(place) for place in places}

    def back_to(self, before: Mapping[str, str | None]) -> None:
        """Forget what was added at some places since."""
        for place, text in before.items():
            if text is None:
                self._texts.pop(place, None)
            else:
                self._texts[place] = text

    def note(self, place: str, text: str) -> str:
        """A text that was sent as it is: `Repeats.add` was told not to replace anything."""
        self._texts[place] = text
        return text

    def add(self, place: str, sent: str) -> str:
        """The original of a text.

        Args:
            place: the name that `Repeats.add` was given.
            sent: what it returned.

        Raises:
            BrokenHint: a hint points to nothing: the text was not made by `Repeats`, or what it points to is gone.
        """

        def part_at(named: str, start: int, length: int, of_this: Callable[[int, int], str]) -> str:
            part = of_this(start, length) if named == place else self._texts.get(named, "")[start : start + length]
            if len(part) != length:
                raise BrokenHint(f"a hint points to {length} characters at {start} of {named}, which are not there")
            return part

        original = self._texts[place] = reveal(sent, part_at)
        return original


def _common(one: list[int], start: int, other: list[int], at: int, limit: int) -> int:
    """How many of the next ``limit`` items are equal."""
    length, step = 0, 32
    while (
        length + step <= limit
        and one[start + length : start + length + step] == other[at + length : at + length + step]
    ):
        length += step
    while length < limit and one[start + length] == other[at + length]:
        length += 1
    return length


def _size(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


def _reaches(text: str, size: float) -> bool:
    """Whether a text has so many bytes."""
    return len(text) >= size or _size(text) >= size


_BEFORE_ENDS = frozenset(" \t\r\n")  # not the empty text: an empty line is as it counts


def _counting(piece: str) -> str:
    """What counts of a unit in NFC: all of it, but for how its line ends."""
    return piece.rstrip(" \t\r\n") + "\n" if piece[-1] in "\r\n" else piece


def _line_end(text: str) -> str:
    if text.endswith("\r\n"):
        return "\r\n"
    return text[-1:] if text[-1:] in {"\n", "\r"} else ""
