"""Routes: from a method and a path, as it came over the wire, to an operation.

Paths are split before they are decoded, so that a name may hold a slash. Paths without parameters are found in one
look-up: they are the ones that are asked for all the time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Generic, TypeVar
from urllib.parse import unquote_to_bytes

from .operation import Operation
from .problems import MethodNotAllowed, NotFound, Rejected

T = TypeVar("T")
_Segments = tuple[str, ...]
_NONE: Mapping[str, str] = {}


class Routes(Generic[T]):
    """What answers which operation.

    Args:
        answers: each with its operation.
    """

    def __init__(self, answers: Sequence[tuple[Operation, T]]) -> None:
        self._exact: dict[tuple[str, bytes], T] = {}
        self._patterns: dict[int, list[tuple[_Segments, dict[str, T]]]] = {}
        for operation, answer in answers:
            if "{" not in operation.path:
                self._exact[operation.method, operation.path.encode()] = answer
            self._add(tuple(operation.path.split("/")), operation.method, answer)

    def find(self, method: str, path: bytes) -> tuple[T, Mapping[str, str]]:
        """What answers, and the path's parameters, decoded. HEAD is answered as GET is.

        Raises:
            NotFound: there is no such path.
            MethodNotAllowed: there is, for other methods.
            Rejected: a parameter is no percent-encoded UTF-8.
        """
        method = "GET" if method == "HEAD" else method
        found = self._exact.get((method, path))
        if found is not None:
            return found, _NONE
        try:
            segments = tuple(path.decode("ascii").split("/"))
        except UnicodeDecodeError:
            raise Rejected("a path is ASCII; all else in it is percent-encoded") from None
        allowed: set[str] = set()
        for pattern, methods in self._patterns.get(len(segments), ()):
            if _fits(pattern, segments):
                if method in methods:
                    return methods[method], _parameters(pattern, segments)
                allowed |= set(methods)
        if not allowed:
            raise NotFound("nothing is at this path")
        raise MethodNotAllowed(allowed | {"HEAD"} if "GET" in allowed else allowed)

    def _add(self, pattern: _Segments, method: str, answer: T) -> None:
        known = self._patterns.setdefault(len(pattern), [])
        for other, methods in known:
            if other == pattern:
                methods[method] = answer
                return
        known.append((pattern, {method: answer}))
        known.sort(key=lambda entry: sum(part[:1] == "{" for part in entry[0]))  # fixed words before parameters


def _fits(pattern: _Segments, segments: _Segments) -> bool:
    return all(
        part == segment or (part[:1] == "{" and segment) for part, segment in zip(pattern, segments, strict=True)
    )


def _parameters(pattern: _Segments, segments: _Segments) -> dict[str, str]:
    return {part[1:-1]: decoded(segment) for part, segment in zip(pattern, segments, strict=True) if part[:1] == "{"}


def decoded(text: str, *, form: bool = False) -> str:
    """A percent-encoded text.

    Args:
        text: as it stands in a URL.
        form: a plus sign stands for a space, as it does in queries.

    Raises:
        Rejected: it is not percent-encoded UTF-8.

    >>> decoded("a%2Fb")
    'a/b'
    """
    text = text.replace("+", " ") if form else text
    if "%" not in text:
        return text
    for piece in text.split("%")[1:]:
        if len(piece) < 2 or not set(piece[:2]) <= _HEX:
            raise Rejected("a percent sign in a URL is followed by two hexadecimal digits")
    try:
        return unquote_to_bytes(text).decode("utf-8")
    except UnicodeDecodeError:
        raise Rejected("what is percent-encoded in a URL must be UTF-8") from None


_HEX = frozenset("0123456789abcdefABCDEF")
