"""The sentences that a prompt adds to the blocks: fixed wording, equal in every process."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

ORDER_HINT = "Order of relevance, best first:"
BEST_HINT = "Most relevant:"

LOCATION_HINT = "(given above)"
"""Stands behind the label of a block that was given before, in place of its text."""

# Wording that block text may not forge at the start of a line (`prompt.escape`).
RESERVED_PHRASES: tuple[str, ...] = (ORDER_HINT, LOCATION_HINT, BEST_HINT)

Wording = Literal["order", "best", "title", "sentence"]
"""How a changed order is told: all labels in the order of relevance; the best block's label; that and how the block
begins; that and the sentence of it that has most words of the question."""

_LONGEST_QUOTE = 200  # characters
_SENTENCE_ENDS = re.compile(r"(?<=[.!?])\s+|\s*\n\s*")
_WORD = re.compile(r"\w+")


def label(number: int) -> str:
    """The mark in front of a block.

    >>> label(3)
    '[3]'
    """
    return f"[{number}]"


def order_hint(order: Sequence[int], numbers: Sequence[int] | None = None) -> str:
    """Tells the model the retriever's order of relevance, by label.

    Args:
        order: for each place in the prompt, the block's rank (0 is best).
        numbers: for each place, the block's label; None: they count from 1.

    >>> order_hint([2, 0, 1])
    'Order of relevance, best first: [2] > [3] > [1]'
    >>> order_hint([1, 0], [4, 5])
    'Order of relevance, best first: [5] > [4]'
    """
    numbers = range(1, len(order) + 1) if numbers is None else numbers
    number_of_rank = dict(zip(order, numbers, strict=True))
    return f"{ORDER_HINT} " + " > ".join(label(number_of_rank[rank]) for rank in sorted(number_of_rank))


def best_hint(number: int, quote: str = "", how: str = "says") -> str:
    """Tells the model the best block only, perhaps with words of it.

    Args:
        number: its label.
        quote: words of the block; they are put on one line, and shortened.
        how: what the quote is.

    >>> best_hint(3)
    'Most relevant: [3]'
    >>> best_hint(3, "Slices count from zero.")
    'Most relevant: [3], which says: "Slices count from zero."'
    """
    words = " ".join(quote.split())
    if len(words) > _LONGEST_QUOTE:
        words = f"{words[:_LONGEST_QUOTE].rsplit(' ', 1)[0]} ..."
    return f'{BEST_HINT} {label(number)}, which {how}: "{words}"' if words else f"{BEST_HINT} {label(number)}"


def beginning(text: str) -> str:
    r"""The first line of a text that says something: its title, where it has one.

    >>> beginning("Slices\n\nThey count from zero.")
    'Slices'
    """
    return next((line.strip() for line in text.splitlines() if line.strip()), "")


def best_sentence(text: str, question: str) -> str:
    """The sentence of a text that shares most words with a question; of equals the first.

    >>> best_sentence("Slices are made with colons. They count from zero.", "What do they count from?")
    'They count from zero.'
    """
    asked = set(_WORD.findall(question.lower()))
    sentences = [sentence for sentence in _SENTENCE_ENDS.split(text) if sentence.strip()]
    return max(sentences, key=lambda sentence: len(asked & set(_WORD.findall(sentence.lower()))), default="").strip()
