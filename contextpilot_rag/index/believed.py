"""Believed: what whoever chooses an order asks of what is believed to be cached."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from ..types import BlockRef
from .placement import PlacementRule


@dataclass(frozen=True, slots=True)
class Prefix:
    """A cached prefix that a request can use.

    Args:
        ranks: positions of its blocks in the request, in cached order.
        tokens: their tokens, by the request's own counts.
    """

    ranks: tuple[int, ...] = ()
    tokens: int = 0


class Believed(Protocol):
    """A picture of what is cached."""

    def heaviest_prefix(self, request: Sequence[BlockRef], rule: PlacementRule | None = None) -> Prefix:
        """The cached prefix that weighs most among those made of the request's blocks alone."""
        ...

    def cached_tokens(self, sequence: Sequence[BlockRef]) -> tuple[int, int]:
        """How much of a sequence, sent in exactly this order, is cached: (blocks, tokens)."""
        ...


@dataclass(frozen=True, slots=True)
class Both:
    """Two pictures as one. A cached prefix is part of one sequence that was sent, so it stands whole in one of them.

    Args:
        first: where both have as much, its prefix is taken.
        second: the other.
    """

    first: Believed
    second: Believed

    def heaviest_prefix(self, request: Sequence[BlockRef], rule: PlacementRule | None = None) -> Prefix:
        """The heavier of their two."""
        one, other = self.first.heaviest_prefix(request, rule), self.second.heaviest_prefix(request, rule)
        return other if other.tokens > one.tokens else one

    def cached_tokens(self, sequence: Sequence[BlockRef]) -> tuple[int, int]:
        """The longer of their two."""
        return max(self.first.cached_tokens(sequence), self.second.cached_tokens(sequence))
