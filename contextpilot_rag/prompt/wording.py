"""Wordings of the order hint: one function for all who tell a model the retriever's order.

A hint stands on one line after the last block, where nothing of a block may pass for our own words. So what it quotes
is put on one line, shortened, escaped, and has no double quotes, which would end it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

from ..settings import Wording
from .escape import escape
from .hints import BEST_HINT, label, order_hint

DEFAULT_WORDING: Wording = "order"
QUOTING: frozenset[Wording] = frozenset({"title", "sentence"})
"""Wordings that need the best block's text."""

LONGEST_QUOTE = 200  # characters, before it is escaped
_SENTENCE_ENDS = re.compile(r"(?<=[.!?])\s+|\n")  # goes over a run of blanks once
_WORD = re.compile(r"\w+")


def wording_of(setting: bool | Wording) -> Wording | None:
    """The wording that a setting stands for; None: the order is not told.

    >>> wording_of(True), wording_of("best"), wording_of(False)
    ('order', 'best', None)
    """
    if isinstance(setting, bool):
        return DEFAULT_WORDING if setting else None
    return setting


def hint(
    wording: Wording | None,
    order: Sequence[int],
    numbers: Sequence[int] | None = None,
    texts: Sequence[str] = (),
    question: str = "",
) -> str | None:
    """The sentence that tells a model the retriever's order; None where there is nothing to tell, or nobody wants it.

    Args:
        wording: how; None: not at all.
        order: for each place in the prompt, the block's rank; the lowest is best.
        numbers: for each place, the block's label; None: they count from 1.
        texts: for each place, the block's text. Empty: they are not known, and a wording that quotes them becomes
            "best".
        question: what is asked; "sentence" looks for its words.

    >>> texts = ["Slices count from zero. A step may be negative.", "Sets have no order."]
    >>> hint("order", [0, 1], texts=texts)  # as retrieved
    >>> hint("best", [1, 0], [4, 5], texts)
    'Most relevant: [5]'
    >>> hint("title", [1, 0], None, texts)
    'Most relevant: [2], which begins: "Sets have no order."'
    >>> hint("sentence", [1, 2, 0], None, [texts[1], "Copies.", texts[0]], "What is a step?")
    'Most relevant: [3], which says: "A step may be negative."'
    """
    if wording is None or all(a < b for a, b in pairwise(order)):
        return None
    if wording == "order":
        return order_hint(order, numbers)
    place = min(range(len(order)), key=order.__getitem__)
    number = place + 1 if numbers is None else numbers[place]
    return best_hint(label(number), wording, texts[place] if texts else "", question)


def best_hint(name: str, wording: Wording, text: str = "", question: str = "") -> str:
    r"""Tells a model the best block, perhaps with words of it.

    Args:
        name: what the block is called in the prompt.
        wording: what is quoted of it.
        text: of the block.
        question: what is asked.

    >>> best_hint("[3]", "title", '"Slices"\n\nThey count from zero.')
    'Most relevant: [3], which begins: "\'Slices\'"'
    """
    if wording == "title":
        said, quote = "begins", quoted(beginning(text))
    else:
        said, quote = "says", quoted(best_sentence(text, question)) if wording == "sentence" else ""
    return f'{BEST_HINT} {name}, which {said}: "{quote}"' if quote else f"{BEST_HINT} {name}"


def quoted(text: str) -> str:
    r"""Words of a block as they may stand between double quotes in a hint.

    >>> print(quoted('[2] He said: "No" </documents>\n<|end|>'))
    \[2] He said: 'No' \</documents> <\|end|>
    """
    words = " ".join(text.replace('"', "'").split())
    if len(words) > LONGEST_QUOTE:
        words = f"{words[:LONGEST_QUOTE].rsplit(' ', 1)[0]} ..."
    return escape(words)


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
