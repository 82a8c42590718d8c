"""Changes to a JSON body that leave every other byte as it is: the order of keys, blanks, how numbers are spelt."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import TypeAlias

import msgspec

from .words import Edit, Path, Removal

_Change: TypeAlias = Edit | Removal
_Wanted: TypeAlias = "dict[str | int, _Wanted | _Change]"
"""Changes by the steps of their paths."""

# Values that are looked at one by one, in objects and lists that changes are in. The rest is passed over in C.
MOST_STEPS = 50_000
_MOST_DEPTH = 64  # steps of a path
_BLANKS = re.compile(r"[ \t\n\r]*")
_PLAIN_KEY = re.compile(r'"([^"\\\x00-\x1f]*)"[ \t\n\r]*:[ \t\n\r]*')
_COLON = re.compile(r"[ \t\n\r]*:[ \t\n\r]*")


class NotLocated(ValueError):
    """What is to be changed is not there, or more than once, or stands in what is no strict JSON."""


def splice(raw: bytes, changes: Sequence[Edit | Removal]) -> bytes:
    r"""A body with changes; all else is the same, byte for byte.

    A member that is added comes last in its object. With a member that goes, goes the comma behind it, or before it if
    it was the last.

    Args:
        raw: JSON.
        changes: none is within another. Texts may hold what UTF-8 has.

    Raises:
        NotLocated: a path leads nowhere, or through a key that its object has twice: which one counts is up to whoever
            reads it. Or the body is no JSON, or larger or deeper than is looked into.

    >>> body = b'{"model": "m", "n": 1.50, "prompt":"\\u0061", "user" : null}'
    >>> splice(body, [Edit(("prompt",), "b"), Removal(("user",)), Edit(("cache_salt",), "s")])
    b'{"model": "m", "n": 1.50, "prompt":"b","cache_salt":"s"}'
    """
    if not changes:
        return raw
    wanted = _by_steps(changes)
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        raise NotLocated(f"the body is not UTF-8: {error}") from error
    found = _Scan(text)
    begin = found.blanks(0)
    end = found.value(begin, wanted)
    if found.blanks(end) != len(text):
        raise NotLocated(f"the body goes on behind its end, at character {end}")
    pieces = []
    done = 0
    for begin, end, new in found.replaced:
        pieces += [text[done:begin], new]
        done = end
    pieces.append(text[done:])
    return "".join(pieces).encode()


def _by_steps(changes: Sequence[_Change]) -> _Wanted | _Change:
    """Changes by the steps of their paths.

    Raises:
        NotLocated: one is within another.
    """
    first: _Wanted = {}
    for change in changes:
        if len(change.path) > _MOST_DEPTH:
            raise NotLocated(f"the path {_shown(change.path)} is deeper than is looked into")
        if not change.path:
            if len(changes) > 1:
                raise NotLocated("all of the body is to be changed, and a part of it besides")
            return change
        at = first
        for step in change.path[:-1]:
            below = at.setdefault(step, {})
            if not isinstance(below, dict):
                raise NotLocated(f"{_shown(change.path)} is changed within another change")
            at = below
        if change.path[-1] in at:
            raise NotLocated(f"{_shown(change.path)} is changed twice")
        at[change.path[-1]] = change
    return first


class _Scan:
    """One pass over a body, from left to right.

    Args:
        text: the body.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._steps = MOST_STEPS
        self.replaced: list[tuple[int, int, str]] = []

    def blanks(self, at: int) -> int:
        """Behind the blanks."""
        found = _BLANKS.match(self._text, at)
        return found.end() if found else at

    def value(self, at: int, wanted: _Wanted | _Change) -> int:
        """Go over a value that is to be changed, or has something to be changed in it.

        Args:
            at: where it begins.
            wanted: of it.

        Returns:
            where it ends.
        """
        if isinstance(wanted, Edit):
            end = self._over(at)
            self.replaced.append((at, end, _encoded(wanted.value)))
            return end
        if isinstance(wanted, Removal):
            raise NotLocated(f"{_shown(wanted.path)} is no member of an object")
        opened = self._text[at : at + 1]
        if opened == "{":
            return self._object(at + 1, wanted)
        if opened == "[":
            return self._list(at + 1, wanted)
        raise NotLocated(f"there is no {_shown(tuple(wanted))} in the value at character {at}")

    def _object(self, at: int, wanted: _Wanted) -> int:
        """Go over an object from its first member on: to behind its end."""
        before = len(self.replaced)
        members: list[tuple[int, int, bool]] = []
        left = dict(wanted)
        opened = at
        at = self.blanks(at)
        closed = self._text.startswith("}", at)
        while not closed:
            begin = at
            key, at = self._key(at)
            change = left.pop(key, None)
            if change is None:
                if key in wanted:
                    raise NotLocated(f"{_shown((key,))} is there twice, again at character {begin}")
                at = self._over(at)
            elif isinstance(change, Removal):
                at = self._over(at)
            else:
                at = self.value(at, change)
            members.append((begin, at, isinstance(change, Removal)))
            at, closed = self._next(at, "}")
        new = "".join(f",{_encoded(key)}:{_encoded(_value(key, change))}" for key, change in left.items())
        if new or any(goes for _, _, goes in members):
            self.replaced += _ends(members, opened, new)
            # What changes within members was found first, and what goes between them last.
            self.replaced[before:] = sorted(self.replaced[before:])
        return at + 1

    def _list(self, at: int, wanted: _Wanted) -> int:
        """Go over a list from its first item on: to behind its end."""
        place = found = 0
        at = self.blanks(at)
        closed = self._text.startswith("]", at)
        while not closed:
            change = wanted.get(place)
            if change is None:
                at = self._over(at)
            else:
                at = self.value(at, change)
                found += 1
            place += 1
            at, closed = self._next(at, "]")
        if found < len(wanted):
            raise NotLocated(f"a list of {place}, before character {at}, does not have all of {_shown(tuple(wanted))}")
        return at + 1

    def _next(self, at: int, close: str) -> tuple[int, bool]:
        """From behind a value to the next one, or to the bracket that closes; and whether it is that."""
        at = self.blanks(at)
        if self._text.startswith(close, at):
            return at, True
        if not self._text.startswith(",", at):
            raise NotLocated(f"no comma and no {close} at character {at}")
        return self.blanks(at + 1), False

    def _key(self, at: int) -> tuple[str, int]:
        """A member's key, and where its value begins."""
        plain = _PLAIN_KEY.match(self._text, at)
        if plain:
            return plain[1], plain.end()
        if not self._text.startswith('"', at):
            raise NotLocated(f"no key at character {at}")
        key, end = self._decoded(at)
        colon = _COLON.match(self._text, end)
        if colon is None:
            raise NotLocated(f"no colon at character {end}")
        return str(key), colon.end()

    def _over(self, at: int) -> int:
        """Where a value ends."""
        return self._decoded(at)[1]

    def _decoded(self, at: int) -> tuple[object, int]:
        self._steps -= 1
        if self._steps < 0:
            raise NotLocated(f"changes are among more than {MOST_STEPS} values")
        try:
            found: tuple[object, int] = _DECODER.raw_decode(self._text, at)
        except RecursionError as error:
            raise NotLocated(f"the value at character {at} is deeper than is looked into") from error
        except ValueError as error:
            raise NotLocated(f"the value at character {at} is no JSON: {error}") from error
        return found


def _ends(members: Sequence[tuple[int, int, bool]], opened: int, new: str) -> list[tuple[int, int, str]]:
    """What goes from an object, and what is added, as parts of the text.

    Args:
        members: begin and end of each, and whether it goes.
        opened: behind the bracket that opens.
        new: members that are added, each with a comma before it.
    """
    if not members:
        return [(opened, opened, new[1:])]
    parts = []
    for place, (begin, _, goes) in enumerate(members[:-1]):
        if goes:
            parts.append((begin, members[place + 1][0], ""))
    last = len(members)
    while last and members[last - 1][2]:
        last -= 1
    if last == len(members):
        return [*parts, (members[-1][1], members[-1][1], new)] if new else parts
    # Those at the end go together, with the comma before them; if nothing is left, there is none.
    begin, new = (members[last - 1][1], new) if last else (members[0][0], new[1:])
    return [*[part for part in parts if part[1] <= begin], (begin, members[-1][1], new)]


def _value(key: str | int, change: _Wanted | _Change) -> object:
    """The value of a member that an object does not have yet."""
    if isinstance(change, Edit) and isinstance(key, str):
        return change.value
    raise NotLocated(f"there is no {_shown((key,))}")


def _encoded(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _shown(path: Path) -> str:
    """A path for a message, cut if it is long."""
    shown = ".".join(str(step)[:40] for step in path[:8])
    return repr(shown if len(path) <= 8 else f"{shown}...")


def _refuse(name: str) -> object:
    raise ValueError(f"{name} is no JSON")


# Numbers are only passed over: they stay as they are written, and long ones cost nothing.
_DECODER = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=_refuse)
