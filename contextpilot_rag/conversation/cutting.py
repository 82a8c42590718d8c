"""Where a history that is too long is cut: rarely, and in one large piece after what instructs."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import replace
from itertools import takewhile

from .history import Turn


def cut(turns: list[Turn], max_tokens: int, count: Callable[[list[Turn]], int]) -> list[Turn]:
    """The turns that stay: what instructs, and the most of the last ones that leave room for as many tokens again.

    They begin with a turn of the user's, and the last of these always stays. What stays is to be sent anew.

    Args:
        turns: all of them.
        max_tokens: of the history; what stays has half of it at most, if it can.
        count: tokens of some turns, sent anew.
    """
    head = list(takewhile(lambda turn: turn.instructs, turns))
    openings = [place for place, turn in enumerate(turns) if turn.opens][1:]
    if not openings:
        return turns

    def short_enough(place: int) -> bool:
        return count(_afresh([*head, *turns[place:]])) <= max_tokens // 2

    first = openings[min(bisect_left(openings, True, key=short_enough), len(openings) - 1)]
    return _afresh([*head, *turns[first:]])


def _afresh(turns: list[Turn]) -> list[Turn]:
    """Turns to be sent anew: what they once pointed to may be gone."""
    return [replace(turn, blocks=list(turn.blocks), sent=None) for turn in turns]
