"""Hot: which shared prefixes save the most. Bounded, whatever arrives."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from heapq import nlargest

from ..types import Alignment, Namespace

_KEPT = 128  # prefixes of each span that surely stay; up to twice as many are kept in between
_SPAN_SECONDS = 20 * 60.0  # three spans, the one under way among them, are never older than an hour
_SPANS = 3

_Key = tuple[str, str, str, str, Hashable]  # API key's tenant; tenant, model, corpus; first block


@dataclass(slots=True)
class Heat:
    """What is known of one prefix.

    Args:
        tokens: predicted to be cached by it. At most; at least ``tokens - error``.
        error: what others may have had that gave way to it.
        requests: that used it while it was counted.
        blocks: of the longest of them.
    """

    tokens: int
    error: int
    requests: int = 0
    blocks: int = 0


@dataclass(frozen=True, slots=True)
class HotPrefix:
    """A prefix that was used by many.

    Args:
        tenant: the API key's.
        namespace: tenant, model and corpus.
        block: its first block: an id, or the beginning of a hash in hexadecimal.
        hashed: whether it is a hash.
        blocks: of the longest request's share.
        requests: that used it.
        tokens: surely saved by it.
    """

    tenant: str
    namespace: tuple[str, str, str]
    block: str
    hashed: bool
    blocks: int
    requests: int
    tokens: int


class Hot:
    """Counts the first blocks of what requests shared, in the last hour. Not thread-safe: the event loop owns it.

    The counts are those of the space-saving algorithm, with the smallest half thrown out at a time, so that a request
    costs one look-up: a newcomer starts at what the largest of those had, and that is its error. With less than
    ``_KEPT`` prefixes in a span all is exact.

    Args:
        clock: seconds that never run backwards.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._spans: deque[_Span] = deque()

    def add(self, tenant: str, alignment: Alignment) -> None:
        """Count a request, if something of it is believed cached."""
        if not alignment.cached_blocks or not alignment.predicted_cached_tokens:
            return
        request = alignment.request
        space = request.namespace
        first = request.blocks[alignment.order[0]].key
        key = (tenant, space.tenant, space.model, space.corpus, first)
        self._now().add(key, alignment.predicted_cached_tokens, alignment.cached_blocks)

    def forget(self, tenant: str, namespace: Namespace | None) -> None:
        """Drop what belongs to a namespace, or to a tenant."""
        for span in self._spans:
            for key in list(span.heats):
                if key[0] == tenant and (
                    namespace is None or key[1:4] == (namespace.tenant, namespace.model, namespace.corpus)
                ):
                    del span.heats[key]

    def hottest(self, most: int = 10) -> list[HotPrefix]:
        """Those that saved the most, most first."""
        self._now()
        total: dict[_Key, Heat] = {}
        for span in self._spans:
            for key, heat in span.heats.items():
                sum_ = total.setdefault(key, Heat(0, 0))
                sum_.tokens += heat.tokens - heat.error
                sum_.requests += heat.requests
                sum_.blocks = max(sum_.blocks, heat.blocks)
        first = nlargest(most, total.items(), key=lambda item: item[1].tokens)
        return [
            HotPrefix(key[0], key[1:4], *_shown(key[4]), heat.blocks, heat.requests, heat.tokens) for key, heat in first
        ]

    def _now(self) -> _Span:
        number = int(self._clock() // _SPAN_SECONDS)
        while self._spans and self._spans[0].number <= number - _SPANS:
            self._spans.popleft()
        if not self._spans or self._spans[-1].number != number:
            self._spans.append(_Span(number))
        return self._spans[-1]


class _Span:
    """Twenty minutes."""

    __slots__ = ("floor", "heats", "number")

    def __init__(self, number: int) -> None:
        self.number = number
        self.heats: dict[_Key, Heat] = {}
        self.floor = 0

    def add(self, key: _Key, tokens: int, blocks: int) -> None:
        heat = self.heats.get(key)
        if heat is None:
            if len(self.heats) >= 2 * _KEPT:
                self._shrink()
            heat = self.heats[key] = Heat(self.floor, self.floor)
        heat.tokens += tokens
        heat.requests += 1
        heat.blocks = max(heat.blocks, blocks)

    def _shrink(self) -> None:
        by_tokens = sorted(self.heats.items(), key=lambda item: -item[1].tokens)
        self.floor = max(self.floor, by_tokens[_KEPT][1].tokens)
        self.heats = dict(by_tokens[:_KEPT])


def _shown(key: Hashable) -> tuple[str, bool]:
    """A block's key as text, and whether it is a hash.

    >>> _shown(bytes(16)), _shown("doc-7")
    (('0000000000', True), ('doc-7', False))
    """
    if isinstance(key, bytes):
        return key.hex()[:10], True
    text = str(key)
    return text, False
