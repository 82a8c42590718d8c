"""Repeats: what of a new text stands in the prompt already, and hints in its place.

Every text is a row of units (`units`). Where a run of units stands, word for word, in an earlier text or earlier in
this one, the longest such run is replaced by a hint, if that is shorter by a margin; as in LZ77 compression (Ziv and
Lempel 1977), with units instead of bytes. Only units that were themselves sent in full are ever pointed at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial

from ..errors import BrokenHint, TextTooLong
from .composed import is_piled
from .marks import hint, is_marked, reveal, reveal_within, revealed_as_is, shield
from .rows import Row, Span
from .units import normal

MAX_CHARACTERS = 64 * 2**20
_MARGIN = 1.5  # a run is replaced if it is this many times as long as its hint: hints have more tokens a character
_SHORT = 12  # characters of a unit, in normal form, at which no run begins: such lines are everywhere
_SHORTEST_HINT = len(hint("[1]", 0, "."))
_BITS = 40
_MASK = (1 << _BITS) - 1
_TRIED = 4  # earlier places of a unit that are looked at

_Run = tuple[int, str, int, int, str]
"""Its first unit, the hint for it, its number of units, where it ends, and what the hint restores."""


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
        self._texts: list[Row] = []
        # Where units stand; text and unit in one number, as a container for each would busy the garbage collector.
        self._seen: dict[int, int] = {}
        self._seen_again: dict[int, list[int]] = {}
        self._wholes: dict[int, int] = {}  # where texts, and parts that were looked at by themselves, stand as a whole
        self.ambiguous: set[str] = set()
        """Places that stand for more than one text: no hint points at them."""
        self.left_out: int = 0
        """Characters that hints stand for, less those of the hints."""
        self.restored: dict[str, str] = {}
        """By place, what hints restore of a text, where that is another form of it."""

    def add(
        self,
        place: str,
        text: str,
        *,
        replace: bool = True,
        within: Sequence[Span] | None = None,
        quoted: bool = False,
        whole: bool = False,
    ) -> str:
        """Add a text to the prompt.

        Args:
            place: a name for it that hints can use; no quotation marks or line ends.
            text: in full.
            replace: False for a text that is sent as it is: others may repeat it, it repeats nobody.
            within: the parts that anything may be replaced in, in order and apart; None: all of it. Each is looked at
                by itself. A text that has a mark of ours anywhere is sent in full.
            quoted: these parts are insides of JSON strings, and have to stay that.
            whole: only what repeats all of an earlier text, or of a part of one, with all of itself, is replaced. Texts
                that were added without this are not searched for it.

        Returns:
            What to send in its place: the same text, shielded, with hints for what stands before.

        Raises:
            TextTooLong: more characters than ``max_text``, in a text that is to be replaced in part.
            InputError: parts that are not in order.
        """
        if replace and len(text) > self._max_text:
            raise TextTooLong(f"a text of {len(text):,} characters; at most {self._max_text:,} are taken")
        as_it_is = text
        if replace and is_marked(text):
            as_it_is = text if within is not None and revealed_as_is(text) else shield(text)
            replace = within is None
        if len(text) > min(self._left, self._max_text) or (not self._exact and is_piled(text)):
            return as_it_is  # of a pile of marks no part has the form that it has in all
        new = Row(place, text, exact=self._exact, within=within, quoted=quoted)
        self._left -= len(text)
        number = len(self._texts)
        self._texts.append(new)
        runs = (self._entire_runs if whole else self._runs)(new, number, quoted=quoted)
        if replace:
            sent = self._replaced(new, runs)
        else:
            sent = as_it_is
            self._index(new, number, 0, len(new.keys))
            if whole:
                for begin, end, inside in new.segments:
                    if inside:
                        self._whole(new, number, begin, end)
        new.lengths = []  # is not asked for again
        return sent

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
        if self._wholes:
            self._wholes = {key: place for key, place in self._wholes.items() if place < first}
        del self._texts[number:]

    @property
    def hints(self) -> int:
        """That stand in what is sent."""
        return sum(len(text.gaps) for text in self._texts)

    @property
    def characters(self) -> int:
        """Of all texts that are held to be searched."""
        return self._most - self._left

    def _index(self, new: Row, number: int, begin: int, end: int) -> None:
        """Remember where units stand."""
        for at in range(begin, end):
            here = number << _BITS | at
            if new.lengths[at] >= _SHORT and self._seen.setdefault(new.keys[at], here) != here:
                self._remember_again(new.keys[at], here)

    def _replaced(self, new: Row, runs: Iterable[_Run]) -> str:
        """What is sent for a text of which these runs are left out."""
        out: list[str] = []
        restored: list[str] = []
        text, starts = new.text, new.starts
        full_from = 0  # units from here on are sent in full and not written yet
        for at, words, length, end, part in runs:
            begin = starts[at]
            before, line_end = text[starts[full_from] : begin], text[end : starts[at + length]]
            out += (shield(before), words, line_end)
            restored += (before, part, line_end)
            self.left_out += end - begin - len(words)
            new.gaps.append(at)
            full_from = at + length
            new.shift(full_from, len(part) - (end - begin))
        rest = text[starts[full_from] :]
        if not self._exact and restored and (whole := "".join([*restored, rest])) != text:
            self.restored[new.place] = whole
        return "".join([*out, shield(rest)])

    def _runs(self, new: Row, number: int, *, quoted: bool) -> Iterator[_Run]:
        """The runs that can be replaced, in order; what is not is remembered."""
        seen, keys, text, starts, lengths, first = (
            self._seen, new.keys, new.text, new.starts, new.lengths, number << _BITS
        )  # fmt: skip
        full_from = 0
        for begin, stop, inside in new.segments:
            if not inside:
                self._index(new, number, begin, stop)
                continue
            at = begin
            while at < stop:
                if lengths[at] < _SHORT:
                    at += 1
                    continue
                key = keys[at]
                if key not in seen:
                    seen[key] = first | at
                    at += 1
                    continue
                # A backslash before a hint would shield it.
                run = (
                    None if at > full_from and text[starts[at] - 1] == "\\" else self._run(new, at, stop, quoted=quoted)
                )
                if run is None:
                    self._remember_again(key, first | at)
                    at += 1
                    continue
                yield run
                at = full_from = at + run[2]

    def _entire_runs(self, new: Row, number: int, *, quoted: bool) -> Iterator[_Run]:
        """As `_runs`, but only those that are all of a text, or of a part that is looked at by itself."""
        full_from = 0
        for begin, end, inside in new.segments:
            run = self._entire(new, number, begin, end, full_from, quoted=quoted) if inside else None
            if run is None:
                self._index(new, number, begin, end)
            else:
                yield run
                full_from = run[0] + run[2]

    def _entire(self, new: Row, number: int, begin: int, end: int, full_from: int, *, quoted: bool) -> _Run | None:
        """These units as a run, if they stand before as all of something, too; else they are remembered as such."""
        stop = end
        begin, end, known = self._whole(new, number, begin, end)
        source, start, length = self._texts[known >> _BITS], known & _MASK, end - begin
        if (source is new and start == begin) or source.place in self.ambiguous:
            return None
        if start + length > len(source.keys) or source.keys[start : start + length - 1] != new.keys[begin : end - 1]:
            return None  # hashes were equal by chance
        if begin > full_from and new.text[new.starts[begin] - 1] == "\\":
            return None
        return self._checked(new, begin, (source, start, length), stop, quoted=quoted)

    def _whole(self, new: Row, number: int, begin: int, end: int) -> tuple[int, int, int]:
        """These units without blank ones around them, and where the same stand first as a whole."""
        while begin < end and new.unit(begin).isspace():
            begin += 1
        while begin < end and not new.unit(end - 1).strip(" \t\r\n"):
            end -= 1
        here = number << _BITS | begin
        if begin == end:
            return begin, end, here
        last = hash(new.unit(end - 1).rstrip("\r\n")) if self._exact else new.keys[end - 1]  # with or without its end
        return begin, end, self._wholes.setdefault(hash((*new.keys[begin : end - 1], last)), here)

    def _run(self, new: Row, at: int, stop: int, *, quoted: bool) -> _Run | None:
        """The run that can be replaced here."""
        if new.unit(at).isspace():
            return None
        source, start, length = self._longest(new, at, stop)
        while length and not new.unit(at + length - 1).strip(" \t\r\n"):
            length -= 1  # an end of a line could become one with the next
        return self._checked(new, at, (source, start, length), stop, quoted=quoted)

    def _checked(self, new: Row, at: int, found: tuple[Row, int, int], stop: int, *, quoted: bool) -> _Run | None:
        """A run, if its hint is shorter, and restores what it stands for."""
        source, start, length = found
        begin, end = new.lines(at, length)
        piece = new.text[begin:end]
        # Other forms of a text are replaced where this one is. Part of a normal text ends in blanks at most.
        counted = piece if self._exact else piece.rstrip(" \t") if new.is_normal else normal(piece)
        if len(counted) < _MARGIN * _SHORTEST_HINT:
            return None
        part_begin, part_end = source.lines(start, length)
        part = source.text[part_begin:part_end]
        if not self._exact and new.ends_part(end, stop):
            part = part.rstrip(" \t")  # the text goes on behind it
        words = hint(source.place, source.restored_start(start), part, quoted=quoted)
        bytes_of_hint = _size(words)
        if not (words and _reaches(counted, _MARGIN * bytes_of_hint) and _reaches(piece, bytes_of_hint)):
            return None
        if piece != part and (self._exact or counted != normal(part)):
            return None  # hashes were equal by chance
        return at, words, length, end, part

    def _longest(self, new: Row, at: int, stop: int) -> tuple[Row, int, int]:
        """The longest run of units that begins at this one and was sent in full before: text, unit, number of units."""
        best, best_start, best_length = new, 0, 0
        keys = new.keys
        for number_and_start in (self._seen[keys[at]], *self._seen_again.get(keys[at], ())):
            source, start = self._texts[number_and_start >> _BITS], number_and_start & _MASK
            if source.place in self.ambiguous:
                continue
            limit = min(source.full_until(start) - start, stop - at)
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
        original = self._texts[place] = reveal(sent, partial(self._part, place))
        return original

    def add_within(self, place: str, sent: str, spans: Sequence[Span]) -> str:
        """As `add`, for a text in which hints were put only inside some spans, and which is not shielded.

        Raises:
            BrokenHint: a hint points to nothing, or not to what it quotes. The text is not known then.
        """
        original = self._texts[place] = reveal_within(sent, spans, partial(self._part, place))
        return original

    def _part(self, place: str, named: str, start: int, length: int, of_this: Callable[[int, int], str]) -> str:
        """The part of a text that a hint in the text of a place points to."""
        part = of_this(start, length) if named == place else self._texts.get(named, "")[start : start + length]
        if len(part) != length:
            raise BrokenHint(f"a hint points to {length} characters at {start} of {named}, which are not there")
        return part


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
