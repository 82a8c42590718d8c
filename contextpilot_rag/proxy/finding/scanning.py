"""Where the values of a JSON text stand in it. The text was decoded before, so it is known to be JSON."""

from __future__ import annotations

import re

import msgspec

from ..words import Span

_PLAIN = re.compile(r"[^][{},\" \t\r\n]+")
_BRACKET = re.compile(r'[][{}"]')
_BLANKS = re.compile(r"[ \t\r\n]*")
_COLON = re.compile(r"[ \t\r\n]*:[ \t\r\n]*")

_decode = msgspec.json.Decoder().decode


def decoded(text: str) -> object:
    """A JSON text's value, if it is an array or an object and strict; else None. Never raises."""
    if not text.lstrip(" \t\r\n").startswith(("{", "[")):
        return None
    try:
        return _decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None


def start_of(text: str) -> int:
    """Where its value begins."""
    return _end(_BLANKS, text, 0)


def members(text: str, start: int) -> tuple[dict[str, Span], int] | None:
    """Where the values of an object stand, and where it ends.

    Args:
        text: all of it.
        start: of the object.

    Returns:
        None: a key is there twice, and readers differ in which of them counts.

    >>> members('{"a": [1, 2], "b": "}"}', 0)
    ({'a': (6, 12), 'b': (19, 22)}, 23)
    """
    found: dict[str, Span] = {}
    place = _end(_BLANKS, text, start + 1)
    if text[place] == "}":
        return found, place + 1
    while True:
        begin, place = place, _string_end(text, place)
        key = text[begin + 1 : place - 1]
        if "\\" in key:
            key = _decode(text[begin:place])
        if key in found:
            return None
        value = _end(_COLON, text, place)
        end = _value_end(text, value)
        found[key] = value, end
        place = _end(_BLANKS, text, end) + 1
        if text[place - 1] == "}":
            return found, place
        place = _end(_BLANKS, text, place)


def objects(text: str, start: int) -> list[tuple[Span, dict[str, Span]]] | None:
    """Where the elements of an array stand, all of which are objects, and the values in each.

    Args:
        text: all of it.
        start: of the array, which is not empty.

    Returns:
        None: a key is in one of them twice.

    >>> objects('[{"a": 1}, {"a": "]"}]', 0)
    [((1, 9), {'a': (7, 8)}), ((11, 21), {'a': (17, 20)})]
    """
    found = []
    place = start
    while text[place] != "]":
        begin = _end(_BLANKS, text, place + 1)
        inside = members(text, begin)
        if inside is None:
            return None
        found.append(((begin, inside[1]), inside[0]))
        place = _end(_BLANKS, text, inside[1])
    return found


def strings(text: str, shortest: int = 60) -> list[Span]:
    """Where the insides of a JSON text's strings stand, in order, but for keys and short ones.

    Args:
        text: an array or an object, of any shape.
        shortest: in characters, as they are written.

    Returns:
        Nothing, too, if the text is no such JSON.

    >>> strings('{"long enough": "long enough", "b": ["short"]}', 10)
    [(17, 28)]
    """
    if decoded(text) is None:
        return []
    found = []
    begin = text.find('"')
    while begin >= 0:
        end = _string_end(text, begin)
        if end - begin - 2 >= shortest and _COLON.match(text, end) is None:
            found.append((begin + 1, end - 1))
        begin = text.find('"', end)
    return found


def _value_end(text: str, start: int) -> int:
    first = text[start]
    if first == '"':
        return _string_end(text, start)
    if first not in "[{":
        return _end(_PLAIN, text, start)
    depth, place = 1, start + 1
    while depth and (bracket := _BRACKET.search(text, place)):
        if bracket[0] == '"':
            place = _string_end(text, bracket.start())
        else:
            depth += 1 if bracket[0] in "[{" else -1
            place = bracket.end()
    return place


def _string_end(text: str, start: int) -> int:
    """Where what follows a string begins: behind the first quotation mark after an even number of backslashes."""
    end = start
    while (end := text.find('"', end + 1)) >= 0:
        before = end
        while text[before - 1] == "\\":
            before -= 1
        if (end - before) % 2 == 0:
            return end + 1
    return len(text)


def _end(pattern: re.Pattern[str], text: str, place: int) -> int:
    found = pattern.match(text, place)
    return place if found is None else found.end()
