"""Overheard: what an answer says of its tokens, read in passing, and after the client has all of it."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from ..engines.usage import usage_of
from ..types import Usage
from .heads import Headers

_MOST = 2**20  # bytes of an answer that is not streamed
_FIRST = 8 * 2**10  # of one that is: Anthropic counts the prompt in its first event
_LAST = 64 * 2**10  # and all others in one of their last
_INFLATED = 4 * 2**20  # bytes of a compressed one that is not streamed
_GZIPPED = frozenset({b"gzip", b"x-gzip", b"deflate"})
_GZIP_OR_ZLIB = 47  # whichever its first bytes say
_FIGURES = (b"usage", b"timings", b"meta_info", b"prompt_tokens")
_decode = msgspec.json.Decoder().decode


class Overheard:
    """One answer, as far as it has to be kept to find its figures.

    Args:
        headers: of the answer.

    >>> heard = Overheard([(b"content-type", b"application/json")])
    >>> heard.add(b'{"usage": {"prompt_')
    >>> heard.add(b'tokens": 3}}')
    >>> heard.usage()
    Usage(prompt_tokens=3, cached_tokens=None, completion_tokens=None)
    """

    __slots__ = ("_first", "_last", "_most", "_streamed", "_zipped")

    def __init__(self, headers: Headers) -> None:
        kind = b""
        coding = b""
        for name, value in headers:
            lower = name.lower()
            if lower == b"content-type":
                kind = value.partition(b";")[0].strip().lower()
            elif lower == b"content-encoding":
                coding += value.strip().lower()
        self._streamed = kind == b"text/event-stream"
        self._zipped = coding in _GZIPPED and not self._streamed
        of_use = coding in {b"", b"identity"} or self._zipped
        of_use = of_use and (self._streamed or kind.endswith(b"json"))
        self._most = 0 if not of_use else _LAST if self._streamed else _MOST
        self._first = b""
        self._last = bytearray()  # in one piece: tiny ones take many times what they hold

    def add(self, part: bytes) -> None:
        """Some of the answer passes."""
        if not self._most:
            return
        self._last += part
        if not self._streamed:
            if len(self._last) > self._most:
                self._most = 0
                self._last.clear()
            return
        if len(self._first) < _FIRST:
            self._first += part[: _FIRST - len(self._first)]
        if len(self._last) > 2 * self._most:
            del self._last[: -self._most]

    def usage(self) -> Usage | None:
        """What the answer said; None: nothing. Never raises."""
        if not self._most:
            return None
        try:
            whole = bytes(self._last)
            if self._zipped:
                whole = zlib.decompressobj(_GZIP_OR_ZLIB).decompress(whole, _INFLATED)
            return _of_stream(self._first, whole) if self._streamed else usage_of(_decode(whole))
        except (msgspec.DecodeError, RecursionError, ValueError, zlib.error):
            return None


def _of_stream(first: bytes, last: bytes) -> Usage | None:
    """The figures of the last event that has any; those it lacks, of the first one."""
    begun = next((_begun(event) for event in _events(_split(first))), None)
    for event in _events(reversed(_split(last))):
        told = event.get("usage")
        if begun and event.get("type") == "message_delta" and isinstance(told, Mapping):
            merged = {**begun, **{name: value for name, value in told.items() if value is not None}}
            return usage_of({"usage": merged})
        found = usage_of(event)
        if found is not None:
            return found
    return None


def _begun(event: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """What the first event of Anthropic's messages says of the prompt."""
    message = event.get("message")
    if event.get("type") != "message_start" or not isinstance(message, Mapping):
        return None
    told = message.get("usage")
    return told if isinstance(told, Mapping) else None


def _split(stream: bytes) -> list[bytes]:
    """A stream's events. Lines end with LF, CR LF or CR, and a blank one ends an event."""
    if b"\r" in stream:  # JSON has none but in escapes
        stream = stream.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    return stream.split(b"\n\n")


def _events(texts: Iterable[bytes]) -> Iterator[Mapping[str, Any]]:
    """The events that may have figures. What is cut off at either end is none."""
    for text in texts:
        if not any(word in text for word in _FIGURES):
            continue
        lines = [line[5:] for line in text.split(b"\n") if line.startswith(b"data:")]
        for data in (b"\n".join(lines), *reversed(lines)):  # of one event; or nothing stands between several
            try:
                event = _decode(data)
            except (msgspec.DecodeError, RecursionError, ValueError):
                continue
            if isinstance(event, Mapping):
                yield event
