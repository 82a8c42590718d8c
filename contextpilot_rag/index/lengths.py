"""Lengths: what reports say of prompts beside their blocks, and of the engine's own measures."""

from __future__ import annotations

import math
from collections import deque
from statistics import median

from ..types import Usage

LATEST = 32  # reports that the lengths are taken from
KV_BLOCK_TOKENS = 16  # where it is not known
MOST_TOKENS = 2**31  # more is no count of tokens

# Of so many of the latest prompts, one may be of any length before it counts: somebody may have added up, or mistaken,
# what was reported.
ODD_ONE_OF = 16
# Reports on prompts that were taken to be cached before it is told from them what stands before the blocks.
ENOUGH_LEADS = 3
# Prompts before it is told from them how much too long blocks are estimated, and the share of their differences that
# this has to explain.
ENOUGH_PROMPTS = 8
EXPLAINED = 0.5


def plain(usage: Usage) -> Usage:
    """A usage report as far as its counts are counts of tokens; what is none was not reported."""
    counts = usage.prompt_tokens, usage.cached_tokens, usage.completion_tokens
    return usage if all(map(_sound, counts)) else Usage(*(count if _sound(count) else None for count in counts))


def _sound(count: object) -> bool:
    return count is None or (type(count) is int and 0 <= count <= MOST_TOKENS)


class Lengths:
    """Of one namespace's prompts, as the latest reports tell. Not thread-safe: its owner holds a lock.

    >>> lengths = Lengths()
    >>> for number in range(20):
    ...     lengths.prompt(1_000, 1_085 if number != 7 else 9_000_000, 15)
    >>> lengths.beside, lengths.usual
    (100, 1100)
    """

    __slots__ = ("_beside", "_heads", "_leads", "_measure", "_prompts")

    def __init__(self) -> None:
        self._heads: deque[int] = deque(maxlen=LATEST)
        self._leads: deque[int] = deque(maxlen=LATEST)
        self._beside: deque[int] = deque(maxlen=LATEST)
        self._prompts: deque[tuple[int, int]] = deque(maxlen=LATEST)  # blocks' tokens as counted here, and the prompt's
        self._measure = 0  # what all that was ever reported as cached is a multiple of

    def standing(self) -> tuple[list[int], list[int], list[int], list[tuple[int, int]], int]:
        """All of it as plain data."""
        return list(self._heads), list(self._leads), list(self._beside), list(self._prompts), self._measure

    def resume(
        self, heads: list[int], leads: list[int], beside: list[int], prompts: list[tuple[int, int]], measure: int
    ) -> None:
        """Go on from there."""
        for mine, theirs in ((self._heads, heads), (self._leads, leads), (self._beside, beside)):
            mine.extend(theirs)
        self._prompts.extend(prompts)
        self._measure = measure

    def prompt(self, tokens: int, prompt_tokens: int, completion_tokens: int) -> None:
        """An answer was reported.

        Args:
            tokens: of its blocks, as they are counted here.
            prompt_tokens: of its whole prompt, as the engine counts.
            completion_tokens: of the answer.
        """
        self._beside.append(max(0, prompt_tokens + completion_tokens - tokens))
        self._prompts.append((tokens, prompt_tokens))

    def cached(self, tokens: int) -> None:
        """So much of a prompt was reported as cached."""
        self._measure = math.gcd(self._measure, tokens)

    def only_head(self, tokens: int) -> None:
        """So much was found of a prompt none of whose blocks was."""
        self._heads.append(tokens)

    def all_found(self, before: int) -> None:
        """All blocks of a prompt that were believed to be cached were, and so many tokens more."""
        self._leads.append(before)

    @property
    def reports_cached(self) -> bool:
        """Whether the engine ever found anything: one that never does may not report it."""
        return self._measure > 0

    @property
    def kv_block(self) -> int:
        """Tokens of a KV block at most, as far as reports show: engines tell of whole ones."""
        return max(KV_BLOCK_TOKENS, self._measure)

    @property
    def head(self) -> int | None:
        """Tokens before the first block, in whole KV blocks: what is cached of prompts none of whose blocks are."""
        return min(self._heads, default=None)

    @property
    def lead(self) -> int | None:
        """What is usually cached beside the blocks that are believed to be; None: too little is known."""
        if self._heads:
            return self.head
        return int(median(self._leads)) if len(self._leads) >= ENOUGH_LEADS else None

    @property
    def beside(self) -> int:
        """Tokens that a request adds to the cache besides blocks.

        A KV block that is shared only in part is computed again, and one that is not full is not kept: on average, the
        one makes up for the other.
        """
        return 0 if not self._beside else max(0, self._usual_beside() - (self.head or 0))

    @property
    def usual(self) -> int:
        """Tokens that a usual request takes in the cache, as they are counted here."""
        return int(median(tokens for tokens, _ in self._prompts)) + self.beside if self._prompts else 0

    def _usual_beside(self) -> int:
        lengths = sorted(self._beside)
        odd = min(len(lengths) - 1, 1 + len(lengths) // ODD_ONE_OF)
        most = lengths[-1 - odd]
        return sum(min(length, most) for length in lengths) // len(lengths)

    def scale(self, tokens: int, prompt_tokens: int | None) -> float:
        """By how much blocks that were counted here as so many tokens are to be taken as shorter; at most 1.

        No prompt is shorter than its blocks, and where its length follows theirs, by less than theirs, they are counted
        as too long.
        """
        head = self.head or 0
        lengths = [*self._prompts] if prompt_tokens is None else [*self._prompts, (tokens, prompt_tokens)]
        scale = min((max(0, whole - head) / max(1, counted) for counted, whole in lengths), default=1.0)
        return min(1.0, scale, self._slope() if len(self._prompts) >= ENOUGH_PROMPTS else 1.0)

    def _slope(self) -> float:
        size = len(self._prompts)
        mean, mean_whole = (sum(column) / size for column in zip(*self._prompts, strict=True))
        spread = sum((counted - mean) ** 2 for counted, _ in self._prompts)
        spread_whole = sum((whole - mean_whole) ** 2 for _, whole in self._prompts)
        both = sum((counted - mean) * (whole - mean_whole) for counted, whole in self._prompts)
        if both <= 0 or both * both < EXPLAINED * spread * spread_whole:
            return 1.0
        return float(both / spread)
